"""How a training step is computed, where several ways compute the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from chainrule.layers.recurrent import Backend, Recurrent


@dataclass(frozen=True)
class Computation:
    """One way to compute a training step.

    Args:
        threads: of the processor.
        precision: number format of matrix products.
        backend: of recurrent layers, see `chainrule.layers`; models without them take no notice.

    >>> str(Computation(2, "float32", "vendor"))
    'float32, vendor kernel, 2 threads'
    """

    threads: int
    precision: Literal["float32", "bfloat16"] = "float32"
    backend: Backend = "auto"

    def __str__(self) -> str:
        backend = {"auto": "", "vendor": "vendor kernel, ", "bptt": "written-out recurrence, "}[self.backend]
        return f"{self.precision}, {backend}{self.threads} thread{'s' if self.threads > 1 else ''}"

    @property
    def dtype(self) -> torch.dtype:
        """The number format of matrix products."""
        return torch.bfloat16 if self.precision == "bfloat16" else torch.float32


@contextmanager
def computing(model: nn.Module, computation: Computation) -> Iterator[None]:
    """Compute with these threads in the block, and with this backend in the recurrent layers of `model`."""
    threads, layers = torch.get_num_threads(), recurrent_layers(model)
    backends = [layer.backend for layer in layers]
    try:
        _set_threads(computation.threads)
        for layer in layers:
            layer.backend = computation.backend
        yield
    finally:
        _set_threads(threads)
        for layer, backend in zip(layers, backends, strict=True):
            layer.backend = backend


def recurrent_layers(model: nn.Module) -> list[Recurrent]:
    """The layers of a model that have a choice of backend."""
    return [layer for layer in model.modules() if isinstance(layer, Recurrent)]


def _set_threads(threads: int) -> None:
    if threads != torch.get_num_threads():
        torch.set_num_threads(threads)
