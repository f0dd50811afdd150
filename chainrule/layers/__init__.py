"""Building blocks without a loss."""

from chainrule.layers.gru import GRU
from chainrule.layers.lstm import LSTM
from chainrule.layers.recurrent import Recurrent
from chainrule.layers.rnn import RNN

__all__ = ["GRU", "LSTM", "RNN", "Recurrent"]
