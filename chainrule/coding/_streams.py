"""Sequences to bytes and back, with any model of discrete elements."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel, Context
from chainrule._modes import device_of
from chainrule.coding._fingerprint import arithmetic_digest, machine, model_digest, portable_form, reproducible
from chainrule.coding._lockstep import code_rows
from chainrule.coding._range_coder import DamagedError, RangeDecoder, RangeEncoder
from chainrule.state import expand, map_state

_HEAD = struct.Struct("<I8s4sHII")  # CRC of all that follows, model, arithmetic, threads, B, T
_PORTABLE = 0  # threads


def encode(model: AutoregressiveModel, x: Tensor, context: Context = None, *, portable: bool = False) -> bytes:
    r"""Write x in :math:`-\log_2 p(x \mid c)` bits, and some 30 bytes.

    The rows of x are coded side by side by a range coder (Martin 1979), with the probabilities of the model's `step`.
    `decode` must compute the same probabilities, bit for bit: it needs the same weights, the same version of torch and
    a processor with the same instructions, and refuses others. The number of threads is written and set. In portable
    form any processor reads it: all is computed by `chainrule.coding._portable.arithmetic.PortableArithmetic`, which is
    several times slower.

    Args:
        model: a model of discrete elements.
        x: (B, T, ...), or laid out as the model's `forward` reads it.
        context: condition of the rows, batch first; it is not written, and `decode` needs it.
        portable: whether other processors, versions of torch and numbers of threads are to read it.

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
    threads = _PORTABLE if portable else torch.get_num_threads()
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
    """Read what `encode` wrote with the same model.

    Args:
        model: the model that wrote it.
        data: the bytes.
        context: condition of the rows, as `encode` had it.

    Returns:
        x, in the type in which the model's `sample` draws; real numbers in portable form are float64.

    Raises:
        DamagedError: the bytes were changed or cut.
        ValueError: another model wrote them, or a machine that computes otherwise.
    """
    if len(data) < _HEAD.size or crc32(data[4:]) != struct.unpack_from("<I", data)[0]:
        raise DamagedError("data: the checksum does not match: the coded bytes were changed or cut")
    _, own, arithmetic, threads, rows, length = _HEAD.unpack_from(data)
    if _weights(model) != own:  # before anything as large as the head says is made
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
    """The model and the context in the form in which they are computed with in the block."""
    if threads != _PORTABLE:
        with reproducible(model, threads):
            yield model, context
    else:
        with portable_form(model) as made:
            yield made, map_state(lambda leaf: leaf.double() if leaf.is_floating_point() else leaf, context)


def _weights(model: AutoregressiveModel) -> bytes:
    return bytes.fromhex(model_digest(model))


def _probed(model: AutoregressiveModel, rows: int, length: int, context: Context) -> bytes:
    return bytes.fromhex(arithmetic_digest(model, rows, length, context))


def _rows_of(context: Context, rows: int, device: torch.device) -> Context:
    return None if context is None else expand(map_state(lambda leaf: leaf.to(device), context), rows)
