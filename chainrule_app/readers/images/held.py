"""Images in memory: an array of them, or images of Pillow, which are decoded as their files are."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from chainrule.option_error import OptionError
from chainrule_app.readers.images.folder import ImageFolder, Reading
from chainrule_app.readers.images.source import ImageLabels, ImageSource, Pixels
from chainrule_app.readers.images.stacked import Header, StackedImages
from chainrule_app.readers.journal import Journal
from chainrule_app.readers.members import Member
from chainrule_app.readers.origin import DataSource, Origin, digest_of


class HeldImages(DataSource):
    """An array of images (N, H, W) or with colours, or images of Pillow, and a label of each or none."""

    def __init__(self, origin: Origin, images: npt.NDArray[Any] | Sequence[Image.Image], labels: Any = None):
        self.origin, self.images, self.labels = origin, images, None if labels is None else np.asarray(labels)
        if self.labels is None:
            return
        if self.labels.shape != (len(images),):
            got = f"{len(self.labels)}" if self.labels.ndim == 1 else f"an array of shape {self.labels.shape}"
            raise OptionError("labels", f"expected one for each of {len(images)} images, got {got}")
        if self.labels.dtype.kind not in "uiUb":
            raise OptionError("labels", f"expected whole numbers, truth values or texts, got {self.labels.dtype}")

    def __len__(self) -> int:
        return len(self.images)

    def pixels(self, index: int, reading: Reading) -> tuple[Pixels, str]:
        """Return one image (C, H, W) as `Reading.image` gives that of a file, and its mode."""
        image, label = self.images[index], self.label(index)
        if isinstance(image, Image.Image):
            return reading.pixels(image, label)
        if image.dtype != np.uint8 or image.ndim not in (2, 3) or image.shape[2:] not in ((), (3,)):
            raise ValueError(f"{label}: expected (H, W) or (H, W, 3) of uint8, got {image.dtype} {image.shape}")
        return reading.pixels(Image.fromarray(image), label)

    def label(self, index: int) -> str:
        """Name one image for errors."""
        return self.origin.at(index) if len(self.images) > 1 else str(self.origin)

    def opened(
        self, *, labelled: bool | None, reading: Reading | None, skip_bad: bool, black_and_white: int
    ) -> ImageSource:
        """Return the images as a source; the arguments are those of `chainrule_app.readers.images.open_source`."""
        if labelled and self.labels is None:
            raise ValueError(f"{self.origin}: expected labels, got none: pass labels=..., one for each image")
        source: _Arrays | _Pictures
        if isinstance(self.images, np.ndarray):
            if reading is not None and reading != Reading():
                raise ValueError(
                    f"{self.origin}: size and colour apply only to image files and Pillow images: leave them out"
                )
            source = _Arrays(self.images, self)
        else:
            source = _Pictures(self, reading or Reading(), skip_bad=skip_bad, black_and_white=black_and_white)
        if labelled is not False and self.labels is not None:
            kept = self.labels[source.places]
            source.labels = ImageLabels.of(kept.astype(np.str_) if kept.dtype.kind == "b" else kept)
        return source

    def fingerprint(self) -> dict[str, Any]:
        return digest_of(self.origin, self._parts())

    def _parts(self) -> Iterator[bytes]:
        for image in [self.images] if isinstance(self.images, np.ndarray) else self.images:
            kind = (image.mode, image.size) if isinstance(image, Image.Image) else (image.dtype.str, image.shape)
            yield repr(kind).encode()
            yield image.tobytes()
        if self.labels is not None:
            yield "\0".join(map(str, self.labels.tolist())).encode()


class _Arrays(StackedImages):
    """Images of an array in memory."""

    kind = "npy"

    def __init__(self, array: npt.NDArray[Any], held: HeldImages):
        self.name = self.label = str(held.origin)
        self._array_in_memory, self._held = array, held
        self._check(Header(array.shape, array.dtype, by_columns=False))

    def fingerprint(self) -> dict[str, Any]:
        return self._held.fingerprint()

    @property
    def places(self) -> list[int]:
        """Indices of the images, which are all that there are."""
        return list(range(self.count))

    def called(self, index: int) -> str:
        return str(index)

    def _values(self, rows: int) -> Iterator[npt.NDArray[Any]]:
        for start in range(0, self.count, rows):
            yield np.ascontiguousarray(self._array_in_memory[start : start + rows])


class _Pictures(ImageFolder):
    """Images of Pillow in memory."""

    def __init__(self, held: HeldImages, reading: Reading, *, skip_bad: bool, black_and_white: int):
        self.name = self.label = str(held.origin)
        self._held, self._reading, self._journal = held, reading, nullcontext
        files = [Member(str(index), held.label(index), _no_file) for index in range(len(held))]
        self._levels = self._found_levels(files, skip_bad, black_and_white)

    @property
    def places(self) -> list[int]:
        """Indices of the images that could be read."""
        return [int(file.name) for file in self._files]

    def fingerprint(self) -> dict[str, Any]:
        return self._held.fingerprint()

    def _pixels(self, file: Member, journal: Journal | None) -> tuple[Pixels, str]:
        return self._held.pixels(int(file.name), self._reading)


def _no_file() -> Any:
    raise AssertionError("an image in memory has no file")
