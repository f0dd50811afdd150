"""An encoder of whole rows by name: recurrent in both directions, or a Transformer."""

from chainrule.layers.bidirectional import Bidirectional
from chainrule.layers.recurrent_stack import CELLS
from chainrule.layers.transformer_encoder import TransformerEncoder

TRANSFORMER = "transformer"


def row_encoder(
    cell: str, input_size: int, hidden_size: int, num_layers: int = 1, dropout: float = 0.0, num_heads: int = 4
) -> Bidirectional | TransformerEncoder:
    """Layers in which every element knows its whole row; both kinds are called alike.

    Args:
        cell: "lstm", "gru", "rnn" or "transformer".
        input_size: N.
        hidden_size: units of each layer and direction; of a Transformer its width, a multiple of `num_heads`.
        num_layers: recurrent layers, or blocks.
        dropout: probability of zeroing in training.
        num_heads: of a Transformer.

    Raises:
        ValueError: an argument is out of range.

    >>> row_encoder("gru", 3, 8).output_size, row_encoder("transformer", 3, 8).output_size
    (16, 8)
    """
    if cell == TRANSFORMER:
        return TransformerEncoder(input_size, hidden_size, num_layers, num_heads, dropout=dropout)
    if cell not in CELLS:
        raise ValueError(f"cell: expected one of {', '.join((*CELLS, TRANSFORMER))}, got {cell!r}")
    return Bidirectional(cell, input_size, hidden_size, num_layers, dropout)
