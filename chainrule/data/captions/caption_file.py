"""Captions of pictures as a file: a name and a caption in each line."""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from chainrule.data.pairs.pair_file import read_sentences

_NUMBERED = re.compile(r"#\d+$")


@dataclass(frozen=True)
class Caption:
    """What is said of a picture, and the number of the line it stands in, from 1."""

    line: int
    picture: str
    text: str


def read_captions(path: str | Path) -> Iterator[Caption]:
    """The captions of a file, compressed by gzip or not.

    A line is `name.jpg TAB caption`, the name with or without a number (`name.jpg#3`); or, under a header
    `image,caption`, it is `name.jpg,caption`. Pictures may have several.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is neither, or the file is no UTF-8; the message names file and line.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "captions.txt"
    ...     _ = file.write_text("a.jpg#0\\ta dog runs\\na.jpg#1\\ta brown dog\\n")
    ...     [(caption.picture, caption.text) for caption in read_captions(file)]
    [('a.jpg', 'a dog runs'), ('a.jpg', 'a brown dog')]
    """
    commas = False
    for line, text in read_sentences(path):
        if not text.strip():
            continue
        if line == 1 and text.strip().lower() in ("image,caption", "image_name,caption_text"):
            commas = True
            continue
        columns = next(csv.reader([text])) if commas else text.split("\t")
        if len(columns) != 2 or not columns[0].strip():
            expected = "a name, a comma and a caption" if commas else "a name, a tab and a caption"
            raise ValueError(f"{path} line {line}: expected {expected}, got {text!r:.80}")
        if not columns[1].strip():
            raise ValueError(f"{path} line {line}: expected a caption of {columns[0]!r:.80}, got none: leave it out")
        yield Caption(line, _NUMBERED.sub("", columns[0].strip()), columns[1].strip())
