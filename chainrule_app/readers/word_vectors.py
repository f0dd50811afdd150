"""Pretrained vectors of words, in the text format of GloVe and word2vec."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule_app.readers.sources import fingerprint
from chainrule_app.readers.store import Store, StoreWriter
from chainrule_app.readers.text import open_bytes, raw_lines

_MOST_SIZE = 1 << 12  # numbers of a vector
_VECTORS, _ROWS = "vectors", "vectors.rows"


@dataclass(frozen=True)
class WordVectors:
    """Vectors of some words of a vocabulary."""

    rows: npt.NDArray[np.int64]  # (N,) numbers of the words, ascending
    vectors: npt.NDArray[np.float32]  # (N, D) float32

    @classmethod
    def load(cls, store: Store, below: int, size: int) -> "WordVectors":
        """Open what `save_vectors` wrote; raises ValueError if it is damaged, or made for other words or sizes."""
        rows = store.array(_ROWS, "i8", below=below)
        return cls(np.array(rows), np.array(store.array(_VECTORS, "f4", (len(rows), size))))


def vector_size(path: str | Path) -> int:
    """Return D, the numbers in each vector of a file."""
    for _, _, numbers in _entries(path):
        return len(numbers)
    raise ValueError(f"{path}: expected words and their vectors, got an empty file")


def read_vectors(path: str | Path, words: Sequence[str]) -> WordVectors:
    """Read the vectors of some words, numbered from 1, in bounded memory; another case serves a missing one."""
    number_of = {word: number for number, word in enumerate(words)}
    exact: dict[int, bool] = {}
    vectors: dict[int, npt.NDArray[np.float32]] = {}
    for line, word, numbers in _entries(path):
        for spelling in dict.fromkeys((word, word.lower())):
            number = number_of.get(spelling)
            if number is None or (number in vectors and (exact[number] or spelling != word)):
                continue
            vectors[number], exact[number] = _parsed(numbers, f"{path} line {line}"), spelling == word
    if not vectors:
        raise ValueError(f"{path}: no word of the training data in it: are the vectors for another language?")
    rows = sorted(vectors)
    return WordVectors(np.array(rows, np.int64) + 1, np.stack([vectors[row] for row in rows]))


def save_vectors(path: str | Path | None, words: Sequence[str], writer: StoreWriter) -> dict[str, Any]:
    """Write the vectors of some words into a prepared folder, if there is a file of them; return facts about it."""
    if path is None:
        return {"vectors": None, "words_without_vector": 0}
    vectors = read_vectors(path, words)
    writer.array(_VECTORS, vectors.vectors)
    writer.array(_ROWS, vectors.rows)
    return {"vectors": fingerprint(path), "words_without_vector": len(words) - len(vectors.rows)}


def _entries(path: str | Path) -> Iterator[tuple[int, str, list[bytes]]]:
    """Yield each line's number, word and numbers; only the first line's numbers are parsed."""
    size = 0
    with open_bytes(path) as file:
        for line, raw in raw_lines(file, str(path)):
            cells = raw.rstrip(b" \r\n\t").split(b"\t" if raw.count(b"\t") > 1 else b" ")
            if not size:
                if len(cells) == 2 and all(cell.isdigit() for cell in cells) and line == 1:
                    continue
                size = len(cells) - 1
                if not 1 < size <= _MOST_SIZE:
                    raise ValueError(
                        f"{path} line {line}: expected a word and from 2 to {_MOST_SIZE:,} numbers, got {size:,}: pass "
                        "vectors as text, not in the binary format of word2vec"
                    )
                _parsed(cells[1:], f"{path} line {line}")
            if len(cells) <= size:
                raise ValueError(f"{path} line {line}: expected a word and {size} numbers, got {len(cells) - 1}")
            try:  # a word may hold blanks
                yield line, b" ".join(cells[:-size]).decode(), cells[-size:]
            except UnicodeDecodeError:
                continue  # a word in another encoding, as some published files have


def _parsed(numbers: list[bytes], where: str) -> npt.NDArray[np.float32]:
    try:
        vector = np.array([float(number) for number in numbers], np.float32)
    except ValueError:
        vector = np.full(1, np.nan, np.float32)
    if not np.isfinite(vector).all():
        raise ValueError(
            f"{where}: expected a word and finite numbers, got {b' '.join(numbers)[:60]!r}: pass vectors as text, not "
            "in the binary format of word2vec"
        )
    return vector
