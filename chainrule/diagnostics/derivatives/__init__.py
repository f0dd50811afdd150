"""Each recurrence along real data, and the derivative of its every step."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.diagnostics.derivatives.derivative import Derivative, Passage
    from chainrule.diagnostics.derivatives.gru import gru_reset_after, gru_reset_before
    from chainrule.diagnostics.derivatives.lstm import lstm
    from chainrule.diagnostics.derivatives.rnn import rnn

__all__ = ["Derivative", "Passage", "gru_reset_after", "gru_reset_before", "lstm", "rnn"]

__getattr__, __dir__ = attach(__name__)
