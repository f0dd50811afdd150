"""Threads, precision and backend of training steps: what the processor can, and rules that choose.

The choice is a function of the processor, the model and the shape of a batch. It times nothing, so the same command
always computes the same way, however busy the machine is. benchmarks/LOG.md has the measurements behind the constants.

- The vendor's kernel computes LSTMs over full rows in bfloat16 below `WIDE` units. Otherwise recurrent layers choose
  themselves (`auto`): in float32 compiled loops, or what is fastest without them.
- bfloat16 is used if the processor multiplies it natively and the products are large: `BFLOAT16_MULTIPLIES` at once, or
  `BFLOAT16_ROWS` rows for the vendor's LSTM. Models then train 1.1 to 1.9 times as fast. Emulation is never faster.
- There is one thread per `MULTIPLIES_A_THREAD` multiply-adds at once. Threads with less work only wait for each other.

"At once" means in one time step of a recurrent layer, and in one layer of other models.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from chainrule.devices import instruction_set, multiplies_bfloat16, multiply_dtype, usable_threads
from chainrule.layers._masked_linear import MaskedLinear
from chainrule.layers._recurrent import Backend, Recurrent
from chainrule.state import leaves
from chainrule.training._batch import Batch


@dataclass(frozen=True)
class Computation:
    """Settings of a training step's computation.

    >>> str(Computation(2, "float32", "vendor"))
    'float32, vendor kernel, 2 threads'
    """

    threads: int  # number of CPU threads
    precision: Literal["float32", "bfloat16"] = "float32"  # number format of matrix products
    backend: Backend = "auto"  # backend of recurrent layers, see `chainrule.layers`; ignored by other models

    def __str__(self) -> str:
        backend = {"auto": "", "vendor": "vendor kernel, ", "bptt": "written-out recurrence, "}[self.backend]
        return f"{self.precision}, {backend}{self.threads} thread{'s' if self.threads > 1 else ''}"

    @property
    def dtype(self) -> torch.dtype:
        """Number format of matrix products."""
        return torch.bfloat16 if self.precision == "bfloat16" else torch.float32

    @classmethod
    def choose(
        cls,
        model: nn.Module,
        batch: Batch,
        device: torch.device,
        *,
        threads: int | None = None,
        precision: Literal["auto", "float32", "bfloat16"] = "auto",
        backend: Backend = "auto",
    ) -> tuple["Computation", str]:
        """Choose how to compute training steps on a device, and explain the choice in a line.

        Args:
            model: model to train.
            batch: one of its batches.
            device: device of the training.
            threads, precision, backend: explicit settings, which override the rules.
        """
        if device.type != "cpu":  # a GPU uses bfloat16 if it supports it, and its layers choose their kernels
            native: Precision = "bfloat16" if multiply_dtype(precision, device) == torch.bfloat16 else "float32"
            way = cls(threads or usable_threads(), native, backend)
            fallback = ", which computes only in float32" if native != precision == "bfloat16" else ""
            return way, f"{way}: {device}{fallback}"
        work, most = Work.of(model, batch), usable_threads()
        way = choose(multiplies_bfloat16(), most, work, threads=threads, precision=precision, backend=backend)
        return way, f"{way}: {instruction_set()} processor with {most} thread{'s' * (most > 1)}, {work}"

    @contextmanager
    def applied_to(self, model: nn.Module) -> Iterator[None]:
        """Set the threads, and the backend of the recurrent layers of `model`, in the block."""
        threads, layers = torch.get_num_threads(), recurrent_layers(model)
        backends = [layer.backend for layer in layers]
        try:
            _set_threads(self.threads)
            for layer in layers:
                layer.backend = self.backend
            yield
        finally:
            _set_threads(threads)
            for layer, backend in zip(layers, backends, strict=True):
                layer.backend = backend


def recurrent_layers(model: nn.Module) -> list[Recurrent]:
    """Return the layers of a model with a choice of backend."""
    return [layer for layer in model.modules() if isinstance(layer, Recurrent)]


def _set_threads(threads: int) -> None:
    if threads != torch.get_num_threads():
        torch.set_num_threads(threads)


def autocast(dtype: torch.dtype, device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which matrix products run in `dtype`; weights and log-likelihoods stay float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16)


def emulation_note(dtype: torch.dtype, device: torch.device) -> str | None:
    """Return a warning if products in `dtype` are emulated on this processor, else None."""
    if dtype != torch.bfloat16 or device.type != "cpu" or multiplies_bfloat16():
        return None
    return f"precision bfloat16 is emulated on this processor ({instruction_set()}) and slower: float32 is faster here"


WIDE = 512
BFLOAT16_MULTIPLIES = 2e6
BFLOAT16_ROWS = 4
MULTIPLIES_A_THREAD = 3e6

Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Work:
    """Description of a model and its batches, the input of the rules."""

    layers: str  # kind of the widest recurrent layer, "LSTM", "GRU" or "RNN"; "other" without recurrent layers
    units: int  # width of the widest recurrent layer, 0 without one
    rows: int  # batch size
    full: bool  # true if all rows have the same length
    vendor: bool  # true if a vendor's kernel can compute the recurrent layers
    multiplies: float  # average number of multiply-adds at once

    @classmethod
    def of(cls, model: nn.Module, batch: Batch) -> "Work":
        """Describe a training step of a model on a batch."""
        recurrent, rows = recurrent_layers(model), batch.x.shape[0]
        full = batch.lengths is None and not (isinstance(batch.context, dict) and "lengths" in batch.context)
        if recurrent:
            widest = max(recurrent, key=lambda layer: layer.hidden_size)
            vendor = all(layer.vendor_computes_this() for layer in recurrent)
            running = rows if full else rows / 2  # at an average step, half of the rows have ended
            multiplies = float(running * widest.weight_hh_l0.numel())
            return cls(type(widest).__name__, widest.hidden_size, rows, full, vendor, multiplies)
        embeddings = {id(layer.weight) for layer in model.modules() if isinstance(layer, nn.Embedding)}
        matrices = [weight for weight in model.parameters() if weight.dim() > 1 and id(weight) not in embeddings]
        # A dense network multiplies its weights by each row, other networks by each element.
        masked = any(isinstance(layer, MaskedLinear) for layer in model.modules())
        dense = masked or (batch.x.dim() > 2 and all(weight.dim() == 2 for weight in matrices))
        inputs = rows if dense else sum(part.numel() for part in leaves((batch.x, batch.context)))
        average = sum(weight.numel() for weight in matrices) / max(1, len(matrices))
        return cls("other", 0, rows, full, False, inputs * average)

    def __str__(self) -> str:
        if not self.units:
            return f"{self.multiplies:.2g} multiply-adds a layer"
        return f"{self.layers} of {self.units} units, {self.rows} {'full' if self.full else 'unequal'} rows"


def choose(
    bfloat16: bool,
    most_threads: int,
    work: Work,
    *,
    threads: int | None = None,
    precision: Literal["auto", "float32", "bfloat16"] = "auto",
    backend: Backend = "auto",
) -> Computation:
    """Choose how to compute some work on a processor; explicit arguments override the rules.

    >>> lstm = Work("LSTM", 256, rows=32, full=True, vendor=True, multiplies=8e6)
    >>> str(choose(True, 4, lstm)), str(choose(False, 1, lstm)), str(choose(True, 4, lstm, precision="float32"))
    ('bfloat16, vendor kernel, 2 threads', 'float32, 1 thread', 'float32, 2 threads')
    """
    fused = work.layers == "LSTM" and work.full and work.vendor and backend != "bptt"
    if precision == "auto":
        enough = work.rows >= BFLOAT16_ROWS if fused else work.multiplies >= BFLOAT16_MULTIPLIES
        precision = "bfloat16" if bfloat16 and enough else "float32"
    if backend == "auto" and fused and precision == "bfloat16" and bfloat16 and work.units < WIDE:
        backend = "vendor"
    threads = threads or max(1, min(most_threads, int(work.multiplies / MULTIPLIES_A_THREAD)))
    return Computation(threads, precision, backend)
