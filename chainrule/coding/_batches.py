"""Coding of many rows in batches of equal size."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel, Context
from chainrule._executor import Step
from chainrule.coding._range_coder import Numbers, RangeCoder, RangeDecoder, RangeEncoder, Rows
from chainrule.heads._adapter import head_of
from chainrule.modes import evaluating, in_evaluation

Progress = Callable[[int], None]


def nothing(_: int) -> None:
    """Ignore progress."""


@dataclass(frozen=True)
class CodedBatch:
    """Rows that are coded side by side."""

    x: Tensor | None  # (B, T), or in the layout of the model's `forward`; `None` to decode
    lengths: npt.NDArray[np.int64] | None = None  # (B,) elements of each row, 0 for an absent row
    context: Context = None  # context of the rows


@dataclass(frozen=True)
class RowLayout:
    """Layout of data as batches of rows.

    >>> from chainrule.models import RecurrentLM
    >>> model, x = RecurrentLM(vocab_size=3, hidden_size=4), torch.tensor([[0, 1, 2], [2, 1, 0], [1, 1, 1]])
    >>> data = RowLayout.of(3, 3, x, most=2).encode(model)
    >>> [part.tolist() for part in RowLayout.of(3, 3, most=2).decode(model, data)]
    [[[0, 1, 2], [2, 1, 0]], [[1, 1, 1], [0, 0, 0]]]
    """

    rows: int  # number of rows B in every batch
    length: int  # maximum number of elements T in a row
    batches: Sequence[CodedBatch]  # batches of rows
    eos: int | None = None  # symbol that ends its row

    @classmethod
    def of(cls, count: int, length: int, x: Tensor | None = None, *, most: int) -> "RowLayout":
        """Arrange `count` rows of `length` elements, such as images, in batches of at most `most` rows."""
        rows = min(count, most)
        batches = []
        for start in range(0, count, rows):
            present = min(rows, count - start)
            part = None if x is None else x[start : start + present]
            if part is not None and present < rows:
                part = torch.cat([part, part[:1].expand(rows - present, *part.shape[1:])])
            batches.append(CodedBatch(part, np.where(np.arange(rows) < present, length, 0)))
        return cls(rows, length, batches)

    def encode(self, model: AutoregressiveModel, progress: Progress = nothing) -> bytes:
        """Encode the rows."""
        writer = RangeEncoder()
        self._code(model, writer, progress)
        return writer.finish()

    def decode(self, model: AutoregressiveModel, data: bytes, progress: Progress = nothing) -> list[Tensor]:
        """Decode the elements of each batch in the layout of `x`; rows that are absent have symbol 0."""
        return self._code(model, RangeDecoder(data), progress)

    def arithmetic_digest(self, model: AutoregressiveModel) -> str:
        """Hash the exact probabilities of the first elements of fixed sequences to 8 hexadecimal digits.

        Machines with equal digests round alike in this model at this batch size, as far as a few thousand numbers show.
        """
        return arithmetic_digest(model, self.rows, self.length, self.batches[0].context)

    def _code(self, model: AutoregressiveModel, coder: RangeCoder, progress: Progress) -> list[Tensor]:
        with evaluating(model), torch.no_grad():
            step = model.prepare().step  # prepared once for all batches
        settings: dict[str, Any] = {"eos": self.eos, "progress": progress, "step": step}
        return [
            model.from_sequence(
                code_rows(
                    model,
                    coder,
                    self.rows,
                    self.length,
                    None if batch.x is None else model.to_sequence(batch.x),
                    batch.context,
                    lengths=batch.lengths,
                    **settings,
                )
            )
            for batch in self.batches
        ]


@in_evaluation
@torch.no_grad()
def code_rows(
    model: AutoregressiveModel,
    coder: RangeCoder,
    rows: int,
    length: int,
    sequence: Tensor | None = None,
    context: Context = None,
    *,
    lengths: npt.NDArray[np.int64] | None = None,
    eos: int | None = None,
    progress: Progress = nothing,
    step: Step | None = None,
) -> Tensor:
    r"""Encode sequences, or decode them; one loop for both ensures the same probabilities, bit for bit.

    `rows` must be equal on both sides, because products of larger batches round differently. `sequence` is (B, T, ...)
    in visiting order, `None` to decode. Returns (B, T, ...), or with `eos` the length of the longest row; symbol 0
    after a row's end.

    .. math:: \text{bits} = \sum_t -\log_2 p(x_t \mid x_{<t}, c)
    """
    step, state = step or model.prepare().step, model.initial_state(rows, context)
    going = np.ones(rows, dtype=np.bool_)
    elements: list[Tensor] = []
    for t in range(length):
        if lengths is not None:
            going &= lengths > t
        if not going.any():
            break
        coder.active = None if going.all() else going
        conditional, state = step(elements[-1] if elements else None, state)
        elements.append(head_of(conditional).code(coder, None if sequence is None else sequence[:, t]))
        progress(int(going.sum()))
        if eos is not None:
            going &= (elements[-1] != eos).cpu().numpy()
    return torch.stack(elements, 1)


PROBED = 6  # elements of each row in the fingerprint


def arithmetic_digest(model: AutoregressiveModel, rows: int, length: int, context: Context = None) -> str:
    """Return `RowLayout.arithmetic_digest` for rows of a length."""
    probe = _Probe()
    code_rows(model, probe, rows, min(length, PROBED), context=context)
    return probe.digest.hexdigest()[:8]


class _Probe(RangeCoder):
    """Coder that hashes probabilities and chooses fixed symbols."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.calls = 0

    def choose(self, probabilities: Numbers, symbols: Rows | None) -> Rows:
        self.digest.update(probabilities.tobytes())
        self.calls += 1
        return (np.arange(len(probabilities)) * 7 + self.calls * 13) % probabilities.shape[1]
