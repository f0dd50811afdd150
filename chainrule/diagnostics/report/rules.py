"""The rules behind the verdicts, in words; `chainrule.diagnostics.verdict` applies them, the first that fits."""

from dataclasses import dataclass

from chainrule.diagnostics.distance import THRESHOLD
from chainrule.diagnostics.hidden_units import FLAT
from chainrule.diagnostics.verdict import (
    BEGUN_FORGET,
    DEAD,
    EXPLOSION,
    MOVED_FORGET,
    OPEN_FORGET,
    OPEN_UPDATE,
    SATURATED,
)


@dataclass(frozen=True)
class Rule:
    """The condition of a verdict, its meaning, and a remedy."""

    condition: str
    meaning: str
    remedy: str


RULES = {
    "dead-units": Rule(
        f"more than {DEAD:.0%} of the ReLU units are zero at every element read",
        "No gradient passes through such a unit, so training cannot bring it back.",
        "Lower the learning rate and train again; or use tanh, or a cell with gates.",
    ),
    "no-gradient": Rule(
        "‖δ‖ is zero at every single loss",
        "A layer above is dead, or the loss is as low as it can be: the model is certain of every element, or a bare "
        "layer's output is zero.",
        "Where a layer is dead, lower the learning rate and train again; else read other data.",
    ),
    "explodes": Rule(
        f"‖δ‖ of single losses grows more than {EXPLOSION:g}-fold on its way back, or overflows",
        "A few early steps then decide the direction of the update, and the loss may jump.",
        "Clip the gradient (--clip-norm 1) and lower the learning rate; a plain RNN: use an LSTM or GRU.",
    ),
    "saturated": Rule(
        f"a plain RNN whose nonlinearity is flat, its slope under {FLAT:.0%} of the largest, at more than "
        f"{SATURATED:.0%} of all values",
        "Where f is flat, D_t is near zero, and J_t = D_t W_hh with it.",
        "Lower the learning rate, or start with smaller input weights; or use an LSTM.",
    ),
    "carries": Rule(
        f"‖δ‖ never stays under {THRESHOLD:.0%} of its value at the loss, over all the steps read",
        "Nothing hinders learning at these distances.",
        "None needed; read further back with --steps to find where it ends.",
    ),
    "forget-gate-learned": Rule(
        f"an LSTM of chainrule, whose forget gate began with a bias of 1, at {BEGUN_FORGET:g}, and is below "
        f"{MOVED_FORGET:g} on average now",
        "Training shut the gate: within a chunk, older memory did not help to predict.",
        "None needed if the text asks for no more memory than this; else train on longer chunks (--chunk-length).",
    ),
    "forget-gate-low": Rule(
        f"an LSTM whose forget gate is below {OPEN_FORGET:g} on average, and did not begin open",
        "Each step keeps that part of the cell: 0.5 leaves a thousandth after ten steps.",
        "Raise the forget gate's bias to 1 or more before training (Gers et al. 2000, Jozefowicz et al. 2015). If the "
        "text asks for no more memory than this, there is nothing to mend.",
    ),
    "update-gate-low": Rule(
        f"a GRU whose update gate is below {OPEN_UPDATE:g} on average",
        "The update gate keeps the old state: low, it rewrites the state at every step.",
        "Raise the update gate's bias to 1 or more before training. If the text asks for no more memory than this, "
        "there is nothing to mend.",
    ),
    "contracts": Rule(
        "a plain RNN in which the largest slope of f times the spectral norm of W_hh is below 1",
        "Every step then shrinks every gradient: decay is certain, whatever the data.",
        "Start W_hh orthogonal (as chainrule does) and lower the weight decay; or use an LSTM.",
    ),
    "vanishes": Rule(
        "a plain RNN to which no rule above applies",
        "The product of the Jacobians falls although no single one must.",
        "If the data reaches back further, use an LSTM or GRU.",
    ),
    "fades": Rule(
        "an LSTM or GRU to which no rule above applies: its gates are open, and the gradient fades nonetheless",
        "Earlier inputs were not worth keeping, or were never within one chunk of training.",
        "Train on longer chunks (--chunk-length) if the data reaches back further.",
    ),
}
