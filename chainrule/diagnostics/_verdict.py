"""Verdicts on the gradients of a layer, with a reason and a remedy."""

import math
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Measurements of a layer that determine a verdict, and the thresholds that they are compared with."""

    OPEN_FORGET: ClassVar[float] = 0.8  # mean below which a forget gate forgets too early
    OPEN_UPDATE: ClassVar[float] = 0.5  # the same of an update gate
    BEGUN_FORGET: ClassVar[float] = 0.73  # σ(1), the initial forget gate of chainrule's LSTM
    MOVED_FORGET: ClassVar[float] = 0.68  # clearly below it
    SATURATED: ClassVar[float] = 0.3  # share of flat values
    DEAD: ClassVar[float] = 0.3  # share of dead units
    EXPLOSION: ClassVar[float] = 100.0  # growth

    cell: str  # "rnn", "lstm" or "gru"
    nonlinearity: str  # nonlinearity of an RNN
    steps: int  # longest distance to a loss with a gradient
    # steps after which the gradients of single losses, in h and c, stay below 1% of their values at the loss, or
    # infinity; NaN if no loss has a gradient
    reach: float
    end: float  # gradient at the longest distance, relative to its value at the loss, or NaN
    growth: float  # largest gradient, relative to its value at the loss; infinite if it overflows, or NaN
    spectral_norm: float  # spectral norm of W_hh
    largest_slope: float  # largest slope of the nonlinearity
    saturation: dict[str, float]  # flat share of each nonlinearity, by gate ("hidden" for an RNN's)
    dead: float | None  # share of ReLU units that are never above zero; `None` for other nonlinearities
    gate_means: dict[str, float]  # mean of each σ gate over elements and units
    began_open: bool  # true if the forget gate's bias started at 1, as in `RecurrentLM`


@dataclass(frozen=True)
class Verdict:
    """A sentence, and the name of its rule (docs/inspecting.md lists the rules)."""

    rule: str
    sentence: str


def verdict(e: Evidence) -> Verdict:
    """Return the verdict of the first rule that applies."""
    if math.isinf(e.reach):
        keep = f"gradients keep {e.end:.0%} over all {e.steps} steps read"
    else:
        keep = f"gradients fall below 1% after {e.reach:g} step{'s' * (e.reach != 1)}"
    gate, rnn = e.gate_means, e.cell == "rnn"
    if e.dead is not None and e.dead > e.DEAD:
        return Verdict(
            "dead-units", f"{e.dead:.0%} of the units are zero everywhere and learn nothing: lower the learning rate"
        )
    if math.isnan(e.growth):
        return Verdict(
            "no-gradient",
            "no gradient arrives: a layer above is dead, or the model is certain of every element",
        )
    if e.growth > e.EXPLOSION:
        grow = "overflow" if math.isinf(e.growth) else f"grow {e.growth:.0f}-fold"
        remedy = "clip the gradient and lower the learning rate" + (", or use an LSTM or GRU" if rnn else "")
        return Verdict("explodes", f"gradients {grow} on their way back: {remedy}")
    if rnn and e.saturation and max(e.saturation.values()) > e.SATURATED:
        flat = max(e.saturation.values())
        return Verdict(
            "saturated", f"{keep}; {flat:.0%} of {e.nonlinearity} is flat: lower the learning rate, or use an LSTM"
        )
    if math.isinf(e.reach):
        return Verdict("carries", f"{keep}: nothing hinders learning at these distances")
    if e.cell == "lstm" and gate["forget"] < (e.MOVED_FORGET if e.began_open else e.OPEN_FORGET):
        mean = gate["forget"]
        if e.began_open:
            return Verdict(
                "forget-gate-learned",
                f"{keep}; training moved the forget gate, which began at {e.BEGUN_FORGET}, to {mean:.2f}: nothing to "
                "mend unless the data reaches back further, then train on longer chunks",
            )
        return Verdict("forget-gate-low", f"{keep}; the forget gate sits at {mean:.2f}: raise its bias to 1 or more")
    if e.cell == "gru" and gate["update"] < e.OPEN_UPDATE:
        mean = gate["update"]
        return Verdict("update-gate-low", f"{keep}; the update gate sits at {mean:.2f}: raise its bias to 1 or more")
    if rnn and e.spectral_norm * e.largest_slope < 1:
        norm = e.spectral_norm * e.largest_slope
        return Verdict(
            "contracts", f"{keep}; no step can keep more than {norm:.2f} of them: start W_hh orthogonal, or use an LSTM"
        )
    if rnn:
        return Verdict("vanishes", f"{keep}: if the data reaches back further, use an LSTM or GRU")
    return Verdict("fades", f"{keep}, its gates being open: train on longer chunks if the data reaches back further")
