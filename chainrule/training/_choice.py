"""Rules that choose threads, precision and the recurrent kernel of training steps.

The choice is a function of the processor, the model and the shape of a batch. It times nothing, so the same command
always computes the same way, however busy the machine is. benchmarks/LOG.md has the measurements behind the constants.

- The vendor's kernel computes LSTMs over full rows, in bfloat16 below `WIDE` units. Otherwise the written-out steps are
  faster, and recurrent layers choose them themselves (`auto`).
- bfloat16 is used if the processor multiplies it natively and the products are large: `BFLOAT16_MULTIPLIES` at once, or
  `BFLOAT16_ROWS` rows for the vendor's LSTM. Models then train 1.1 to 1.9 times as fast. Emulation is never faster.
- There is one thread per `MULTIPLIES_A_THREAD` multiply-adds at once. Threads with less work only wait for each other.

"At once" means in one time step of a recurrent layer, and in one layer of other models.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from chainrule.layers._masked_linear import MaskedLinear
from chainrule.layers._recurrent import Backend
from chainrule.state import leaves
from chainrule.training._computation import (
    Computation,
    instruction_set,
    multiplies_bfloat16,
    multiply_dtype,
    recurrent_layers,
    usable_threads,
)
from chainrule.training._evaluate import Batch

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
    ('bfloat16, vendor kernel, 2 threads', 'float32, vendor kernel, 1 thread', 'float32, vendor kernel, 2 threads')
    """
    fused = work.layers == "LSTM" and work.full and work.vendor and backend != "bptt"
    if precision == "auto":
        enough = work.rows >= BFLOAT16_ROWS if fused else work.multiplies >= BFLOAT16_MULTIPLIES
        precision = "bfloat16" if bfloat16 and enough else "float32"
    if backend == "auto" and fused and (precision == "float32" or (bfloat16 and work.units < WIDE)):
        backend = "vendor"
    threads = threads or max(1, min(most_threads, int(work.multiplies / MULTIPLIES_A_THREAD)))
    return Computation(threads, precision, backend)


def choose_computation(
    model: nn.Module,
    batch: Batch,
    device: torch.device,
    *,
    threads: int | None = None,
    precision: Literal["auto", "float32", "bfloat16"] = "auto",
    backend: Backend = "auto",
) -> tuple[Computation, str]:
    """Choose how to compute training steps on a device, and explain the choice in a line."""
    if device.type != "cpu":  # a GPU uses bfloat16 if it supports it, and its layers choose their kernels
        native: Precision = "bfloat16" if multiply_dtype(precision, device) == torch.bfloat16 else "float32"
        way = Computation(threads or usable_threads(), native, backend)
        fallback = ", which computes only in float32" if native != precision == "bfloat16" else ""
        return way, f"{way}: {device}{fallback}"
    work, most = Work.of(model, batch), usable_threads()
    way = choose(multiplies_bfloat16(), most, work, threads=threads, precision=precision, backend=backend)
    return way, f"{way}: {instruction_set()} processor with {most} thread{'s' * (most > 1)}, {work}"
