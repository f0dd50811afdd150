"""Encoders in which every element knows its whole row: recurrent in both directions, or by name."""

from typing import final

from torch import Tensor, nn

from chainrule.layers._recurrent_stack import CELLS, recurrent_stack
from chainrule.layers._transformer_encoder import TransformerEncoder
from chainrule.state import State, map_state


@final
class Bidirectional(nn.Module):
    r"""A stack of recurrent layers that read each row from both ends (Schuster and Paliwal 1997).

    .. math::
        \overrightarrow{h}_t = \mathrm{cell}(x_t, \overrightarrow{h}_{t-1}), \qquad
        \overleftarrow{h}_t = \mathrm{cell}'(x_t, \overleftarrow{h}_{t+1}), \qquad
        y_t = [\overrightarrow{h}_t, \overleftarrow{h}_t]

    The backward direction begins at each row's own end, so that padding is never read: it may hold NaN. The next layer
    reads y. As each y_t knows the whole row, it belongs into an encoder, never under a causal model.

    Args:
        cell: "lstm", "gru" (torch.nn's, `reset_after`) or "rnn" (tanh).
        input_size: N.
        hidden_size: M, units of each layer in each direction.
        num_layers: layers.
        dropout: probability of zeroing what goes from layer to layer, in training.

    `recurrent` is the stack itself, `chainrule.layers.LSTM` and so on, with torch.nn's parameter names.

    >>> import torch
    >>> encoder = Bidirectional("lstm", input_size=3, hidden_size=4, num_layers=2)
    >>> outputs, (h, c) = encoder(torch.zeros(5, 7, 3), lengths=torch.tensor([7, 2, 0, 1, 7]))
    >>> outputs.shape, h.shape
    (torch.Size([5, 7, 8]), torch.Size([2, 5, 8]))
    """

    def __init__(self, cell: str, input_size: int, hidden_size: int, num_layers: int = 1, dropout: float = 0.0):
        super().__init__()
        self.recurrent = recurrent_stack(cell, input_size, hidden_size, num_layers, dropout, bidirectional=True)
        self.output_size = 2 * hidden_size

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Read whole rows.

        Args:
            x: (B, T, N) features, or (B, T) integers in [0, N), each the one-hot vector of a symbol.
            lengths: (B,) real elements of each row, 0 allowed; None where all rows are full.

        Returns:
            The top layer's y, (B, T, 2M), zero past each row's end; and the last state of each layer, h or the pair
            (h, c), each (num_layers, B, 2M): forwards that after the row's last element, backwards that after its
            first; zero for a row of length 0.
        """
        outputs, state = self.recurrent(x, None, lengths)
        return outputs, map_state(self._by_layer, state)

    def _by_layer(self, part: Tensor) -> Tensor:
        layers = part.unflatten(1, (self.recurrent.num_layers, 2))  # (B, L, 2, M)
        return layers.flatten(2).transpose(0, 1)


TRANSFORMER = "transformer"


def row_encoder(
    cell: str, input_size: int, hidden_size: int, num_layers: int = 1, dropout: float = 0.0, num_heads: int = 4
) -> Bidirectional | TransformerEncoder:
    """Layers in which every element knows its whole row; both kinds are called alike."""
    if cell == TRANSFORMER:
        return TransformerEncoder(input_size, hidden_size, num_layers, num_heads, dropout=dropout)
    if cell not in CELLS:
        raise ValueError(f"cell: expected one of {', '.join((*CELLS, TRANSFORMER))}, got {cell!r}")
    return Bidirectional(cell, input_size, hidden_size, num_layers, dropout)
