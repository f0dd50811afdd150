"""The rule by which a run computes its training steps: threads, precision and the kernel of recurrent layers.

A function of the processor, the model and the shape of a batch. Nothing is timed, so that the same command takes the
same way however busy the machine is. The constants are measured (benchmarks/LOG.md, "a rule in place of a race").

- The vendor's kernel for LSTMs over full rows, in bfloat16 below `WIDE` units. Everywhere else the written-out steps
  are faster, and recurrent layers take them by themselves (`auto`).
- bfloat16 where the processor multiplies it and there is enough to multiply: `BFLOAT16_MULTIPLIES` at once, or
  `BFLOAT16_ROWS` rows for the vendor's LSTM. Models then train 1.1 to 1.9 times as fast. Emulated, it is never faster.
- A thread for each `MULTIPLIES_A_THREAD` multiply-adds at once. Threads that have less to do only wait for one another.

"At once" is in a step in time of a recurrent layer, and in one layer elsewhere.
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
    """What the rule knows of a model and its batches.

    Args:
        layers: their kind, "LSTM", "GRU", "RNN" or "other"; of recurrent layers the widest one's.
        units: of the widest recurrent layer, 0 without one.
        rows: of a batch.
        full: whether all rows that recurrent layers read are of equal length.
        vendor: whether a vendor's kernel computes the recurrent layers.
        multiplies: multiply-adds that are done at once, on average.
    """

    layers: str
    units: int
    rows: int
    full: bool
    vendor: bool
    multiplies: float

    @classmethod
    def of(cls, model: nn.Module, batch: Batch) -> "Work":
        """The work of a training step of a model on a batch."""
        recurrent, rows = recurrent_layers(model), batch.x.shape[0]
        full = batch.lengths is None and not (isinstance(batch.context, dict) and "lengths" in batch.context)
        if recurrent:
            widest = max(recurrent, key=lambda layer: layer.hidden_size)
            vendor = all(layer.vendor_computes_this() for layer in recurrent)
            running = rows if full else rows / 2  # half of the rows have ended at an average step
            multiplies = float(running * widest.weight_hh_l0.numel())
            return cls(type(widest).__name__, widest.hidden_size, rows, full, vendor, multiplies)
        embeddings = {id(layer.weight) for layer in model.modules() if isinstance(layer, nn.Embedding)}
        matrices = [weight for weight in model.parameters() if weight.dim() > 1 and id(weight) not in embeddings]
        # A dense network multiplies its weights with each row, others with each element.
        masked = any(isinstance(layer, MaskedLinear) for layer in model.modules())
        dense = masked or (batch.x.dim() > 2 and all(weight.dim() == 2 for weight in matrices))
        places = rows if dense else sum(part.numel() for part in leaves((batch.x, batch.context)))
        average = sum(weight.numel() for weight in matrices) / max(1, len(matrices))
        return cls("other", 0, rows, full, False, places * average)

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
    """The way to compute some work on a processor; what the user gave takes the place of the rule.

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
    """The way to compute training steps of a model here, and the line that says so and why.

    Args:
        model: to be trained.
        batch: one of those it is trained on.
        device: where it is trained. A GPU takes bfloat16 where it has it, and its layers choose their kernel.
        threads, precision, backend: as the user gave them; None or "auto" leaves them to the rule.
    """
    if device.type != "cpu":
        usual: Precision = "bfloat16" if multiply_dtype(precision, device) == torch.bfloat16 else "float32"
        way = Computation(threads or usable_threads(), usual, backend)
        fallback = ", which computes in float32 alone" if usual != precision == "bfloat16" else ""
        return way, f"{way}: {device}{fallback}"
    work, most = Work.of(model, batch), usable_threads()
    way = choose(multiplies_bfloat16(), most, work, threads=threads, precision=precision, backend=backend)
    return way, f"{way}: {instruction_set()} processor with {most} thread{'s' * (most > 1)}, {work}"
