"""A captioner: a picture in, a sentence about it out."""

from typing import final

from torch import Tensor, nn

from chainrule.base import Context
from chainrule.layers.picture_encoder import PictureEncoder
from chainrule.models.attentive_decoder import AttentiveDecoder, Encoded


@final
class Captioner(AttentiveDecoder):
    r"""A convolutional network makes a grid of features; a recurrent decoder attends to it word by word.

    .. math:: p(y \mid \text{picture}) = \prod_t p(y_t \mid y_{<t}, \text{grid}), \qquad
        z_t = \sum_{s} \alpha_{ts} W_v g_s

    "Show, attend and tell" with soft attention (Xu et al. 2015): each position g_s of the grid is a part of the
    picture, and α says where the model looks for the word t. The rest is told by `AttentiveDecoder`; the summary from
    which the decoder begins is the mean of the grid.

    The context is a tensor of pictures (B, 3, H, W), values from 0 to 255.

    Args:
        vocab_size: V, of the captions.
        encoder: makes grids (B, S, N) and has `output_size` N; a `PictureEncoder` if not given, or a `Backbone`.
        cell: "lstm", "gru" or "rnn".
        embedding_size: of words; also what a word is predicted from.
        hidden_size: M, units of each layer.
        num_layers: recurrent layers.
        dropout: probability of zeroing in training, on embeddings, grid, between layers and before the output.
        attention: "additive", "multiplicative", or None for the summary alone.
        input_feeding: show the decoder what the last word was predicted from.
        tie_weights: use the embeddings as output weights.
        label_smoothing: ε of the training objective.

    Raises:
        ValueError: an argument is out of range.

    >>> import torch
    >>> model = Captioner(vocab_size=7, encoder=PictureEncoder((8, 16)), hidden_size=8)
    >>> pictures = torch.zeros(2, 3, 16, 16, dtype=torch.uint8)
    >>> model(torch.tensor([[3, 2], [6, 0]]), pictures).logits.shape
    torch.Size([2, 2, 7])
    >>> model.attended(torch.tensor([[3, 2], [6, 0]]), pictures).shape  # 16 positions of the grid
    torch.Size([2, 2, 16])
    """

    def __init__(
        self,
        vocab_size: int,
        encoder: nn.Module | None = None,
        cell: str = "lstm",
        embedding_size: int = 256,
        hidden_size: int = 256,
        num_layers: int = 1,
        dropout: float = 0.0,
        *,
        attention: str | None = "additive",
        input_feeding: bool = False,
        tie_weights: bool = True,
        label_smoothing: float = 0.0,
    ):
        encoder = PictureEncoder() if encoder is None else encoder
        size = int(encoder.output_size)  # type: ignore[arg-type]  # a module's attributes are tensors to mypy
        super().__init__(
            vocab_size,
            size,
            size,
            cell=cell,
            embedding_size=embedding_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            dropout=dropout,
            attention=attention,
            input_feeding=input_feeding,
            tie_weights=tie_weights,
            label_smoothing=label_smoothing,
        )
        self.encoder = encoder

    def encode(self, context: Context) -> Encoded:
        if not isinstance(context, Tensor) or context.dim() != 4 or context.shape[1] != 3:
            got = tuple(context.shape) if isinstance(context, Tensor) else type(context).__name__
            raise ValueError(f"context: expected pictures (B, 3, H, W), got {got}")
        grid = self.encoder(context)
        dropped = nn.functional.dropout(grid, self.dropout, self.training)
        return Encoded(dropped, None, dropped.mean(1))
