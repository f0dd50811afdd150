"""A stack of recurrent layers by the name of its cell, with weights that train well."""

from torch import nn

from chainrule._ranges import check_shares, check_sizes
from chainrule.layers._gru import GRU
from chainrule.layers._lstm import LSTM
from chainrule.layers._recurrent import Recurrent
from chainrule.layers._rnn import RNN

CELLS = ("lstm", "gru", "rnn")


def recurrent_stack(
    cell: str,
    input_size: int,
    hidden_size: int,
    num_layers: int = 1,
    dropout: float = 0.0,
    *,
    bidirectional: bool = False,
    reset_after: bool = True,
    nonlinearity: str = "tanh",
) -> Recurrent:
    """Recurrent layers with recurrences orthogonal gate by gate and open forget gates (Jozefowicz et al. 2015).

    Args:
        cell: "lstm", "gru" or "rnn".
        input_size: N.
        hidden_size: M, units of each layer.
        num_layers: layers.
        dropout: probability of zeroing an element of h between layers, in training.
        bidirectional: add a second pass from each row's end to its start.
        reset_after: which GRU (see `chainrule.layers.GRU`).
        nonlinearity: activation of the RNN (see `chainrule.layers.RNN`).

    Raises:
        ValueError: an argument is out of range.

    >>> layers = recurrent_stack("lstm", input_size=3, hidden_size=2)
    >>> layers, layers.bias_ih_l0.tolist()
    (LSTM(3, 2, batch_first=True), [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    """
    check_sizes(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
    check_shares(dropout=dropout)
    layers: Recurrent
    match cell:
        case "lstm":
            layers = LSTM(input_size, hidden_size, num_layers, dropout=dropout, bidirectional=bidirectional)
        case "gru":
            layers = GRU(
                input_size,
                hidden_size,
                num_layers,
                dropout=dropout,
                bidirectional=bidirectional,
                reset_after=reset_after,
            )
        case "rnn":
            layers = RNN(
                input_size, hidden_size, num_layers, nonlinearity, dropout=dropout, bidirectional=bidirectional
            )
        case _:
            raise ValueError(f"cell: expected one of {', '.join(CELLS)}, got {cell!r}")
    _draw_weights(layers)
    return layers


def _draw_weights(layers: Recurrent) -> None:
    size = layers.hidden_size
    for name, parameter in layers.named_parameters():
        if parameter.is_meta:  # no numbers to draw, and a second's import to find that out
            return
        if name.startswith("weight_hh"):
            for gate in parameter.data.split(size):
                nn.init.orthogonal_(gate)
        elif name.startswith("bias"):
            nn.init.zeros_(parameter)
            if isinstance(layers, LSTM) and name.startswith("bias_ih"):
                nn.init.ones_(parameter.data[size : 2 * size])
        else:
            nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
