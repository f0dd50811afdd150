"""Named tensors and a JSON record in one safetensors file, sealed with a digest over all of it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from chainrule.training.atomic import replacing

FORMAT = 1


def write_sealed(path: Path, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
    """Write atomically; names that share one tensor (tied weights) share it in the file too.

    Raises:
        OSError: the disk is full or not writable; an older file of that name is as it was.
    """
    record, kept = dict(record), {}
    first: dict[tuple[int, torch.Size, tuple[int, ...], torch.dtype], str] = {}
    aliases: dict[str, str] = {}
    for name, tensor in tensors.items():
        same = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and same in first:
            aliases[name] = first[same]
        else:
            first[same] = name
            kept[name] = _own_memory(tensor)
    record |= {"format": FORMAT, "aliases": aliases}
    text = json.dumps(record, sort_keys=True, allow_nan=False)
    with replacing(path) as partial:
        save_file(
            kept, partial, {"chainrule": f"{_digest(kept, text)} {text}"}
        )  # one entry: several have no fixed order


def read_sealed(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `write_sealed` wrote, on the CPU. Nothing in the file is executed.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is truncated, was changed since it was written, is no such file, or comes from a newer version.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a file of weights, got none: train first, or check the path")
    damaged = f"{path}: expected the file as chainrule wrote it, got one that is truncated or was changed"
    remedy = "restore it from a copy, or train again"
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            # Cloned, because a tensor inside the file's bytes is not aligned as one from torch's allocator is, and some
            # kernels then add in another order: a resumed run would differ in its last bits.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{damaged} ({error}): {remedy}") from error
    if "chainrule" not in metadata:
        raise ValueError(f"{path}: expected a file that chainrule wrote, got safetensors from elsewhere")
    digest, _, text = metadata["chainrule"].partition(" ")
    if _digest(tensors, text) != digest:
        raise ValueError(f"{damaged} (its digest differs): {remedy}")
    record = _parse_record(path, text)
    aliases = record.pop("aliases", None)
    if not isinstance(aliases, dict) or not all(isinstance(kept, str) and kept in tensors for kept in aliases.values()):
        raise ValueError(f"{damaged} (its names of shared tensors): {remedy}")
    return tensors | {name: tensors[kept] for name, kept in aliases.items()}, record


def _parse_record(path: Path, text: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or type(record.get("format")) is not int:
        raise ValueError(f"{path}: expected a record as chainrule wrote it, got another: restore the file from a copy")
    if record["format"] > FORMAT:
        raise ValueError(f"{path}: expected format {FORMAT} or older, got {record['format']}: upgrade chainrule")
    return record


def _own_memory(tensor: Tensor) -> Tensor:
    """On the CPU, contiguous, and no slice of a larger tensor: safetensors writes no overlapping memory."""
    tensor = tensor.detach().to("cpu").contiguous()
    return tensor.clone() if tensor.untyped_storage().nbytes() != tensor.nbytes else tensor


def _digest(tensors: dict[str, Tensor], record: str) -> str:
    """SHA-256 over the record and, in order of name, each tensor's name, type, shape and bytes."""
    digest = hashlib.sha256(record.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
