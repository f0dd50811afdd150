"""Captions of pictures as a file: a name and a caption in each line."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from chainrule.data.delimited import DelimitedFile

_HEADERS = ("image,caption", "image_name,caption_text")
_NUMBERED = re.compile(r"#\d+$")


@dataclass(frozen=True)
class Caption:
    """A caption of a picture, and the number of its line, from 1."""

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
    file = DelimitedFile(path)
    _, first = next(file.lines(), (1, ""))
    commas = first.strip().lower() in _HEADERS
    rows = islice(file.quoted_rows(","), 1, None) if commas else file.plain_rows("\t")
    for line, cells in rows:
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
