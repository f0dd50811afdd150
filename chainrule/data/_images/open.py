"""Open the images that a user names: a folder, archive, x.npz, x.npz:array, x.npy, or idx file, plain or gzip."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.data._images.folder import ImageFolder, Reading, images_in
from chainrule.data._images.source import ImageLabels, ImageSource
from chainrule.data._images.stacked import UNREADABLE, Header, StackedImages, image_layout, open_array, read_bytes
from chainrule.data._kinds import IMAGES, file_and_array
from chainrule.data._members import ARCHIVES
from chainrule.data._text import check_file, fingerprint

FAVOURITES = ("x_train", "train_images", "images_train", "train", "images", "x", "data")
_LABELS_OF = (("x", "y"), ("images", "labels"), ("image", "label"), ("train", "train_labels"), ("data", "labels"))
_HELD_OUT = ("valid", "validation", "val")
_MOST_LABELS = 1 << 16
_MOST_ARRAYS = 1 << 10  # in an .npz file: the header of each is read


def open_source(
    path: str | Path,
    *,
    labelled: bool | None = None,
    reading: Reading | None = None,
    skip_bad: bool = False,
    black_and_white: int = 2,
) -> ImageSource:
    """Open images and look at them as far as it takes to know their number, shape and labels.

    Args:
        path: a folder or archive of image files; an .npz file, its array named after a colon where that is not
            clear; an .npy file; an idx file, compressed by gzip or not.
        labelled: whether there are labels: the sub-folders of a folder, a second array of whole numbers in an .npz
            file, the labels-idx1 file next to an images-idx3 one. None looks; True insists.
        reading: of image files.
        skip_bad: leave out image files that cannot be read.
        black_and_white: levels of image files stored in black and white alone; the levels of the images that they shall
            be alike.
    """
    path, array = file_and_array(path)
    if is_collection(path):
        return ImageFolder(path, labelled=labelled, reading=reading, skip_bad=skip_bad, black_and_white=black_and_white)
    if reading is not None and reading != Reading():
        raise ValueError(f"{path}: --size and --colour are for folders and archives of image files: leave them out")
    check_file(path)
    name = path.name.lower()
    if name.endswith(".npz"):
        return _of_archive(path, array, labelled)
    source = StackedImages(path)
    if labelled is not False and source.kind == "idx":
        source.labels = _idx_labels(path, source.count, labelled)
    if labelled and source.labels is None:
        raise ValueError(f"{path}: expected labels, got none: {_label_name(path.name)} is missing")
    return source


def source_fingerprint(path: str | Path) -> dict[str, Any]:
    """`name`, number of `bytes` and `sha256` of a folder's images or of a file, to tell whether they are the same."""
    path, _ = file_and_array(path)
    return images_in(path).fingerprint() if is_collection(path) else fingerprint(path)


def is_collection(path: Path) -> bool:
    """Return whether it is a folder or an archive, whose image files are read, or one image file."""
    return path.is_dir() or path.name.lower().endswith((*ARCHIVES, *IMAGES))


def _of_archive(path: Path, array: str | None, labelled: bool | None) -> ImageSource:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except UNREADABLE as error:
        raise ValueError(f"{path}: no .npz file, or damaged ({error}): restore it from a copy") from None
    names = [member.removesuffix(".npy") for member in members if member.endswith(".npy")]
    if len(names) > _MOST_ARRAYS:
        raise ValueError(
            f"{path}: expected at most {_MOST_ARRAYS:,} arrays, got {len(names):,}: store the images as one array "
            "(N, H, W) or (N, H, W, 3)"
        )
    if array is not None and array not in names:
        raise ValueError(f"{path}: there is no array {array!r} (there are: {', '.join(names):.200})")
    chosen = array or _the_images(path, names)
    source = StackedImages(path, chosen)
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
        raise ValueError(f"{path}: expected labels, got no array 'labels' beside {chosen!r}")
    return source


def _the_images(path: Path, names: list[str]) -> str:
    fitting = []
    for name in names:
        shape, dtype, _ = _header(path, name)
        if image_layout(shape) is not None and dtype.kind in "uifb":
            fitting.append(name)
    if not fitting:
        raise ValueError(f"{path}: none of its arrays ({', '.join(names):.200}) holds images (N, H, W) or (N, H, W, 3)")
    named = [name for favourite in FAVOURITES for name in fitting if name.lower() == favourite]
    if len(fitting) > 1 and not named:
        raise ValueError(f"{path}: which of {', '.join(fitting):.200}? Name one: {path}:{fitting[0]}")
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
        raise ValueError(
            f"{path}: the array {name!r}: expected {count} whole numbers or texts, labels of {chosen!r}, got shape "
            f"{shape} of {dtype}{_leave_out(labelled)}"
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
        raise ValueError(
            f"{label_file}: expected {count} labels, one for each image of {path.name}, got shape {shape}"
            f"{_leave_out(labelled)}"
        )
    return _labels(label_file, None, count)


def _leave_out(labelled: bool | None) -> str:
    """Return the remedy for labels that do not fit, where nobody insists on them."""
    return "" if labelled else ": say --no-labels to leave it out"


def _header(path: Path, array: str | None = None) -> Header:
    with open_array(path, array) as (_, header):
        return header


def _labels(path: Path, array: str | None, count: int) -> ImageLabels:
    at = "" if array is None else f": the array {array!r}"
    with open_array(path, array) as (file, header):
        try:
            raw = read_bytes(file, count * header.dtype.itemsize)
            if len(raw) < count * header.dtype.itemsize:
                raise ValueError(f"it holds {len(raw) // header.dtype.itemsize} labels of {count}")
            if file.read(1):
                raise ValueError(f"it goes on after its {count} labels")
        except UNREADABLE as error:
            raise ValueError(f"{path}{at}: cannot be read ({error}): restore it from a copy") from None
    values = np.frombuffer(raw, header.dtype)
    labels = ImageLabels.of(values if values.dtype.kind == "U" else values.astype(np.int64))
    if len(labels.names) > _MOST_LABELS:
        raise ValueError(
            f"{path}{at}: expected at most {_MOST_LABELS:,} different labels, got {len(labels.names):,}: "
            "train without them, with --no-labels"
        )
    return labels
