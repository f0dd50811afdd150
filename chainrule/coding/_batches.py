"""Many rows in batches of one size, written to a few range coders: how a task lays out its data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel, Context
from chainrule._modes import evaluating
from chainrule.coding._lockstep import Progress, code_rows, nothing
from chainrule.coding._range_coder import RangeCoder, RangeDecoder, RangeEncoder, Rows


@dataclass(frozen=True)
class CodedBatch:
    """Rows that are coded side by side.

    Args:
        x: (B, T), or laid out as the model's `forward` reads it; `None` to read them.
        lengths: (B,) elements of each row, 0 for a row that is not there.
        context: their condition.
    """

    x: Tensor | None
    lengths: npt.NDArray[np.int64] | None = None
    context: Context = None


@dataclass(frozen=True)
class Laid:
    """Data as rows of elements.

    Args:
        rows: B, of every batch.
        length: T, the most elements that a row has.
        batches: of the rows.
        coders: how many range coders share the rows: if the part of one is lost, so are its rows.
        eos: a symbol that ends its row.
    """

    rows: int
    length: int
    batches: Sequence[CodedBatch]
    coders: int = 1
    eos: int | None = None

    def groups(self) -> list[Rows]:
        """The numbers of the rows of each range coder."""
        return np.array_split(np.arange(self.rows), self.coders)


def lay_rows(count: int, length: int, x: Tensor | None = None, *, most: int, share: int = 1 << 16) -> Laid:
    """Lay out N independent rows of T elements each, such as images or the rows of a table.

    Args:
        count: N.
        length: T.
        x: (N, ...); `None` to read them.
        most: the most rows of a batch.
        share: about so many elements share a range coder.
    """
    rows = min(count, most)
    batches = []
    for start in range(0, count, rows):
        there = min(rows, count - start)
        part = None if x is None else x[start : start + there]
        if part is not None and there < rows:
            part = torch.cat([part, part[:1].expand(rows - there, *part.shape[1:])])
        batches.append(CodedBatch(part, np.where(np.arange(rows) < there, length, 0)))
    return Laid(rows, length, batches, coders=min(max(count * length // share, 1), rows))


def write_batches(model: AutoregressiveModel, laid: Laid, progress: Progress = nothing) -> list[bytes]:
    """The coded rows, a part for each range coder."""
    writer = RangeEncoder(laid.groups())
    _code(model, writer, laid, progress)
    return writer.finish()


def read_batches(
    model: AutoregressiveModel, laid: Laid, parts: Sequence[bytes | None], progress: Progress = nothing
) -> list[Tensor]:
    """The elements of each batch, laid out as its `x`, from the parts; symbol 0 in the rows of a part that is `None`.

    Raises:
        DamagedError: a part is not what was written.
    """
    return _code(model, RangeDecoder(laid.groups(), parts), laid, progress)


def _code(model: AutoregressiveModel, coder: RangeCoder, laid: Laid, progress: Progress) -> list[Tensor]:
    with evaluating(model), torch.no_grad():
        step = model.prepare().step  # prepared once
    settings: dict[str, Any] = {"eos": laid.eos, "progress": progress, "step": step}
    return [
        model.from_sequence(
            code_rows(
                model,
                coder,
                laid.rows,
                laid.length,
                None if batch.x is None else model.to_sequence(batch.x),
                batch.context,
                lengths=batch.lengths,
                **settings,
            )
        )
        for batch in laid.batches
    ]
