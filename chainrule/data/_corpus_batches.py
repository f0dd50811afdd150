"""Read a corpus in batches: as one stream, B tracks side by side, or by lines, each a sequence that ends in `<eos>`."""

from collections.abc import Iterator

import numpy as np
import torch

from chainrule._ranges import check_batch_size, check_seed
from chainrule.data._batches import Batch, Batches, Shuffled, padded
from chainrule.data._tokens import Tokens
from chainrule.data._vocabulary import Ids
from chainrule.option_error import OptionError, UserError, option


class StreamBatches:
    r"""Chunks of a stream for truncated backpropagation through time, as a pure function of (seed, step).

    The stream of N elements is cut into B tracks of K·T elements. Step k of an epoch reads the k-th chunk of T
    elements of every track, so that the state of each row carries over from step to step:

    .. math:: x_{b,t} = \text{tokens}[o_e + (bK + k)T + t], \quad K = \lfloor (N - T + 1) / BT \rfloor

    Each epoch e begins at another offset :math:`0 \le o_e \le N - BKT`, so that chunk boundaries differ from epoch to
    epoch, and reads each of B·K·T elements once. There is no state to save: to resume is to ask for the next step.

    Args:
        tokens: the corpus.
        batch_size: the number of tracks B, over all processes.
        chunk_length: T.
        seed: at least 0.
        shard: (rank, number of processes): this one gets the rows rank, rank + processes, ...
        carry: whether a chunk continues from the state after the one before; without it each chunk begins anew.
            Models with learned positions need that: they cannot read past their last position.

    Raises:
        ValueError: the corpus has fewer than B·T + T − 1 elements.
    """

    def __init__(
        self,
        tokens: Tokens,
        batch_size: int,
        chunk_length: int,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
        *,
        carry: bool = True,
    ) -> None:
        check_batch_size(batch_size, shard)
        check_seed(seed)
        if chunk_length < 1:
            raise OptionError("chunk_length", f"expected at least 1, got {chunk_length}")
        needed = batch_size * chunk_length + chunk_length - 1
        if len(tokens) < needed:
            raise UserError(
                f"the text: expected at least {needed:,} symbols for {batch_size} rows of chunks of {chunk_length:,}, "
                f"got {len(tokens):,}",
                f"lower {option('batch_size')} or {option('chunk_length')}, or give more text",
            )
        self.tokens, self.batch_size, self.chunk_length, self.seed = tokens, batch_size, chunk_length, seed
        self.carry = carry
        self.steps_per_epoch = (len(tokens) - chunk_length + 1) // (batch_size * chunk_length)
        self._tracks = np.arange(shard[0], batch_size, shard[1]) * (self.steps_per_epoch * chunk_length)

    def offset(self, epoch: int) -> int:
        """Start of the first track of an epoch."""
        slack = len(self.tokens) - self.steps_per_epoch * self.batch_size * self.chunk_length
        return int(np.random.default_rng([self.seed, epoch]).integers(slack + 1))

    def at(self, step: int) -> Batch:
        """Return the batch of a step, counted from 0 over all epochs."""
        epoch, chunk = divmod(step, self.steps_per_epoch)
        starts = self._tracks + (self.offset(epoch) + chunk * self.chunk_length)
        return _chunk(self.tokens, starts, self.chunk_length, first=chunk == 0 or not self.carry)

    @staticmethod
    def evaluation(tokens: Tokens, batch_size: int, chunk_length: int, *, carry: bool = True) -> Iterator[Batch]:
        """Read every element of a stream exactly once, in order within each of at most `batch_size` tracks.

        The state is reset at each track, so fewer tracks give each element a longer past: one track is the chain rule
        over the whole text. A short text gets fewer tracks, each at least one chunk long. Elements that do not divide
        by the number of tracks (fewer than `batch_size`) come last, in a batch of one row. Without `carry` the state
        is reset at each chunk, too.

        Raises:
            ValueError: there is no element to read, or an argument is below 1.
        """
        check_batch_size(batch_size, (0, 1))
        if chunk_length < 1:
            raise OptionError("chunk_length", f"expected at least 1, got {chunk_length}")
        if not len(tokens):
            raise ValueError("tokens: expected at least one element to evaluate, got none")
        return _stream_evaluation(tokens, max(min(batch_size, len(tokens) // chunk_length), 1), chunk_length, carry)


def _stream_evaluation(tokens: Tokens, rows: int, chunk_length: int, carry: bool) -> Iterator[Batch]:
    length, rest = divmod(len(tokens), rows)
    tracks = np.arange(rows) * length
    for begin in range(0, length, chunk_length):
        yield _chunk(tokens, tracks + begin, min(chunk_length, length - begin), first=begin == 0 or not carry)
    if rest:
        yield _chunk(tokens, np.array([rows * length]), rest, first=True)


def _chunk(tokens: Tokens, starts: Ids, length: int, *, first: bool) -> Batch:
    """Elements [start, start + length) of each row, and the one before where the stream goes on."""
    back = 0 if first else 1
    rows = torch.from_numpy(np.stack(tokens.rows(starts - back, starts + length)).astype(np.int64))
    return Batch(rows[:, back:], previous=None if first else rows[:, 0], fresh=first)


_BATCHES_IN_POOL = 128
_LINES_AT_ONCE = 1 << 16


class LineBatches(Batches):
    """Lines in random order, sorted so that rows of a batch have similar lengths, as a pure function of (seed, step).

    An epoch shuffles the lines, takes them by pools of 128 batches, sorts each pool by length, cuts it into batches and
    shuffles those. It reads every line once, but for the last (number of lines mod B), other lines in each epoch.

    Args:
        tokens: a corpus prepared with reading="lines".
        batch_size: the number of lines B, over all processes.
        max_length: longer lines are cut to this many elements, and lose their `<eos>`; `cut_lines` counts them.
        seed: at least 0.
        shard: (rank, number of processes): this one gets the rows rank, rank + processes, ...

    Raises:
        ValueError: the corpus is no corpus of lines, or has fewer than B.
    """

    def __init__(
        self, tokens: Tokens, batch_size: int, max_length: int, seed: int = 0, shard: tuple[int, int] = (0, 1)
    ) -> None:
        check_lines(tokens, batch_size)
        if max_length < 1:
            raise ValueError(f"max_length: expected at least 1, got {max_length}")
        lengths = np.concatenate([stops - starts for starts, stops in _all_bounds(tokens)])
        self.cut_lines = int((lengths > max_length).sum())
        sort, (rank, world) = Shuffled.by_length(np.minimum(lengths, max_length)), shard
        order = Shuffled(len(lengths), batch_size, seed, shard, name="lines", sort=sort, pool=_BATCHES_IN_POOL)
        super().__init__(order, lambda _, lines: _lines(tokens, lines, max_length, slice(rank, None, world)))

    @staticmethod
    def evaluation(tokens: Tokens, batch_size: int, *, max_elements: int = 1 << 16) -> Iterator[Batch]:
        """Read every line exactly once, whole and in order; long lines make smaller batches, one of a line at least."""
        check_batch_size(batch_size, (0, 1))
        check_lines(tokens, 1)
        return _line_evaluation(tokens, batch_size, max_elements)


def _line_evaluation(tokens: Tokens, batch_size: int, max_elements: int) -> Iterator[Batch]:
    first, rows, longest = 0, 0, 0
    for starts, stops in _all_bounds(tokens):
        for length in (stops - starts).tolist():
            if rows == batch_size or (rows and (rows + 1) * max(longest, length) > max_elements):
                yield _lines(tokens, np.arange(first, first + rows))
                first, rows, longest = first + rows, 0, 0
            rows, longest = rows + 1, max(longest, length)
    yield _lines(tokens, np.arange(first, first + rows))


def check_lines(tokens: Tokens, needed: int) -> None:
    """`ValueError` unless there are at least `needed` lines."""
    if not tokens.line_count:
        raise ValueError("corpus: expected one of lines, got one stream: prepare it with reading='lines'")
    if tokens.line_count < needed:
        raise UserError(
            f"corpus: expected at least {needed} lines for one batch, got {tokens.line_count}",
            f"lower {option('batch_size')}, or give more text",
        )


def _all_bounds(tokens: Tokens) -> Iterator[tuple[Ids, Ids]]:
    for first in range(0, tokens.line_count, _LINES_AT_ONCE):
        yield tokens.line_bounds(np.arange(first, min(first + _LINES_AT_ONCE, tokens.line_count)))


def _lines(tokens: Tokens, lines: Ids, max_length: int | None = None, shard: slice = slice(None)) -> Batch:
    """Rows of the batch of `lines` that `shard` names, padded with 0 to the longest of all rows."""
    starts, stops = tokens.line_bounds(lines)
    if max_length is not None:
        stops = np.minimum(stops, starts + max_length)
    width = int((stops - starts).max())
    return Batch(padded(tokens.rows(starts[shard], stops[shard]), width), torch.from_numpy((stops - starts)[shard]))
