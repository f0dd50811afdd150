"""Captions and the images that they name: a file of both, an archive or folder of images."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from chainrule.data._delimited import DelimitedFile
from chainrule.data._images.folder import Fit, Reading
from chainrule.data._kinds import IMAGES
from chainrule.data._members import Member, Members
from chainrule.data._packed import plain_name
from chainrule.data._text import check_file, open_bytes

_HEADERS = ("image,caption", "image_name,caption_text")
CAPTIONS = (".txt", ".tsv", ".csv", ".json")
_MOST_BYTES = 1 << 28  # of JSON, which is held in memory
_NUMBERED = re.compile(r"#\d+$")


@dataclass(frozen=True)
class Caption:
    """A caption of an image, and the number of its line, from 1."""

    line: int
    image: str
    text: str


def read_captions(path: str | Path) -> Iterator[Caption]:
    """Yield the captions of a file, compressed or not.

    A line is `name.jpg TAB caption`, the name with or without a number (`name.jpg#3`); or, under a header
    `image,caption`, it is `name.jpg,caption`. A .json file is an object with images and annotations, as in COCO.
    Images may have several captions.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "captions.txt"
    ...     _ = file.write_text("a.jpg#0\\ta dog runs\\na.jpg#1\\ta brown dog\\n")
    ...     [(caption.image, caption.text) for caption in read_captions(file)]
    [('a.jpg', 'a dog runs'), ('a.jpg', 'a brown dog')]
    """
    if plain_name(path).endswith(".json"):
        yield from _coco_captions(path)
        return
    file = DelimitedFile(path)
    with closing(file.lines()) as lines:
        _, first = next(lines, (1, ""))
    commas = first.strip().lower() in _HEADERS
    for line, cells in islice(file.quoted_rows(","), 1, None) if commas else file.plain_rows("\t"):
        columns = [cell.strip() for cell in cells]
        if not any(columns):
            continue
        if len(columns) != 2 or not columns[0]:
            expected = "a name, a comma and a caption" if commas else "a name, a tab and a caption"
            raise ValueError(
                f"{path} line {line}: expected {expected}, got {(',' if commas else chr(9)).join(cells)!r:.80}"
            )
        if not columns[1]:
            raise ValueError(f"{path} line {line}: expected a caption of {columns[0]!r:.80}, got none: leave it out")
        yield Caption(line, _NUMBERED.sub("", columns[0]), columns[1])


def _coco_captions(path: str | Path) -> Iterator[Caption]:
    """Yield the captions of COCO's annotations, numbered as the annotations from 1."""
    with open_bytes(check_file(path)) as file:
        raw = file.read(_MOST_BYTES + 1)
    if len(raw) > _MOST_BYTES:
        raise ValueError(f"{path}: expected at most {_MOST_BYTES >> 20} MiB of JSON, got more: write lines instead")
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):
        content = None
    fields = content if isinstance(content, dict) else {}
    images, annotations = fields.get("images"), fields.get("annotations")
    if not isinstance(images, list) or not isinstance(annotations, list):
        raise ValueError(f"{path}: expected JSON with the lists images and annotations, as captions of COCO")
    names = {}
    for number, image in enumerate(images, 1):
        if not isinstance(image, dict) or not isinstance(image.get("file_name"), str):
            raise ValueError(f"{path}: image {number}: expected an object with id and file_name, got {image!r:.80}")
        names[str(image.get("id"))] = image["file_name"]
    for number, annotation in enumerate(annotations, 1):
        fields = annotation if isinstance(annotation, dict) else {}
        text, name = fields.get("caption"), names.get(str(fields.get("image_id")))
        if not isinstance(text, str) or not text.strip() or name is None:
            raise ValueError(
                f"{path}: annotation {number}: expected an object with a caption and the image_id of one of the "
                f"{len(names):,} images, got {annotation!r:.80}"
            )
        yield Caption(number, name, " ".join(text.split()))


def captions_in(images: str | Path) -> Member:
    """Return the file of captions in an archive or a folder of images."""
    try:
        files = Members(images, CAPTIONS, "file of captions").files
    except ValueError:
        files = []
    named = [file for file in files if "caption" in file.name.lower()] or files
    if len(named) != 1:
        listing = ", ".join(file.name for file in named) or "none"
        raise ValueError(f"{images}: expected one file of captions in it, got {listing:.120}: name it with --captions")
    return named[0]


class ImageStore:
    """The images of an archive or a folder, found by the last part of their names.

    Args:
        path: the archive or the folder; see `Members`.
        size: S, every image becomes (S, S).
        fit: how; see `Reading`.
    """

    def __init__(self, path: str | Path, size: int, fit: Fit = "crop"):
        self.path = Path(path)
        self._reading = Reading(size=(size, size), colour="rgb", fit=fit)
        self._members: dict[str, Member] = {}
        for member in Members(path, IMAGES, "image").files:
            other = self._members.setdefault(PurePosixPath(member.name).name, member)
            if other is not member:
                raise ValueError(f"{path}: {other.name} and {member.name}: expected one image of each name")

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def image(self, name: str) -> npt.NDArray[np.uint8]:
        """(3, S, S), values from 0 to 255."""
        with self._members[name].open() as file:
            return self._reading.image(file, self._members[name].label)[0]
