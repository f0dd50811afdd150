"""Encoders in which every element depends on its whole row: recurrent in both directions, or by attention."""

from typing import Unpack, final

import torch
from torch import Tensor, nn

from chainrule._ranges import check_sizes
from chainrule.layers._multi_head_attention import (
    HEAD_POSITIONS,
    MultiHeadAttention,
    attention_weights,
    distances,
    scaled_dot_product,
)
from chainrule.layers._packing import zero_past_ends
from chainrule.layers._pointwise import dropout
from chainrule.layers._positions import SinusoidalPositions, distance_slopes
from chainrule.layers._recurrent_stack import CELLS, recurrent_stack
from chainrule.layers._transformer_stack import BlockOptions, ResidualBlock, last_norm, shrink_residuals
from chainrule.option_error import OptionError
from chainrule.state import State, map_state


class TransformerEncoder(nn.Module):
    """A stack of bidirectional blocks over (B, T, N): the encoder of a translator, a tagger or a classifier.

    Its calls are the same as for `Bidirectional`, so that either can replace the other.
    """

    def __init__(
        self,
        input_size: int,
        model_size: int,
        num_layers: int,
        num_heads: int,
        *,
        position: str | None = "rotary",
        **options: Unpack[BlockOptions],
    ):
        super().__init__()
        check_sizes(input_size=input_size, num_layers=num_layers)
        if position is not None and position not in (*HEAD_POSITIONS, "sinusoidal"):
            raise OptionError(
                "position", f"expected one of {', '.join(HEAD_POSITIONS)}, sinusoidal, or None, got {position!r}"
            )
        self.output_size = model_size
        self.project = nn.Identity() if input_size == model_size else nn.Linear(input_size, model_size)
        self.positions = SinusoidalPositions(model_size) if position == "sinusoidal" else None
        own = position if position in HEAD_POSITIONS else None
        blocks = [EncoderBlock(model_size, num_heads, position=own, bias=False, **options) for _ in range(num_layers)]
        self.blocks, self.norm, self.dropout = nn.ModuleList(blocks), last_norm(blocks[0]), blocks[0].dropout
        shrink_residuals(self.blocks)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Read whole rows (B, T, N), whose padding may hold NaN.

        Returns the outputs (B, T, D), zero past each row's end; and each row's last output, (1, B, D), zero for a row
        of length 0.
        """
        x = self.project(zero_past_ends(x, lengths))
        if self.positions is not None:
            x, _ = self.positions(x)
        x = dropout(x, self.dropout, self.training)
        for block in self.blocks:
            x = block(x, lengths)
        x = zero_past_ends(self.norm(x), lengths)
        if lengths is None:
            return x, x[:, -1].unsqueeze(0) if x.shape[1] else x.new_zeros(1, len(x), x.shape[2])
        if not x.shape[1]:
            return x, x.new_zeros(1, len(x), x.shape[2])
        last = x[torch.arange(len(x), device=x.device), (lengths.long() - 1).clamp(min=0)]
        return x, last.unsqueeze(0)


class EncoderBlock(ResidualBlock):
    """Bidirectional attention and a feed-forward network, each with a norm and a residual."""

    def __init__(
        self,
        model_size: int,
        num_heads: int,
        *,
        position: str | None = "rotary",
        bias: bool = True,
        **options: Unpack[BlockOptions],
    ):
        mixer = BidirectionalAttention(model_size, num_heads, position=position, bias=bias)
        super().__init__(mixer, model_size, bias=bias, **options)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D), zero past each row's end."""
        y = self._after_mixer(x, self.mixer(self._mixer_input(x), lengths))
        return zero_past_ends(y, lengths)


class BidirectionalAttention(MultiHeadAttention):
    """Multi-head attention in which each element reads every real element of its row.

    Since each y_t depends on the whole row, use it in encoders, never in causal models. The arguments are those
    of `MultiHeadAttention`; under "alibi" a score loses in proportion to the distance in either direction.
    """

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Read whole rows (B, T, D), whose padding may hold NaN: y, (B, T, D), zero past each row's end."""
        x, real = self._checked(x, lengths)
        queries, keys, values = self._heads(x, torch.arange(x.shape[1], device=x.device))
        y = self._joined(scaled_dot_product(queries, keys, values, self._mask(real, queries)))
        return y if real is None else y * real.unsqueeze(2)

    def attended(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """α, (B, H, T, T); 0 for keys past a row's end."""
        x, real = self._checked(x, lengths)
        queries, keys, _ = self._heads(x, torch.arange(x.shape[1], device=x.device))
        return attention_weights(queries, keys, self._mask(real, queries))

    def _mask(self, real: Tensor | None, queries: Tensor) -> Tensor | None:
        time = queries.shape[2]
        if real is not None:
            # A row without elements reads its padding, all zeros, and is zeroed after: no softmax over nothing.
            real = (real | ~real.any(1, keepdim=True))[:, None, None]
        if self.position != "alibi":
            return real
        slopes = distance_slopes(self.num_heads, queries.device).to(queries).view(-1, 1, 1)
        penalties = (-slopes * distances(time, 0, queries.device).abs()).unsqueeze(0)
        return penalties if real is None else penalties.masked_fill(~real, -torch.inf)


@final
class Bidirectional(nn.Module):
    r"""A stack of recurrent layers that read each row from both ends (Schuster and Paliwal 1997).

    .. math::
        \overrightarrow{h}_t = \mathrm{cell}(x_t, \overrightarrow{h}_{t-1}), \qquad
        \overleftarrow{h}_t = \mathrm{cell}'(x_t, \overleftarrow{h}_{t+1}), \qquad
        y_t = [\overrightarrow{h}_t, \overleftarrow{h}_t]

    The backward direction begins at each row's own end, so that padding is never read: it may hold NaN. The next layer
    reads y. Since each y_t depends on the whole row, use it in encoders, never in causal models.

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
            lengths: (B,) real elements of each row, 0 allowed; None if all rows are full.

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
    """Layers in which every element depends on its whole row; both kinds are called alike."""
    if cell == TRANSFORMER:
        return TransformerEncoder(input_size, hidden_size, num_layers, num_heads, dropout=dropout)
    if cell not in CELLS:
        raise OptionError("cell", f"expected one of {', '.join((*CELLS, TRANSFORMER))}, got {cell!r}")
    return Bidirectional(cell, input_size, hidden_size, num_layers, dropout)
