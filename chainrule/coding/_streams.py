"""Lossless coding of sequences with any model of discrete elements."""

import struct
from zlib import crc32

import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel, Context
from chainrule.coding._batches import arithmetic_digest, code_rows
from chainrule.coding._range_coder import DamagedError, RangeDecoder, RangeEncoder
from chainrule.coding._reproducible import MOST_THREADS, machine, model_digest, reproducible
from chainrule.modes import device_of
from chainrule.state import expand, map_state

_HEAD = struct.Struct("<I8s4sHII")  # CRC of the rest, model, arithmetic, threads, B, T


def encode(model: AutoregressiveModel, x: Tensor, context: Context = None) -> bytes:
    r"""Encode x in :math:`-\log_2 p(x \mid c)` bits, and about 30 bytes.

    A range coder (Martin 1979) codes the rows of x side by side, with the probabilities of the model's `step`. `decode`
    must compute the same probabilities, bit for bit: it needs the same weights, version of torch and processor
    instructions, and rejects others. The number of threads is stored and restored.

    Args:
        model: a model of discrete elements.
        x: (B, T, ...), or in the layout of the model's `forward`.
        context: context of the rows, batch first; it is not stored, and `decode` needs it.

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
    device = device_of(model)
    sequence = model.to_sequence(x).to(device)
    if sequence.dim() < 2 or 0 in sequence.shape[:2]:
        raise ValueError(f"x: expected (B, T, ...) with B, T >= 1, got {tuple(x.shape)}")
    rows, length = sequence.shape[:2]
    context = _rows_of(context, rows, device)
    threads = min(torch.get_num_threads(), MOST_THREADS)
    with reproducible(model, threads):
        writer = RangeEncoder()
        written = code_rows(model, writer, rows, length, sequence, context)
        written = written.to(sequence.dtype)
        same = (written == sequence) | (written.isnan() & sequence.isnan())
        if not same.all():
            raise ValueError(f"x: expected elements of the model's support, got {sequence[~same][0].item():g}")
        arithmetic = _probed(model, rows, length, context)
    body = _HEAD.pack(0, _weights(model), arithmetic, threads, rows, length)[4:] + writer.finish()
    return struct.pack("<I", crc32(body)) + body


def decode(model: AutoregressiveModel, data: bytes, context: Context = None) -> Tensor:
    """Decode the bytes of `encode` with the same model.

    Args:
        model: the model of `encode`.
        data: the bytes.
        context: the context of `encode`.

    Returns:
        x, in the dtype of the model's `sample`.

    Raises:
        DamagedError: the bytes were changed or truncated.
        ValueError: another model encoded them, or a machine with other arithmetic.
    """
    if len(data) < _HEAD.size or crc32(data[4:]) != struct.unpack_from("<I", data)[0]:
        raise DamagedError("data: the checksum does not match: the coded bytes were changed or cut")
    _, own, arithmetic, threads, rows, length = _HEAD.unpack_from(data)
    if not 1 <= threads <= MOST_THREADS:
        raise DamagedError(f"data: expected 1 to {MOST_THREADS} threads, got {threads}: they were changed")
    if _weights(model) != own:  # checked before allocating anything of the size in the header
        raise ValueError("data: written with another model or other weights: decode with the model that encoded")
    context = _rows_of(context, rows, device_of(model))
    with reproducible(model, threads):
        if _probed(model, rows, length, context) != arithmetic:
            raise ValueError(
                "data: the encoder computed other last bits, with another context, torch version or processor; "
                f"here: {machine(model)}"
            )
        reader = RangeDecoder(data[_HEAD.size :])
        return model.from_sequence(code_rows(model, reader, rows, length, context=context))


def _weights(model: AutoregressiveModel) -> bytes:
    return bytes.fromhex(model_digest(model))


def _probed(model: AutoregressiveModel, rows: int, length: int, context: Context) -> bytes:
    return bytes.fromhex(arithmetic_digest(model, rows, length, context))


def _rows_of(context: Context, rows: int, device: torch.device) -> Context:
    return None if context is None else expand(map_state(lambda leaf: leaf.to(device), context), rows)
