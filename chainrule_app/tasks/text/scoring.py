"""How surprising a text is to a model: -log p of every symbol, exactly, for texts of any size.

A model that was trained on one continuous stream reads the file as one, encoded as for training: every symbol is scored
given everything before it in the file, so that the nats of the lines add up to the nats of the file, and a line
is surprising *in its place*. A symbol that spans a line end, as pieces of words do, counts for the line in which it
begins. A model that was trained line by line scores each line on its own, its end (`<eos>`) included, in any order.

A model whose learned positions end reads a longer text in windows that overlap by half: all symbols but the first are
scored given at least half a window before them.

With a `DynamicEvaluator` its copy of the model learns what it has scored; lines are then read in the order of the file.
"""

import re
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from chainrule.data import Vocabulary
from chainrule.modes import device_of
from chainrule.training import DynamicEvaluator
from chainrule_app.readers.origin import ByteSource, read_chunks
from chainrule_app.readers.sources import decode_chunks, with_line_feeds
from chainrule_app.readers.store import Ids
from chainrule_app.readers.text import name_of, open_bytes
from chainrule_app.tasks.text.surprise import Numbers, Reader, measure, measure_stream

_PIECE_BYTES = 1 << 18  # read at a time; a longer line comes in pieces
_LOGITS = 1 << 23  # numbers in a table of scores (B, T, V): bounds memory
_POOL_SYMBOLS = 1 << 18  # of lines, scored together where they are of similar length
_STREAM_SYMBOLS = 1 << 20  # of a stream, read in rows side by side: each is read from some symbols before it
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True)
class Scored:
    """Line, or a piece of a very long one."""

    line: int
    text: str  # as in the file, including its line end
    ids: Ids
    nats: Numbers  # (T,) -log p of each symbol
    excess: Numbers | None = None  # (T,) what the nats exceed their expectation by, where that was asked for


Pool = list[tuple[int, str, Ids]]
"""Lines with their numbers and symbols."""


def read_stream(path: str | ByteSource, *, strict: bool) -> Generator[str, None, None]:
    """Read a file (`-`: standard input) in pieces of text."""
    with open_bytes(path) as file:
        chunks = read_chunks(file, size=_PIECE_BYTES)
        yield from decode_chunks(with_line_feeds(chunks) if strict else chunks, name=name_of(path), strict=strict)


def read_pieces(path: str | ByteSource, *, strict: bool) -> Generator[tuple[int, str], None, None]:
    """Read the lines of a file (`-`: standard input) with their numbers, very long ones in several pieces."""
    line = 1
    with open_bytes(path) as file:
        chunks = iter(partial(file.readline, _PIECE_BYTES), b"")
        chunks = with_line_feeds(chunks) if strict else chunks
        for piece in decode_chunks(chunks, name=name_of(path), strict=strict):
            for part in _LINE.findall(piece):
                yield line, part
                line += part.endswith("\n")


def score_stream(
    reader: Reader, vocabulary: Vocabulary, chunks: Iterable[str], evaluator: DynamicEvaluator | None = None
) -> Iterator[Scored]:
    """Score a text as one stream in constant memory; an `evaluator` scores and learns instead of the model."""
    chunk = max(16, 4 * _LOGITS // len(vocabulary))  # of rows side by side, too few symbols of each would cost time
    model = reader.model
    state, previous, count = model.initial_state(1), None, 0
    for pool in _pools(_line_parts(vocabulary, chunks), _STREAM_SYMBOLS if evaluator is None else min(chunk, 2048)):
        ids = torch.from_numpy(np.concatenate([ids for _, _, ids in pool])).unsqueeze(0).to(device_of(model))
        if not ids.numel():
            yield from _split(pool, np.zeros(0), None)
        elif evaluator is None:
            count = count or ids.numel()  # as many as the first ones will follow, or fewer
            surprise, state, previous = measure_stream(reader, ids, state, previous, count=count, most=chunk)
            nats, excess = surprise.numbers()
            yield from _split(pool, nats[0], None if excess is None else excess[0])
        else:
            yield from _split(pool, evaluator.read(ids).cpu().double().numpy()[0], None)


def score_lines(
    reader: Reader, vocabulary: Vocabulary, lines: Iterable[tuple[int, str]], evaluator: DynamicEvaluator | None = None
) -> Iterator[Scored]:
    """Score each line independently; an `evaluator` scores and learns instead of the model."""
    if evaluator is not None:
        yield from _adapt(evaluator, ((line, text, vocabulary.encode(text)) for line, text in lines))
        return
    for pool in line_pools(vocabulary, lines):
        yield from score_pool(reader, vocabulary, pool)


def line_pools(vocabulary: Vocabulary, lines: Iterable[tuple[int, str]]) -> Iterator[Pool]:
    """Encode lines, and group them in their order, so that those of similar length can be scored together."""
    return _pools(((line, text, vocabulary.encode(text)) for line, text in lines), _POOL_SYMBOLS)


def score_pool(reader: Reader, vocabulary: Vocabulary, pool: Pool) -> list[Scored]:
    """Score the lines of a pool, those of similar length together."""
    model, count = reader.model, sum(len(ids) for _, _, ids in pool)
    order = sorted((index for index in range(len(pool)) if len(pool[index][2])), key=lambda index: len(pool[index][2]))
    found: dict[int, tuple[Numbers, Numbers | None]] = dict.fromkeys(range(len(pool)), (np.zeros(0), None))
    while order:
        longest = len(pool[order[-1]][2])
        most = max(1, min(256, _LOGITS // (len(vocabulary) * min(longest, 256))))
        # A row less than half as long would be padding more than symbols.
        rows = [index for index in order[-most:] if 2 * len(pool[index][2]) >= longest]
        del order[-len(rows) :]
        ids = torch.zeros(len(rows), longest, dtype=torch.int64)
        for row, index in enumerate(rows):
            ids[row, : len(pool[index][2])] = torch.from_numpy(pool[index][2])
        state = model.initial_state(len(rows))
        nats, excess = measure(reader, ids.to(device_of(model)), state, None, count=count)[0].numbers()
        for row, index in enumerate(rows):
            real = slice(len(pool[index][2]))
            found[index] = nats[row, real], None if excess is None else excess[row, real]
    return [Scored(*pool[index], *found[index]) for index in range(len(pool))]


def _adapt(evaluator: DynamicEvaluator, lines: Iterator[tuple[int, str, Ids]]) -> Iterator[Scored]:
    """Score some short lines or a long one at a time, and learn them before the next."""
    for pool in _pools(lines, evaluator.chunk_length, even=True):
        lengths = torch.tensor([len(ids) for _, _, ids in pool])
        rows = [torch.from_numpy(ids) for _, _, ids in pool]
        x = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        nats = np.zeros(x.shape)
        if x.numel():
            nats = evaluator.read_rows(x.to(evaluator.device), lengths.to(evaluator.device)).cpu().double().numpy()
        yield from (Scored(*part, nats[row, : len(part[2])]) for row, part in enumerate(pool))


def _pools(lines: Iterator[tuple[int, str, Ids]], size: int, *, even: bool = False) -> Iterator[Pool]:
    """Group lines in order, about `size` symbols each; `even` limits padding to half of a batch."""
    pool: Pool = []
    held = longest = 0
    for line in lines:
        length = len(line[2])
        if pool and even and (len(pool) + 1) * max(longest, length) > 2 * (held + length):
            yield pool
            pool, held, longest = [], 0, 0
        pool.append(line)
        held, longest = held + length, max(longest, length)
        if held >= size:
            yield pool
            pool, held, longest = [], 0, 0
    if pool:
        yield pool


def _split(pool: Pool, nats: Numbers, excess: Numbers | None) -> Iterator[Scored]:
    ends = np.cumsum([len(ids) for _, _, ids in pool])
    for (line, text, ids), end in zip(pool, ends, strict=True):
        own = slice(end - len(ids), end)
        yield Scored(line, text, ids, nats[own], None if excess is None else excess[own])


def _line_parts(vocabulary: Vocabulary, chunks: Iterable[str]) -> Iterator[tuple[int, str, Ids]]:
    """Yield the parts of each line by chunk: the text, and the symbols that begin in it."""
    first = 1
    for text in vocabulary.cut(chunks):
        ids, lines = vocabulary.encode_with_lines(text)
        parts = _LINE.findall(text)
        bounds = np.searchsorted(lines, np.arange(len(parts) + 1))
        for line, part in enumerate(parts):
            yield first + line, part, ids[bounds[line] : bounds[line + 1]]
        first += text.count("\n")


def whole_lines(pieces: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Join the pieces of each line, and end the last line."""
    held: list[str] = []
    line = 0
    for line, piece in pieces:
        held.append(piece)
        if piece.endswith("\n"):
            yield line, "".join(held)
            held = []
    if held:
        yield line, "".join(held) + "\n"


def ended_lines(text: str) -> Iterator[str]:
    """Split a text into lines, each with its end.

    >>> list(ended_lines("a")), list(ended_lines("a\\n\\nb\\n"))
    (['a\\n'], ['a\\n', '\\n', 'b\\n'])
    """
    return (f"{line}\n" for line in text.removesuffix("\n").split("\n"))
