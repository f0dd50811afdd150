"""Rows of symbols to look at: of a run's own text, or of a file."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from chainrule.data import padded
from chainrule_app.readers.text import name_of, read_lines, read_text

if TYPE_CHECKING:
    from chainrule.data import Tokens, Vocabulary
    from chainrule_app.readers.store import Ids
    from chainrule_app.tasks.text.task import TextTask

_MOST_LINES = 1 << 16
Window = tuple[Tensor, Tensor | None]


def own_window(run: "TextTask", rows: int, steps: int) -> tuple[Tensor, Tensor | None, str]:
    """Return held-out symbols (B, T), the lengths of lines, and the part's name: a stream too short uses its training
    part.
    """
    corpus = run.corpus()
    if corpus.reading == "lines":
        return *_lines_window(_lines(corpus.valid), rows, steps, str(run.path)), "held-out"
    tokens, part = (corpus.valid, "held-out") if len(corpus.valid) >= rows * steps else (corpus.train, "training")
    return *_stream_window(tokens.slice(0, min(rows * steps, len(tokens))), rows, steps, str(run.path)), part


def file_window(vocabulary: "Vocabulary", reading: str, file: str, rows: int, steps: int) -> Window:
    """Return the first rows of a file, and their lengths; `-` is standard input."""
    strict = not vocabulary.reads_any_bytes
    name = name_of(file)
    if reading == "lines":
        with closing(read_lines(file, strict=strict)) as lines:
            return _lines_window((vocabulary.encode(line + "\n") for _, line in lines), rows, steps, name)
    with closing(read_text(file, strict=strict)) as chunks:
        ids = _beginning(vocabulary.encode_chunks(chunks), rows * steps)
    return _stream_window(ids, rows, steps, name)


def _stream_window(ids: "Ids", rows: int, steps: int, name: str) -> Window:
    """Cut a text into equal consecutive rows; a short text gives fewer, then shorter ones."""
    if len(ids) < 2:
        raise ValueError(f"{name}: {_too_short(len(ids))}")
    rows = min(rows, -(-len(ids) // steps))
    width = min(steps, len(ids) // rows)
    return torch.from_numpy(ids[: rows * width].copy()).view(rows, width), None


def _lines_window(lines: "Iterable[Ids]", rows: int, steps: int, name: str) -> Window:
    """Take the first lines of two symbols or more, cut to `steps`."""
    chosen_lines = list(islice((line[:steps] for line in islice(lines, _MOST_LINES) if len(line) > 1), rows))
    if not chosen_lines:
        raise ValueError(f"{name}: {_too_short(1)} in every line")
    lengths = [len(line) for line in chosen_lines]
    return padded(chosen_lines, max(lengths)), torch.tensor(lengths)


def _lines(tokens: "Tokens") -> "Iterator[Ids]":
    starts, stops = tokens.line_bounds(np.arange(min(tokens.line_count, _MOST_LINES)))
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        yield tokens.slice(start, stop)


def _beginning(parts: "Iterable[Ids]", count: int) -> "Ids":
    held: list[Ids] = []
    for part in parts:
        held.append(part)
        count -= len(part)
        if count <= 0:
            break
    ids = np.concatenate([np.zeros(0, dtype=np.int64), *held])
    return ids[: len(ids) + min(count, 0)]


def _too_short(count: int) -> str:
    return f"expected at least two symbols, got {count or 'an empty text'}"
