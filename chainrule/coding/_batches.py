"""Lossless coding of sequences with any model of discrete elements: one, or many rows in batches of equal size."""

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel, Context, Step
from chainrule._modes import device_of, evaluating, in_evaluation
from chainrule.coding._container import (
    MOST_THREADS,
    arithmetic_digest,
    machine,
    model_digest,
    portable_form,
    reproducible,
)
from chainrule.coding._range_coder import DamagedError, RangeCoder, RangeDecoder, RangeEncoder, Rows
from chainrule.heads._adapter import head_of
from chainrule.state import expand, map_state

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
    """Layout of data as batches of rows."""

    rows: int  # number of rows B in every batch
    length: int  # maximum number of elements T in a row
    batches: Sequence[CodedBatch]  # batches of rows
    coders: int = 1  # number of range coders that share the rows: if the part of one is lost, so are its rows
    eos: int | None = None  # symbol that ends its row

    def groups(self) -> list[Rows]:
        """Return the row indices of each range coder."""
        return np.array_split(np.arange(self.rows), self.coders)


def layout_rows(count: int, length: int, x: Tensor | None = None, *, most: int, share: int = 1 << 16) -> RowLayout:
    """Arrange `count` rows of `length` elements, such as images, in batches; about `share` elements per range coder."""
    rows = min(count, most)
    batches = []
    for start in range(0, count, rows):
        present = min(rows, count - start)
        part = None if x is None else x[start : start + present]
        if part is not None and present < rows:
            part = torch.cat([part, part[:1].expand(rows - present, *part.shape[1:])])
        batches.append(CodedBatch(part, np.where(np.arange(rows) < present, length, 0)))
    return RowLayout(rows, length, batches, coders=min(max(count * length // share, 1), rows))


def write_batches(model: AutoregressiveModel, layout: RowLayout, progress: Progress = nothing) -> list[bytes]:
    """Encode the rows, and return a part for each range coder."""
    writer = RangeEncoder(layout.groups())
    _code(model, writer, layout, progress)
    return writer.finish()


def read_batches(
    model: AutoregressiveModel, layout: RowLayout, parts: Sequence[bytes | None], progress: Progress = nothing
) -> list[Tensor]:
    """Decode the elements of each batch in the layout of `x`; rows of a part that is `None` get symbol 0."""
    return _code(model, RangeDecoder(layout.groups(), parts), layout, progress)


def _code(model: AutoregressiveModel, coder: RangeCoder, layout: RowLayout, progress: Progress) -> list[Tensor]:
    with evaluating(model), torch.no_grad():
        step = model.prepare().step  # prepared once for all batches
    settings: dict[str, Any] = {"eos": layout.eos, "progress": progress, "step": step}
    return [
        model.from_sequence(
            code_rows(
                model,
                coder,
                layout.rows,
                layout.length,
                None if batch.x is None else model.to_sequence(batch.x),
                batch.context,
                lengths=batch.lengths,
                **settings,
            )
        )
        for batch in layout.batches
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


_HEAD = struct.Struct("<I8s4sHII")  # CRC of the rest, model, arithmetic, threads, B, T
_PORTABLE = 0  # number of threads that marks portable arithmetic


def encode(model: AutoregressiveModel, x: Tensor, context: Context = None, *, portable: bool = False) -> bytes:
    r"""Encode x in :math:`-\log_2 p(x \mid c)` bits, and about 30 bytes.

    A range coder (Martin 1979) codes the rows of x side by side, with the probabilities of the model's `step`. `decode`
    must compute the same probabilities, bit for bit: it needs the same weights, version of torch and processor
    instructions, and rejects others. The number of threads is stored and restored. Any processor can decode the
    portable form, which is several times slower.

    Args:
        model: a model of discrete elements.
        x: (B, T, ...), or in the layout of the model's `forward`.
        context: context of the rows, batch first; it is not stored, and `decode` needs it.
        portable: true to allow other processors, versions of torch and numbers of threads.

    Returns:
        The coded rows, with a checksum.

    Raises:
        NotDiscreteError: the elements are real numbers, which have a density and no probability.
        ValueError: x has no elements, or one outside the model's support; the model has no portable form; or
            constriction is not installed.

    Source: G. N. N. Martin, Range encoding: an algorithm for removing redundancy from a digitised message, 1979.

    >>> from chainrule.models import RecurrentLM
    >>> model = RecurrentLM(vocab_size=5, cell="gru", hidden_size=8)
    >>> data = encode(model, torch.tensor([[0, 1, 2, 3], [4, 3, 2, 1]]))
    >>> decode(model, data)
    tensor([[0, 1, 2, 3],
            [4, 3, 2, 1]])
    """
    device = device_of(model)
    sequence = model.to_sequence(x).to(device)
    if sequence.dim() < 2 or 0 in sequence.shape[:2]:
        raise ValueError(f"x: expected (B, T, ...) with B, T >= 1, got {tuple(x.shape)}")
    rows, length = sequence.shape[:2]
    context = _rows_of(context, rows, device)
    threads = _PORTABLE if portable else min(torch.get_num_threads(), MOST_THREADS)
    with _computing(model, context, threads) as (own, conditions):
        writer = RangeEncoder([np.arange(rows)])
        written = code_rows(own, writer, rows, length, sequence, conditions)
        written = written.to(sequence.dtype)
        same = (written == sequence) | (written.isnan() & sequence.isnan())
        if not same.all():
            raise ValueError(f"x: expected elements of the model's support, got {sequence[~same][0].item():g}")
        arithmetic = _probed(own, rows, length, conditions)
    body = _HEAD.pack(0, _weights(model), arithmetic, threads, rows, length)[4:] + writer.finish()[0]
    return struct.pack("<I", crc32(body)) + body


def decode(model: AutoregressiveModel, data: bytes, context: Context = None) -> Tensor:
    """Decode the bytes of `encode` with the same model.

    Args:
        model: the model of `encode`.
        data: the bytes.
        context: the context of `encode`.

    Returns:
        x, in the dtype of the model's `sample`; real numbers in portable form are float64.

    Raises:
        DamagedError: the bytes were changed or truncated.
        ValueError: another model encoded them, or a machine with other arithmetic.
    """
    if len(data) < _HEAD.size or crc32(data[4:]) != struct.unpack_from("<I", data)[0]:
        raise DamagedError("data: the checksum does not match: the coded bytes were changed or cut")
    _, own, arithmetic, threads, rows, length = _HEAD.unpack_from(data)
    if threads > MOST_THREADS:
        raise DamagedError(f"data: expected at most {MOST_THREADS} threads, got {threads}: they were changed")
    if _weights(model) != own:  # checked before allocating anything of the size in the header
        raise ValueError("data: written with another model or other weights: decode with the model that encoded")
    context = _rows_of(context, rows, device_of(model))
    with _computing(model, context, threads) as (ready, conditions):
        if _probed(ready, rows, length, conditions) != arithmetic:
            raise ValueError(
                "data: the encoder computed other last bits, with another context, torch version or processor; "
                f"here: {machine(model)}"
            )
        reader = RangeDecoder([np.arange(rows)], [data[_HEAD.size :]])
        return model.from_sequence(code_rows(ready, reader, rows, length, context=conditions))


@contextmanager
def _computing(model: AutoregressiveModel, context: Context, threads: int) -> Iterator[tuple[Any, Context]]:
    """Yield the model and the context in the form for coding."""
    if threads != _PORTABLE:
        with reproducible(model, threads):
            yield model, context
    else:
        with portable_form(model) as portable:
            yield portable, map_state(lambda leaf: leaf.double() if leaf.is_floating_point() else leaf, context)


def _weights(model: AutoregressiveModel) -> bytes:
    return bytes.fromhex(model_digest(model))


def _probed(model: AutoregressiveModel, rows: int, length: int, context: Context) -> bytes:
    return bytes.fromhex(arithmetic_digest(model, rows, length, context))


def _rows_of(context: Context, rows: int, device: torch.device) -> Context:
    return None if context is None else expand(map_state(lambda leaf: leaf.to(device), context), rows)
