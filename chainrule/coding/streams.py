"""Sequences to bytes and back, with any model of discrete elements."""

import struct
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from chainrule.base import AutoregressiveModel, Context
from chainrule.coding.fingerprint import arithmetic_digest, machine, model_digest, reproducible
from chainrule.coding.lockstep import code_rows
from chainrule.coding.range_coder import DamagedError, Reader, Writer
from chainrule.state import expand, map_state

_HEAD = struct.Struct("<I8s4sHII")  # CRC of all that follows, model, arithmetic, threads, B, T


def encode(model: AutoregressiveModel, x: Tensor, context: Context = None) -> bytes:
    r"""Write x in :math:`-\log_2 p(x \mid c)` bits, and some 30 bytes.

    The rows of x are coded side by side by a range coder (Martin 1979), with the probabilities of the model's `step`.
    `decode` must compute the same probabilities, bit for bit: it needs the same weights, the same version of torch and
    a processor with the same instructions, and refuses others. The number of threads is written and set.

    Args:
        model: a model of discrete elements.
        x: (B, T, ...), or laid out as the model's `forward` reads it.
        context: what the rows are conditioned on, batch first; it is not written, and `decode` needs it.

    Returns:
        The coded rows, with a checksum.

    Raises:
        NotDiscreteError: the elements are real numbers, which have a density and no probability.
        ValueError: x has no elements, or one outside the model's support; or constriction is not installed.

    Source: G. N. N. Martin, Range encoding: an algorithm for removing redundancy from a digitised message, 1979.

    >>> from chainrule.models import RecurrentLM
    >>> model = RecurrentLM(vocab_size=5, cell="gru", hidden_size=8)
    >>> data = encode(model, torch.tensor([[0, 1, 2, 3], [4, 3, 2, 1]]))
    >>> decode(model, data)
    tensor([[0, 1, 2, 3],
            [4, 3, 2, 1]])
    """
    device = next(model.parameters(), torch.empty(0)).device
    sequence = model.to_sequence(x).to(device)
    if sequence.dim() < 2 or 0 in sequence.shape[:2]:
        raise ValueError(f"x: expected (B, T, ...) with B, T >= 1, got {tuple(x.shape)}")
    rows, length = sequence.shape[:2]
    context = _rows_of(context, rows, device)
    threads = torch.get_num_threads()
    with reproducible(model, threads):
        writer = Writer([np.arange(rows)])
        code_rows(model, writer, rows, length, sequence, context)
        marks = _marks(model, rows, length, context)
    body = _HEAD.pack(0, *marks, threads, rows, length)[4:] + writer.finish()[0]
    return struct.pack("<I", crc32(body)) + body


def decode(model: AutoregressiveModel, data: bytes, context: Context = None) -> Tensor:
    """Read what `encode` wrote with the same model.

    Args:
        model: the model that wrote it.
        data: the bytes.
        context: what the rows are conditioned on, as `encode` had it.

    Returns:
        x, in the type in which the model's `sample` draws.

    Raises:
        DamagedError: the bytes were changed or cut.
        ValueError: another model wrote them, or a machine that computes otherwise.
    """
    if len(data) < _HEAD.size or crc32(data[4:]) != struct.unpack_from("<I", data)[0]:
        raise DamagedError("data: the checksum does not match: the coded bytes were changed or cut")
    _, own, arithmetic, threads, rows, length = _HEAD.unpack_from(data)
    context = _rows_of(context, rows, next(model.parameters(), torch.empty(0)).device)
    with reproducible(model, threads):
        found = _marks(model, rows, length, context)
        if found[0] != own:
            raise ValueError("data: written with another model or other weights: decode with the model that encoded")
        if found[1] != arithmetic:
            raise ValueError(
                "data: written where this model gives other last bits, with another context, torch or processor; "
                f"here: {machine(model)}"
            )
        reader = Reader([np.arange(rows)], [data[_HEAD.size :]])
        return model.from_sequence(code_rows(model, reader, rows, length, context=context))


def _marks(model: AutoregressiveModel, rows: int, length: int, context: Context) -> tuple[bytes, bytes]:
    probed = arithmetic_digest(model, rows, length, context)
    return bytes.fromhex(model_digest(model)), bytes.fromhex(probed)


def _rows_of(context: Context, rows: int, device: torch.device) -> Context:
    return None if context is None else expand(map_state(lambda leaf: leaf.to(device), context), rows)
