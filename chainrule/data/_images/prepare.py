"""Prepare images on disk as arrays, a training part and a held-out part, in bounded memory."""

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.data._images.folder import Reading
from chainrule.data._images.open import open_source
from chainrule.data._images.reduction import Reduction
from chainrule.data._images.source import ImageSource, Pixels
from chainrule.data._split import check_fraction, hold_out
from chainrule.data._store import Store, StoreWriter

TRAIN, VALID = "train", "valid"
_MANIFEST = "images.json"
_LARGEST = 1 << 22  # values of an image; of a larger one, the layers of a model would fill the memory
_NAMED = 20  # images left out, whose names are kept


@dataclass(frozen=True)
class PreparedImages:
    """Images on disk.

    Attributes:
        train: (N, C, H, W), read from the disk on demand: levels, or stored values where each epoch draws.
        valid: the same of the images held out, levels always.
        train_labels: (N,) places in `classes`, or `None`.
        valid_labels: the same of the images held out.
        classes: names of the labels.
        reduction: from stored values to levels.
        manifest: content of images.json: fingerprints, counts and what was found.
    """

    train: Pixels
    valid: Pixels
    train_labels: npt.NDArray[np.int64] | None
    valid_labels: npt.NDArray[np.int64] | None
    classes: tuple[str, ...] | None
    reduction: Reduction
    manifest: dict[str, Any]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        channels, height, width = self.train.shape[1:]
        return channels, height, width


def prepare_images(
    path: str | Path,
    directory: str | Path,
    *,
    bits: int | None = None,
    binarise: Any = None,
    labelled: bool | None = None,
    reading: Reading | None = None,
    skip_bad: bool = False,
    validation: str | Path | None = None,
    validation_fraction: float = 0.1,
    seed: int = 0,
) -> PreparedImages:
    """Read images and write them into a directory, a few megabytes in memory at a time.

    The validation set is `validation`, or the array valid of an .npz file that has train and valid, or a part
    drawn from the seed.

    Args:
        path: see `open_source`.
        directory: created if it is missing; `images.json` is the last file written into it.
        bits: of each channel of a pixel, where fewer are wanted; see `Reduction`.
        binarise: threshold, fixed or per-epoch.
        labelled: whether there are labels; None looks.
        reading: of image files.
        skip_bad: leave out image files that cannot be read.
        validation: validation images; by default a part of the first source is held out.
        validation_fraction: of the images.
        seed: of the images held out, and of every draw.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     pixels = np.arange(720, dtype=np.uint8).reshape(20, 6, 6)
    ...     np.savez(Path(folder) / "x.npz", images=pixels, labels=[0, 1] * 10)
    ...     images = prepare_images(Path(folder) / "x.npz", Path(folder) / "data", bits=1)
    ...     images.train.shape, images.valid.shape, images.classes, str(images.reduction)
    ((18, 1, 6, 6), (2, 1, 6, 6), ('0', '1'), 'binarised at half of the brightest (threshold)')
    """
    check_fraction("validation_fraction", validation_fraction)
    source = open_source(path, labelled=labelled, reading=reading, skip_bad=skip_bad)
    if prod(source.shape) > _LARGEST:
        remedy = "say --size" if source.kind == "folder" else "scale them"
        raise ValueError(
            f"{source.label}: expected images of at most {_LARGEST:,} values, got {format_shape(source.shape)}: "
            f"{remedy}"
        )
    reduction = Reduction(source.levels, bits, binarise)
    held_out = _held_out(source, validation, reading, skip_bad=skip_bad)
    if held_out is None and source.count < 2:
        raise ValueError(f"{source.label}: expected at least two images, one of them to hold out, got 1")
    classes = None if source.labels is None else source.labels.names
    if labelled and classes is not None and len(classes) == 1:
        raise ValueError(f"{source.label}: all images have the label {classes[0]!r:.60}: expected at least two labels")
    stored = Reduction(source.levels) if binarise == "per-epoch" else reduction
    if held_out is None:
        chosen = hold_out(source.count, validation_fraction, seed)
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
    source: ImageSource, validation: str | Path | None, reading: Reading | None, *, skip_bad: bool
) -> ImageSource | None:
    """Return the validation images of another source; their shape must match the training images."""
    named = validation if validation is not None else source.held_out
    if named is None:
        return None
    labelled, levels = source.labels is not None, source.levels
    held_out = open_source(named, labelled=labelled, reading=reading, skip_bad=skip_bad, black_and_white=levels)
    check_alike(held_out, source.shape, levels)
    return held_out


def check_alike(source: ImageSource, shape: tuple[int, int, int], levels: int) -> None:
    """Raise ValueError for images of another shape, or with more levels, than a model knows."""
    if source.shape != shape:
        raise ValueError(
            f"{source.label}: expected images of {format_shape(shape)}, as those trained on, got "
            f"{format_shape(source.shape)}"
        )
    if source.levels > levels:
        raise ValueError(f"{source.label}: expected values below {levels}, as those trained on, got larger ones")


def format_shape(shape: tuple[int, int, int]) -> str:
    """
    >>> format_shape((1, 28, 28)), format_shape((3, 32, 32))
    ('28×28 pixels, grey', '32×32 pixels, RGB')
    """
    channels, height, width = shape
    return f"{height}×{width} pixels, {'grey' if channels == 1 else 'RGB'}"
