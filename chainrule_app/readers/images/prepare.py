"""Prepare images on disk as arrays, a training part and a held-out part, in bounded memory."""

import zipfile
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.option_error import UserError, option
from chainrule_app.printing import listed
from chainrule_app.readers.held_out import hold_out
from chainrule_app.readers.images.folder import ImageFolder, Reading, images_in
from chainrule_app.readers.images.held import HeldImages
from chainrule_app.readers.images.source import ImageLabels, ImageSource, Pixels, Reduction
from chainrule_app.readers.images.stacked import UNREADABLE, Header, StackedImages, image_layout, open_array, read_bytes
from chainrule_app.readers.journal import Journals
from chainrule_app.readers.members import ARCHIVES, FileSet
from chainrule_app.readers.sources import IMAGES, check_file, file_and_array, fingerprint
from chainrule_app.readers.store import Store, StoreWriter

FAVOURITES = ("x_train", "train_images", "images_train", "train", "images", "x", "data")
_LABELS_OF = (("x", "y"), ("images", "labels"), ("image", "label"), ("train", "train_labels"), ("data", "labels"))
_HELD_OUT = ("valid", "validation", "val")
_MOST_LABELS = 1 << 16
_MOST_ARRAYS = 1 << 10  # in an .npz file: the header of each is read


def open_source(
    path: str | Path | FileSet | HeldImages,  # a folder or archive, several files, a file of images; or in memory
    *,
    labelled: bool | None = None,  # whether there are labels
    reading: Reading | None = None,
    skip_bad: bool = False,  # leave out image files that cannot be read
    black_and_white: int = 2,  # levels of image files stored in black and white alone, and of booleans
    part: str | None = None,  # of a folder or archive that has folders train and test, or validation; None takes all
    journals: Journals | None = None,  # of the preparation for which the images are opened
) -> ImageSource:
    """Open images and look at them as far as it takes to know their number, shape and labels."""
    if isinstance(path, HeldImages):
        return path.opened(labelled=labelled, reading=reading, skip_bad=skip_bad, black_and_white=black_and_white)
    path, array = (path, None) if isinstance(path, FileSet) else file_and_array(path)
    if isinstance(path, FileSet) or is_collection(path):
        return ImageFolder(
            path,
            labelled=labelled,
            reading=reading,
            skip_bad=skip_bad,
            black_and_white=black_and_white,
            part=part,
            journal=nullcontext if journals is None else partial(journals.open, part or VALID, repr(reading)),
        )
    if reading is not None and reading != Reading():
        raise UserError(
            f"{path}: {option('size')} and {option('colour')} are for folders and archives of image files",
            "leave them out",
        )
    check_file(path)
    name = path.name.lower()
    if name.endswith(".npz"):
        return _of_archive(path, array, labelled, black_and_white)
    source = StackedImages(path, black_and_white=black_and_white)
    if labelled is not False and source.kind == "idx":
        source.labels = _idx_labels(path, source.count, labelled)
    if labelled and source.labels is None:
        name = _label_name(path.name)
        raise ValueError(f"{path}: expected labels, got none" + (f": {name} is missing" if name != path.name else ""))
    return source


def read_image(path: str | Path | HeldImages, reading: Reading) -> Pixels:
    """Read the pixels (C, H, W) of one image file, or of one image in memory."""
    if isinstance(path, HeldImages):
        return path.pixels(0, reading)[0]
    with check_file(path).open("rb") as file:
        return reading.image(file, str(path))[0]


def source_fingerprint(path: str | Path | FileSet | HeldImages) -> dict[str, Any]:
    """`name`, number of `bytes` and `sha256` of a folder's images or of a file, to tell whether they are the same."""
    if isinstance(path, HeldImages):
        return path.fingerprint()
    if isinstance(path, FileSet):
        return images_in(path).fingerprint()
    path, _ = file_and_array(path)
    return images_in(path).fingerprint() if is_collection(path) else fingerprint(path)


def is_collection(source: str | Path | FileSet | HeldImages) -> bool:
    """Return whether images are read from image files or images of Pillow, in whose place an array may be."""
    if isinstance(source, HeldImages):
        return isinstance(source.images, list)
    return isinstance(source, FileSet) or Path(source).is_dir() or str(source).lower().endswith((*ARCHIVES, *IMAGES))


def _of_archive(path: Path, array: str | None, labelled: bool | None, black_and_white: int) -> ImageSource:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except UNREADABLE as error:
        raise ValueError(f"{path}: not an .npz file, or damaged ({error}): restore it from a copy") from None
    names = [member.removesuffix(".npy") for member in members if member.endswith(".npy")]
    if len(names) > _MOST_ARRAYS:
        raise ValueError(
            f"{path}: expected at most {_MOST_ARRAYS:,} arrays, got {len(names):,}: store the images as one array "
            "(N, H, W) or (N, H, W, 3)"
        )
    if array is not None and array not in names:
        raise ValueError(f"{path}: there is no array {array!r} (arrays: {listed(names)})")
    chosen = array or _the_images(path, names)
    source = StackedImages(path, chosen, black_and_white)
    others = [name for name in names if name != chosen]
    source.held_out = next(
        (
            f"{path}:{name}"
            for word in _HELD_OUT
            for name in others
            if "train" in chosen
            and name == chosen.replace("train", word)
            and _header(path, name).shape[1:] == _header(path, chosen).shape[1:]
        ),
        None,
    )
    if labelled is not False:
        source.labels = _array_labels(path, chosen, others, source.count, labelled)
    if labelled and source.labels is None:
        raise ValueError(f"{path}: expected labels, got no array 'labels' next to {chosen!r}")
    return source


def _the_images(path: Path, names: list[str]) -> str:
    fitting = []
    for name in names:
        shape, dtype, _ = _header(path, name)
        if image_layout(shape) is not None and dtype.kind in "uifb":
            fitting.append(name)
    if not fitting:
        raise UserError(
            f"{path}: none of its arrays ({listed(names)}) holds images (N, H, W) or (N, H, W, 3)",
            f"rows of numbers (N, D) are read with {option('task', 'table')}",
        )
    named = [name for favourite in FAVOURITES for name in fitting if name.lower() == favourite]
    if len(fitting) > 1 and not named:
        raise ValueError(
            f"{path}: has several arrays of images ({listed(fitting)}): name one, as in {path}:{fitting[0]}"
        )
    return named[0] if named else fitting[0]


def _array_labels(path: Path, chosen: str, others: list[str], count: int, labelled: bool | None) -> ImageLabels | None:
    """Return the array of labels: y_train for x_train, or the only candidate."""
    paired = [
        name
        for images, labels in _LABELS_OF
        for name in others
        if images in chosen and name == chosen.replace(images, labels)
    ]
    if not paired:
        paired = [name for name in others if name.lower() in ("labels", "label", "y", "targets")]
    if not paired:
        return None
    name = paired[0]
    shape, dtype, _ = _header(path, name)
    if shape not in ((count,), (count, 1)) or dtype.kind not in "uiU":
        raise UserError(
            f"{path}: the array {name!r}: expected {count} whole numbers or texts, labels of {chosen!r}, got shape "
            f"{shape} of {dtype}",
            "" if labelled else f"pass {option('labels', False)} to leave it out",
        )
    return _labels(path, name, count)


def _label_name(name: str) -> str:
    return name.replace("images", "labels").replace("idx3", "idx1").replace("idx4", "idx1")


def _idx_labels(path: Path, count: int, labelled: bool | None) -> ImageLabels | None:
    usual = path.with_name(_label_name(path.name))
    other = usual.with_suffix("") if usual.suffix == ".gz" else usual.with_name(usual.name + ".gz")
    label_file = next((file for file in (usual, other) if file != path and file.is_file()), None)
    if label_file is None:
        return None
    shape = _header(label_file).shape
    if shape != (count,):
        raise UserError(
            f"{label_file}: expected {count} labels, one for each image of {path.name}, got shape {shape}",
            "" if labelled else f"pass {option('labels', False)} to leave it out",
        )
    return _labels(label_file, None, count)


def _header(path: Path, array: str | None = None) -> Header:
    with open_array(path, array) as (_, header):
        return header


def _labels(path: Path, array: str | None, count: int) -> ImageLabels:
    at = "" if array is None else f": the array {array!r}"
    with open_array(path, array) as (file, header):
        try:
            raw = read_bytes(file, count * header.dtype.itemsize)
            if len(raw) < count * header.dtype.itemsize:
                raise ValueError(f"it holds only {len(raw) // header.dtype.itemsize} of {count} labels")
            if file.read(1):
                raise ValueError(f"it holds more data after its {count} labels")
        except UNREADABLE as error:
            raise ValueError(f"{path}{at}: cannot be read ({error}): restore it from a copy") from None
    values = np.frombuffer(raw, header.dtype)
    labels = ImageLabels.of(values if values.dtype.kind == "U" else values.astype(np.int64))
    if len(labels.names) > _MOST_LABELS:
        raise UserError(
            f"{path}{at}: expected at most {_MOST_LABELS:,} different labels, got {len(labels.names):,}",
            f"pass {option('labels', False)} to train without them",
        )
    return labels


TRAIN, VALID = "train", "valid"
_MANIFEST = "images.json"
_LARGEST = 1 << 22  # values of an image; of a larger one, the layers of a model would fill the memory
_NAMED = 20  # images left out, whose names are kept


@dataclass(frozen=True)
class PreparedImages:
    """Images on disk."""

    train: Pixels  # (N, C, H, W), read from the disk on demand: levels, or stored values where each epoch draws
    valid: Pixels  # the same of the images held out, levels always
    train_labels: npt.NDArray[np.int64] | None  # (N,) places in `classes`, or `None`
    valid_labels: npt.NDArray[np.int64] | None  # the same of the images held out
    classes: tuple[str, ...] | None  # names of the labels
    reduction: Reduction  # from stored values to levels
    manifest: dict[str, Any]  # content of images.json: fingerprints, counts and what was found

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        channels, height, width = self.train.shape[1:]
        return channels, height, width


def prepare_images(
    path: str | Path | HeldImages,
    directory: str | Path,  # created if it is missing; `images.json` is the last file written into it
    *,
    bits: int | None = None,  # of each channel of a pixel, where fewer are wanted; see `Reduction`
    binarise: Any = None,  # threshold, fixed or per-epoch
    labelled: bool | None = None,  # whether there are labels; None looks
    reading: Reading | None = None,
    skip_bad: bool = False,  # leave out image files that cannot be read
    validation: str
    | Path
    | HeldImages
    | None = None,  # validation images; by default a part of the first source is held out
    validation_fraction: float = 0.1,
    seed: int = 0,  # of the images held out, and of every draw
) -> PreparedImages:
    """Read images and write them into a directory, a few megabytes in memory at a time."""
    journals = Journals(directory)
    source = open_source(path, labelled=labelled, reading=reading, skip_bad=skip_bad, part=TRAIN, journals=journals)
    if prod(source.shape) > _LARGEST:
        raise UserError(
            f"{source.label}: expected images of at most {_LARGEST:,} values, got {format_shape(source.shape)}",
            f"pass {option('size')}" if source.kind == "folder" else "scale them",
        )
    reduction = Reduction(source.levels, bits, binarise)
    held_out = _held_out(source, validation, reading, skip_bad=skip_bad, journals=journals)
    if held_out is None and source.count < 2:
        raise ValueError(f"{source.label}: expected at least two images, one of them to hold out, got 1")
    classes = None if source.labels is None else source.labels.names
    if labelled and classes is not None and len(classes) == 1:
        raise ValueError(f"{source.label}: all images have the label {classes[0]!r:.60}: expected at least two labels")
    stored = Reduction(source.levels) if binarise == "per-epoch" else reduction
    if held_out is None:
        labels = None if source.labels is None else [{number} for number in source.labels.numbers.tolist()]
        chosen = hold_out(source.count, validation_fraction, seed, labels)
        parts = [(TRAIN, source, ~chosen, stored), (VALID, source, chosen, reduction)]
    else:
        everything = (np.ones(each.count, dtype=np.bool_) for each in (source, held_out))
        parts = [(TRAIN, source, next(everything), stored), (VALID, held_out, next(everything), reduction)]
    with StoreWriter(directory, _MANIFEST) as writer:
        for number, (part, read, rows, how) in enumerate(parts, start=1):
            pixels = writer.growing(f"{part}.pixels", np.uint8, source.shape)
            random, start = np.random.default_rng([seed, number]), 0
            for block in read.blocks():
                pixels.append(how.apply(block[rows[start : start + len(block)]], random))
                start += len(block)
            if classes is not None:
                assert read.labels is not None
                writer.array(f"{part}.labels", read.labels.among(classes, read.label)[rows])
        manifest = {
            "source": source.fingerprint(),
            "validation": None if held_out is None else held_out.fingerprint() | {"name": held_out.name},
            "kind": source.kind,
            "name": source.name,
            "shape": list(source.shape),
            "images": {part: int(rows.sum()) for part, _, rows, _ in parts},
            "found_levels": source.levels,
            "bits": bits,
            "binarise": binarise,
            "classes": None if classes is None else list(classes),
            "scaled_to_8_bits": sum(read.deep for read in {id(part[1]): part[1] for part in parts}.values()),
            "put_on_white": sum(read.transparent for read in {id(part[1]): part[1] for part in parts}.values()),
            "left_out": {"count": len(source.skipped), "names": list(source.skipped[:_NAMED])},
        }
        writer.finish(manifest)
    journals.forget()
    return open_images(directory)


def open_images(directory: str | Path) -> PreparedImages:
    """Open a folder written by `prepare_images`; raises the errors of `Store`."""
    store = Store(directory, _MANIFEST, "images")
    manifest = store.manifest
    pixels: dict[str, Any] = {}
    labels: dict[str, Any] = dict.fromkeys((TRAIN, VALID))
    with store.checked():
        shape, classes = tuple(manifest["shape"]), manifest["classes"]
        reduction = Reduction(manifest["found_levels"], manifest["bits"], manifest["binarise"])
        for part in (TRAIN, VALID):
            count = manifest["images"][part]
            level_count = reduction.found if part == TRAIN and manifest["binarise"] == "per-epoch" else reduction.levels
            below = level_count if level_count < 256 else None  # a byte holds no larger one
            pixels[part] = store.array(f"{part}.pixels", np.uint8, (count, *shape), below)
            if classes is not None:
                labels[part] = np.array(store.array(f"{part}.labels", np.int64, (count,), len(classes)))
        names = None if classes is None else tuple(map(str, classes))
    return PreparedImages(
        pixels[TRAIN], pixels[VALID], labels[TRAIN], labels[VALID], names, reduction, manifest
    )  # fmt: skip


def _held_out(
    source: ImageSource,
    validation: str | Path | HeldImages | None,
    reading: Reading | None,
    *,
    skip_bad: bool,
    journals: Journals,
) -> ImageSource | None:
    """Return the validation images of another source; their shape must match the training images."""
    named = validation if validation is not None else source.held_out
    if named is None:
        return None
    labelled, levels = source.labels is not None, source.levels
    part = VALID if validation is None else None
    held_out = open_source(
        named,
        labelled=labelled,
        reading=reading,
        skip_bad=skip_bad,
        black_and_white=levels,
        part=part,
        journals=journals,
    )
    check_alike(held_out, source.shape, levels)
    return held_out


def check_alike(source: ImageSource, shape: tuple[int, int, int], levels: int) -> None:
    """Raise ValueError for images of another shape, or with more levels, than a model knows."""
    if source.shape != shape:
        raise ValueError(
            f"{source.label}: expected images of {format_shape(shape)}, as in training, got "
            f"{format_shape(source.shape)}"
        )
    if source.levels > levels:
        raise ValueError(f"{source.label}: expected values below {levels}, as in training, got larger ones")


def format_shape(shape: tuple[int, int, int]) -> str:
    """Write the shape of an image.

    >>> format_shape((1, 28, 28)), format_shape((3, 32, 32))
    ('28×28 pixels, grey', '32×32 pixels, RGB')
    """
    channels, height, width = shape
    return f"{height}×{width} pixels, {'grey' if channels == 1 else 'RGB'}"
