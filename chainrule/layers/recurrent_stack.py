"""A stack of recurrent layers by the name of its cell, with weights that begin well."""

from chainrule.layers.gru import GRU
from chainrule.layers.initial_weights import draw_recurrent_weights
from chainrule.layers.lstm import LSTM
from chainrule.layers.recurrent import Recurrent
from chainrule.layers.rnn import RNN

CELLS: dict[str, type[LSTM] | type[GRU] | type[RNN]] = {"lstm": LSTM, "gru": GRU, "rnn": RNN}


def recurrent_stack(
    cell: str, input_size: int, hidden_size: int, num_layers: int = 1, dropout: float = 0.0
) -> Recurrent:
    """Causal recurrent layers, their weights drawn by `draw_recurrent_weights`.

    Args:
        cell: "lstm", "gru" (torch.nn's, `reset_after`) or "rnn" (tanh).
        input_size: N.
        hidden_size: M, units of each layer.
        num_layers: layers.
        dropout: probability of zeroing what goes from layer to layer, in training.

    Raises:
        ValueError: an argument is out of range.

    >>> recurrent_stack("gru", input_size=3, hidden_size=4)
    GRU(3, 4, batch_first=True, reset_after=True)
    """
    for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
        if value < 1:
            raise ValueError(f"{name}: expected an integer >= 1, got {value}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout: expected a number in [0, 1), got {dropout}")
    if cell not in CELLS:
        raise ValueError(f"cell: expected one of {', '.join(CELLS)}, got {cell!r}")
    layers = CELLS[cell](input_size, hidden_size, num_layers, dropout=dropout)
    draw_recurrent_weights(layers)
    return layers
