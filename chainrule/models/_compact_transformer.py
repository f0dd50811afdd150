"""A compact convolutional Transformer: attention for few and small images."""

from typing import Annotated, final

from torch import Tensor, nn

from chainrule._ranges import Layers, Probability, Range, Size
from chainrule.layers._positions import grid_sinusoids
from chainrule.layers._residual_block import shrink_residuals
from chainrule.layers._row_encoders import EncoderBlock
from chainrule.models._image_classifier import ImageClassifier
from chainrule.models._vision_transformer import START, block_attention, encoder_blocks


@final
class CompactTransformer(ImageClassifier):
    r"""A classifier by attention between convolutional tokens (Hassani et al. 2021, CCT).

    .. math:: z = \mathrm{tokens}(x) + P, \qquad z \leftarrow \mathrm{block}_l(z), \qquad
        f(x) = \sum_t \mathrm{softmax}_t(w^\top z_t)\, z_t

    The tokens are the places of a small convolutional network, 3×3 convolutions with max pooling by 2 each, so that
    neighbours overlap; sequence pooling takes the place of a class token.

    Args:
        image_shape: (C, H, W).
        num_classes: labels are integers in [0, num_classes).
        levels: V, values that a channel of a pixel may have.
        convolutions: layers of the tokeniser; each halves height and width.
        model_size: D features of a token, a multiple of `num_heads`.
        num_layers: blocks.
        num_heads: heads of attention in each block.
        dropout: probability of zeroing, in training, what a branch adds.
        label_smoothing: share of the training objective that is spread evenly over the labels.
        mixup: α of mixup in training: pairs of images are averaged with weights from Beta(α, α); 0 turns it off. If not
            given, the task uses 0.4 for 40 passes over the images or more, else 0.

    >>> import torch
    >>> model = CompactTransformer((1, 8, 8), num_classes=3, levels=2, model_size=8, num_layers=1, num_heads=2)
    >>> model(torch.randint(2, (2, 1, 8, 8))).probs.shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_classes: int,
        levels: int = 256,
        *,
        convolutions: Annotated[int, Range(1, 6)] = 2,
        model_size: Size = 96,
        num_layers: Layers = 4,
        num_heads: Layers = 4,
        dropout: Probability = 0.0,
        label_smoothing: Probability = 0.05,
        mixup: Annotated[float, Range(0.0, 100.0)] = 0.0,
    ):
        super().__init__(image_shape, num_classes, levels, label_smoothing, mixup)
        channels, height, width = image_shape
        layers: list[nn.Module] = []
        for index in range(convolutions):
            inside = model_size if index == convolutions - 1 else max(8, model_size // 2)
            layers += [nn.Conv2d(channels, inside, 3, padding=1), nn.MaxPool2d(3, 2, padding=1), nn.ReLU()]
            channels, height, width = inside, (height + 1) // 2, (width + 1) // 2
        self.tokens = nn.Sequential(*layers)
        self._grid = height, width
        self.positions = nn.Parameter(START * grid_sinusoids(height, width, model_size).float())
        self.blocks = nn.ModuleList(
            EncoderBlock(model_size, num_heads, position=None, dropout=dropout) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(model_size)
        self.pool = nn.Linear(model_size, 1)
        for module in layers:
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        shrink_residuals(self.blocks)
        self._add_output(model_size)

    def features(self, x: Tensor) -> Tensor:
        z = self._read(x)
        return (self.pool(z).softmax(1) * z).sum(1)

    def pooling_weights(self, images: Tensor) -> Tensor:
        """Share of each token in the features, (B, T)."""
        return self.pool(self._read(self.scaled(images))).softmax(1).squeeze(2)

    def attended(self, images: Tensor) -> list[Tensor]:
        """Attention of every block, (B, H, T, T) each."""
        return block_attention(self._places(self.scaled(images)), self.blocks)

    def grid(self) -> tuple[int, int]:
        """Rows and columns of tokens."""
        return self._grid

    def _read(self, x: Tensor) -> Tensor:
        z = self._places(x)
        for block in encoder_blocks(self.blocks):
            z = block(z)
        return self.norm(z)

    def _places(self, x: Tensor) -> Tensor:
        z: Tensor = self.tokens(x)
        return z.flatten(2).transpose(1, 2) + self.positions
