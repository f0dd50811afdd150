"""Files of named tensors with a record, in the format safetensors, that detect any damage."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from chainrule.files import check_header, parse_json, replacing

FORMAT = 1


def write_tensors(path: Path, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
    """Write named tensors and a record of JSON values as one file, atomically; tied weights share one tensor in it.

    The record gets the entries "format" and "aliases". A digest covers both.
    """
    record, stored = dict(record), {}
    first: dict[tuple[int, torch.Size, tuple[int, ...], torch.dtype], str] = {}
    aliases: dict[str, str] = {}
    for name, tensor in tensors.items():
        same = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and same in first:
            aliases[name] = first[same]
        else:
            first[same] = name
            stored[name] = _own_memory(tensor)
    record |= {"format": FORMAT, "aliases": aliases}
    text = json.dumps(record, sort_keys=True, allow_nan=False)
    with replacing(path) as partial:
        # A single metadata entry, because several have no fixed order.
        save_file(stored, partial, {"chainrule": f"{_digest(stored, text)} {text}"})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors, on the CPU, and the record of a file of `write_tensors`; nothing in it is executed.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is damaged, or `write_tensors` did not write it.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a file of weights, got none: train first, or check the path")
    check_header(path)
    damaged = f"{path}: expected the file as chainrule wrote it, got one that is truncated or was changed"
    remedy = "restore it from a copy, or train again"
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata, names = file.metadata() or {}, file.keys()
            # Clone, because tensors inside the file's bytes are not aligned as torch's allocator aligns them. Some
            # kernels then sum in another order, and a resumed run would differ in the last bits.
            tensors = {name: file.get_tensor(name).clone() for name in names}
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{damaged} ({error}): {remedy}") from error
    if "chainrule" not in metadata:
        raise ValueError(f"{path}: expected a file that chainrule wrote, got safetensors from elsewhere")
    digest, _, text = metadata["chainrule"].partition(" ")
    if _digest(tensors, text) != digest:
        raise ValueError(f"{damaged} (its digest differs): {remedy}")
    record = _parse_record(path, text)
    aliases = record.pop("aliases", None)
    if not isinstance(aliases, dict) or not all(isinstance(name, str) and name in tensors for name in aliases.values()):
        raise ValueError(f"{damaged} (its names of shared tensors): {remedy}")
    return tensors | {alias: tensors[name] for alias, name in aliases.items()}, record


def _parse_record(path: Path, text: str) -> dict[str, Any]:
    try:
        record = parse_json(text.encode())
    except ValueError:
        record = None
    if not isinstance(record, dict) or type(record.get("format")) is not int:
        raise ValueError(f"{path}: expected a record as chainrule wrote it, got another: restore the file from a copy")
    if record["format"] > FORMAT:
        raise ValueError(f"{path}: expected format {FORMAT} or older, got {record['format']}: upgrade chainrule")
    return record


def _own_memory(tensor: Tensor) -> Tensor:
    """Copy to contiguous CPU memory of the tensor's size, because safetensors rejects overlapping memory."""
    tensor = tensor.detach().to("cpu").contiguous()
    return tensor.clone() if tensor.untyped_storage().nbytes() != tensor.nbytes else tensor


def _digest(tensors: dict[str, Tensor], record: str) -> str:
    """Compute SHA-256 over the record and, ordered by name, each tensor's name, dtype, shape and bytes."""
    digest = hashlib.sha256(record.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
