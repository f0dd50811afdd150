"""A folder or archive of image files, labelled by its sub-folders, or one file."""

import io
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from chainrule.option_error import UserError, option, raw_text
from chainrule_app.printing import listed
from chainrule_app.readers.images.source import ImageLabels, ImageSource, Pixels, spread_over
from chainrule_app.readers.journal import Journal, digest_of
from chainrule_app.readers.members import LARGEST, FileSet, Member, Members, split_of, ways_of
from chainrule_app.readers.sources import IMAGES

# Pillow looks at the content, not at the name, and would start Ghostscript on PostScript that is named 0.png.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
Colour = Literal["grey", "rgb"]
Fit = Literal["crop", "pad", "stretch"]
_DEEP = ("I;16", "I;16B", "I;16L", "I;16N", "I")  # grey of 16 bits, as Pillow may call it
_MOST_PIXELS = 1 << 26  # of an image file
_BYTE = 257  # values of 16 bits to one of 8
_SAID = {
    "1": "black and white",
    "L": "grey",
    "RGB": "colours",
    "P": "a palette with transparency",
    "RGBA": "colours and transparency",
    "LA": "grey and transparency",
    "CMYK": "CMYK colours",
    "PA": "a palette and transparency",
    "F": "grey of real numbers",
}
_TRANSPARENT = ("RGBA", "LA", "PA", "P")  # a palette without transparency is read as colours
_SIXTEEN = "grey of 16 bits"


@dataclass(frozen=True)
class Reading:
    """Conversion of an image file to pixels."""

    # (height, width) to which every image is cut and scaled; `None` where all have one size
    size: tuple[int, int] | None = None
    # mode to convert every image to; `None` where all have one mode. Transparent pixels become white
    colour: Colour | None = None
    # how an image of another shape becomes `size`: "crop" scales it and cuts off what sticks out at two sides, "pad"
    # scales it and adds black bars, "stretch" scales height and width apart
    fit: Fit = "crop"

    def image(self, file: BinaryIO, label: str) -> tuple[Pixels, str]:
        """Return an image (C, H, W) of values up to 255, and its mode: "1" if stored in black and white only."""
        content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise ValueError(f"{label}: larger than {LARGEST >> 20} MiB: scale the image down")
        return self.pixels(io.BytesIO(content), label)

    def pixels(self, content: BinaryIO | Image.Image, label: str) -> tuple[Pixels, str]:
        """Return the pixels of the content of a file, or of an image of Pillow, and the mode, as `image` does."""
        image, mode = _in_known_mode(_opened(content, label), label)
        image = self._in_colour(image, mode)
        if image.mode not in ("L", "RGB"):
            in_training = self.colour is None and mode != "F"
            raise UserError(
                f"{label}: {_SAID.get(mode, mode)}: expected grey or RGB of 8 bits",
                "convert it" + (f" (in training, {option('colour', 'rgb')} does it)" if in_training else ""),
            )
        if self.size is not None:
            height, width = self.size
            image = _FITS[self.fit](image, (width, height), Image.Resampling.LANCZOS)
        pixels = np.asarray(image, np.uint8)
        return (pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))), mode

    def _in_colour(self, image: Image.Image, mode: str) -> Image.Image:
        wanted = "L" if self.colour == "grey" else "RGB"
        if self.colour is not None and mode in _TRANSPARENT:
            image = image.convert("RGBA")
            return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert(wanted)
        if self.colour is not None and mode != "F":
            return image.convert(wanted)
        return image.convert("L") if mode == "1" else image


def _opened(content: BinaryIO | Image.Image, label: str) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if isinstance(content, Image.Image):
                frames = _loaded(content)
                image = ImageOps.exif_transpose(content)  # a copy: its owner keeps it as it is
            else:
                with Image.open(content, formats=FORMATS) as file:
                    frames = _loaded(file)
                    ImageOps.exif_transpose(file, in_place=True)  # which copies nothing where it need not turn
                    image = file
    except Exception as error:  # what a damaged file makes a decoder raise is anyone's guess
        formats = ", ".join(FORMATS)
        reason = f"not one of the formats {formats}" if isinstance(error, UnidentifiedImageError) else error
        raise BadImageError(f"{label}: cannot be read ({reason})") from None
    if frames > 1:
        raise ValueError(f"{label}: holds {frames} images, as an animation does: save each to its own file")
    return image


def _loaded(image: Image.Image) -> int:
    """Decode an image, and return how many frames its file has."""
    if image.width * image.height > _MOST_PIXELS:  # of four bytes each, and copied
        raise ValueError(f"{image.width * image.height:,} pixels, more than {_MOST_PIXELS:,}")
    image.load()
    return int(getattr(image, "n_frames", 1))


def _in_known_mode(image: Image.Image, label: str) -> tuple[Image.Image, str]:
    """Return an image and its mode: transparency becomes an alpha mode, other palettes RGB, and 16 bits 8."""
    mode = image.mode
    if mode in _DEEP:
        return _eight_bits(image, label), _SIXTEEN
    if mode in ("1", "L", "RGB") and "transparency" in image.info:
        mode = "RGBA" if mode == "RGB" else "LA"
        return image.convert(mode), mode
    if mode == "P" and "transparency" not in image.info:
        return image.convert("RGB"), "RGB"
    return image, mode


def _eight_bits(image: Image.Image, label: str) -> Image.Image:
    values = np.asarray(image)
    if values.min() < 0 or values.max() >= 1 << 16:
        raise ValueError(f"{label}: 32-bit grey is not supported: convert it to 8 or 16 bits")
    whole, rest = np.divmod(values.astype(np.uint16), _BYTE)  # no wider: an image may have 89 million pixels
    return Image.fromarray((whole + (rest > _BYTE // 2)).astype(np.uint8))


_FITS: dict[Fit, Callable[..., Image.Image]] = {
    "crop": ImageOps.fit,
    "pad": ImageOps.pad,
    "stretch": Image.Image.resize,
}


class BadImageError(ValueError):
    """A file that should be an image and cannot be read as one."""


JournalOf = Callable[[], AbstractContextManager[Journal | None]]  # opens the journal of some images, if there is one


def decoded(file: Member, reading: Reading, journal: Journal | None) -> tuple[Pixels, str]:
    """Return the pixels of an image file and its mode, as `Reading.image` does, from the journal if it has them."""
    with file.open() as content:
        if journal is None:
            return reading.image(content, file.label)
        raw = content.read(LARGEST + 1)

    def answer() -> Iterator[bytes]:
        pixels, mode = reading.image(io.BytesIO(raw), file.label)
        yield json.dumps([mode, *pixels.shape]).encode() + b"\n" + pixels.tobytes()

    (known,) = journal.several(digest_of(raw), answer)
    head, _, values = known.partition(b"\n")
    mode, *shape = json.loads(head)
    return np.frombuffer(values, np.uint8).reshape(shape), mode


class ImageFolder(ImageSource):
    """The image files of a folder or archive and its sub-folders, by name; each is looked at before anything else."""

    kind = "folder"

    def __init__(
        self,
        source: Path | FileSet,  # the folder, a .zip or .tar file, an image file, or several files
        *,
        labelled: bool | None = None,  # whether the sub-folders are labels; None looks
        reading: Reading | None = None,  # how files become pixels
        skip_bad: bool = False,  # leave out unreadable files instead of raising an error
        black_and_white: int = 2,  # levels of images stored in black and white alone: 0 and the highest
        part: str | None = None,  # "train" or "valid", where folders are so called; None takes all
        journal: JournalOf = nullcontext,  # what was decoded before, where the images are prepared
    ):
        self._journal = journal
        self._reading, self._members = reading or Reading(), images_in(source)
        path = self._members.path
        self.name, self.label = path.resolve().name, str(path)
        files = sorted(self._members.files, key=lambda file: file.name.split("/"))
        ways = ways_of(files, archive=path.is_file())
        if split := split_of(ways):
            self.held_out = source if part == "train" and "valid" in split.values() else None
            files = [file for file in files if part is None or split[file.name] == part]
            ways = {file.name: ways[file.name][1:] for file in files}
            self.name += f" ({part})" if part is not None else ""
        parents = _labels_of(files, ways, labelled=labelled, path=path)
        self._levels = self._found_levels(files, skip_bad, black_and_white)
        if parents is not None:
            names = tuple(sorted(set(parents.values())))
            places = {name: index for index, name in enumerate(names)}
            numbers = np.array([places[parents[file.name]] for file in self._files], np.int64)
            self.labels = ImageLabels(numbers, names)

    def _found_levels(self, files: list[Member], skip_bad: bool, black_and_white: int) -> int:
        with self._journal() as journal:
            mode = self._survey(files, skip_bad, journal)
        return black_and_white if mode == "1" and self._reading == Reading() else 256

    @property
    def levels(self) -> int:
        return self._levels

    def blocks(self) -> Iterator[Pixels]:
        rows = self._rows_of_a_block()
        with self._journal() as journal:
            images = self._images(journal)
            while block := list(islice(images, rows)):
                yield spread_over(np.stack(block), self._levels)

    def _images(self, journal: Journal | None) -> Iterator[Pixels]:
        """Yield the images in the order in which they were looked at, as the journal has them."""
        for file in self._looked_at:
            try:
                yield self._pixels(file, journal)[0]
            except BadImageError:
                if file.name not in self.skipped:
                    raise

    def fingerprint(self) -> dict[str, Any]:
        return self._members.fingerprint()

    def called(self, index: int) -> str:
        return self._files[index].name

    def _pixels(self, file: Member, journal: Journal | None) -> tuple[Pixels, str]:
        return decoded(file, self._reading, journal)

    def _survey(self, files: list[Member], skip_bad: bool, journal: Journal | None) -> str:
        """Look at every file once: which can be read, and whether they agree; return their mode."""
        skipped = []
        readable: list[Member] = []
        first: tuple[Member, str] | None = None
        for file in files:
            try:
                pixels, mode = self._pixels(file, journal)
            except BadImageError as error:
                if skip_bad:
                    skipped.append(file.name)
                    continue
                raise UserError(raw_text(error), f"remove it, or pass {option('skip_bad')}") from None
            if first is None:
                first, (channels, height, width) = (file, mode), pixels.shape
                self.shape = (channels, height, width)
            _same_mode(file, mode, first, self._reading.colour)
            if pixels.shape != self.shape:
                _, height, width = self.shape
                raise UserError(
                    f"{file.label}: {pixels.shape[1]}×{pixels.shape[2]} pixels, but {first[0].label} has "
                    f"{height}×{width}: expected one size (height×width)",
                    f"cut and scale them (in training, {option('size', f'{height}x{width}')} does it)",
                )
            self.deep += mode == _SIXTEEN
            self.transparent += mode in _TRANSPARENT
            readable.append(file)
        if first is None:
            raise ValueError(f"{self.label}: none of the {len(files)} images can be read")
        self._looked_at, self._files, self.count, self.skipped = files, readable, len(readable), tuple(skipped)
        return first[1]


def images_in(path: Path | FileSet) -> Members:
    """Return the image files of a folder or an archive, or of a set of files."""
    return Members(path, IMAGES, "image")


def _same_mode(file: Member, mode: str, first: tuple[Member, str], colour: Colour | None) -> None:
    if colour is None and mode != first[1]:
        raise UserError(
            f"{file.label}: {_SAID.get(mode, mode)}, but {first[0].label} has {_SAID.get(first[1], first[1])}: "
            "expected one mode",
            f"convert them (in training, {option('colour', 'grey')} or {option('colour', 'rgb')} does it)",
        )


def _labels_of(
    files: list[Member], ways: dict[str, list[str]], *, labelled: bool | None, path: Path
) -> dict[str, str] | None:
    """Return the label of each file by its name, where there are labels."""
    if labelled is False:
        return None
    folders = {name: way[0] for name, way in ways.items() if len(way) > 1}
    names = sorted(set(folders.values()))
    if len(folders) == len(files) and (len(names) > 1 or labelled):
        return folders
    if labelled and not folders:
        raise ValueError(f"{path}: expected a sub-folder of images for each label, named after it, got none")
    if labelled or len(names) > 1:
        outside = next(file for file in files if file.name not in folders)
        raise UserError(
            f"{outside.label} is not in a sub-folder ({listed(names, 100)}), whose name is the label",
            "move it into one" + ("" if labelled else f", or pass {option('labels', False)}"),
        )
    return None
