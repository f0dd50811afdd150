"""A captioner: an image in, a sentence about it out."""

from typing import Annotated, Literal, final

from torch import Tensor, nn

from chainrule._base import Context
from chainrule._ranges import Layers, Probability, Range, Size
from chainrule.layers._image_encoder import Backbone, ImageEncoder
from chainrule.models._attentive_decoder import AttentiveDecoder, Encoded


@final
class Captioner(AttentiveDecoder):
    r"""A convolutional network makes a grid of features; a recurrent decoder attends to it word by word.

    .. math:: p(y \mid \text{image}) = \prod_t p(y_t \mid y_{<t}, \text{grid}), \qquad
        z_t = \sum_{s} \alpha_{ts} W_v g_s

    "Show, attend and tell" with soft attention (Xu et al. 2015): each position g_s of the grid is a part of the image,
    and α says where the model looks for word t. `AttentiveDecoder` documents the rest; the decoder starts from the mean
    of the grid.

    The context is a tensor of images (B, 3, H, W), values from 0 to 255.

    Args:
        vocab_size: V, of the captions.
        encoder: makes grids (B, S, N) and has `output_size` N; if not given, the arguments below choose one.
        cell: recurrence of the decoder.
        embedding_size: features of each word, for its embedding and for its prediction.
        hidden_size: units M of each layer.
        num_layers: recurrent layers.
        image_features: features N of each place of the built-in encoder's grid; earlier stages have a half and a
            quarter of them.
        blocks: residual blocks of each stage of the built-in encoder.
        backbone: published image network that replaces the built-in encoder; its weights come from a file and are not
            trained.
        dropout: share of features dropped in training: embeddings, grid, between layers and before the output.
        attention: score of the decoder's attention to the image; `none` reads a single vector, the mean of the grid.
        input_feeding: feed the attention output for the last word back to the decoder (Luong et al. 2015).
        tie_weights: use the embeddings as output weights.
        label_smoothing: share ε of each target that is spread over all words, in training.

    >>> import torch
    >>> model = Captioner(vocab_size=7, encoder=ImageEncoder((8, 16)), hidden_size=8)
    >>> images = torch.zeros(2, 3, 16, 16, dtype=torch.uint8)
    >>> model(torch.tensor([[3, 2], [6, 0]]), images).logits.shape
    torch.Size([2, 2, 7])
    >>> model.attended(torch.tensor([[3, 2], [6, 0]]), images).shape  # 16 positions of the grid
    torch.Size([2, 2, 16])
    """

    def __init__(
        self,
        vocab_size: int,
        encoder: nn.Module | None = None,
        *,
        cell: Literal["lstm", "gru", "rnn"] = "lstm",
        embedding_size: Size = 192,
        hidden_size: Size = 256,
        num_layers: Layers = 1,
        image_features: Annotated[int, Range(8, 1 << 14)] = 128,
        blocks: Layers = 1,
        backbone: Literal["resnet18", "resnet34", "resnet50"] | None = None,
        dropout: Probability = 0.4,
        attention: Literal["additive", "multiplicative"] | None = "additive",
        input_feeding: bool = False,
        tie_weights: bool = True,
        label_smoothing: Probability = 0.0,
    ):
        if encoder is None and backbone is not None:
            encoder = Backbone(backbone)
        elif encoder is None:
            encoder = ImageEncoder((image_features // 4, image_features // 2, image_features), blocks)
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
            raise ValueError(f"context: expected images (B, 3, H, W), got {got}")
        grid = self.encoder(context)
        dropped = nn.functional.dropout(grid, self.dropout, self.training)
        return Encoded(dropped, None, dropped.mean(1))
