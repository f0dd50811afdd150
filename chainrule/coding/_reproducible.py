"""Fingerprints of models and of their arithmetic, which a decoder must share bit for bit."""

import hashlib
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import nn

from chainrule.layers import KneserNey
from chainrule.modes import evaluating

MOST_THREADS = 16


def model_digest(model: nn.Module) -> str:
    """Hash the model's class, and the names, dtypes and values of its weights and tables, to 16 hexadecimal digits."""
    digest = hashlib.sha256(type(model).__qualname__.encode())
    tensors = dict(model.state_dict())
    for path, module in model.named_modules():
        if isinstance(module, KneserNey):
            tensors |= {f"{path}.{name}": table for name, table in module.tables().items()}
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:16]


def machine(model: nn.Module) -> str:
    """Describe what the last bits of floats depend on: torch, vector instructions, processor, dtype."""
    weight = next(chain(model.parameters(), model.buffers()), torch.empty(0, device="cpu"))
    kind = weight.device.type
    isa = torch.cuda.get_device_name() if kind == "cuda" else torch.backends.cpu.get_cpu_capability()
    isa = isa if kind in ("cpu", "cuda") else kind
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA")
    words = [f"torch {torch.__version__}", isa, platform.machine(), str(weight.dtype).removeprefix("torch.")]
    return ", ".join([*words, f"oneDNN at most {limit}"] if limit else words)


@contextmanager
def reproducible(model: nn.Module, threads: int) -> Iterator[None]:
    """In the block, compute in evaluation mode, without autocast and with a fixed number of threads, 1 to 16.

    More threads are not used, so that a machine with fewer processors decodes in reasonable time.
    """
    if not 1 <= threads <= MOST_THREADS:
        raise ValueError(f"threads: expected 1 to {MOST_THREADS}, got {threads}")
    before, weight = (
        torch.get_num_threads(),
        next(chain(model.parameters(), model.buffers()), torch.empty(0, device="cpu")),
    )
    try:
        if threads != before:
            torch.set_num_threads(threads)
        with evaluating(model), torch.autocast(weight.device.type, enabled=False):
            yield
    finally:
        if threads != before:
            torch.set_num_threads(before)
