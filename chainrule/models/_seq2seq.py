"""Recurrent encoder-decoders: a translator, from a sequence to another of any length, and a captioner of images."""

from typing import Annotated, Literal, final

from torch import Tensor, nn

from chainrule._base import Context
from chainrule._ranges import check_sizes
from chainrule.layers._image_encoder import Backbone, ImageEncoder
from chainrule.layers._row_encoders import Bidirectional
from chainrule.models._attentive_decoder import AttentiveDecoder, Encoded
from chainrule.models._conditioned import checked_source
from chainrule.ranges import Layers, Probability, Range, Size


@final
class Seq2Seq(AttentiveDecoder):
    r"""A bidirectional recurrent encoder and a recurrent decoder that attends to it.

    .. math:: p(y \mid x) = \prod_{t} p(y_t \mid y_{<t}, x), \qquad
        m_s = [\overrightarrow{h}_s, \overleftarrow{h}_s], \qquad s = [\overrightarrow{h}_S, \overleftarrow{h}_1]

    The encoder is bidirectional (Bahdanau, Cho and Bengio 2015). `AttentiveDecoder` documents how the decoder uses the
    memory m and the summary s (Luong, Pham and Manning 2015), and label smoothing in its training objective.

    The context is a dict: "tokens" (B, S), integers in [0, source_vocab_size), and "lengths" (B,), the real ones of
    each row. A row of length 0 is allowed.

    Args:
        source_vocab_size: symbols of the source.
        target_vocab_size: V, of the target.
        cell: recurrence of encoder and decoder.
        embedding_size: features E of a source or target word, for its embedding and for its prediction.
        hidden_size: units M of each layer of the decoder, and of each layer and direction of the encoder.
        num_layers: recurrent layers of the encoder, and of the decoder.
        dropout: share of features dropped in training: embeddings, between layers, memory and before the output. If not
            given, the task uses 0 to 0.4, more for more passes over the pairs.
        attention: score of the decoder's attention to the source; `none` gives it a fixed vector.
        input_feeding: feed the attention output for the last word back to the decoder (Luong et al. 2015).
        tie_weights: use the target embeddings as output weights.
        label_smoothing: share ε of each target that is spread over all words, in training.

    >>> import torch
    >>> model = Seq2Seq(source_vocab_size=9, target_vocab_size=7, hidden_size=8)
    >>> source = {"tokens": torch.tensor([[1, 2, 3], [4, 5, 0]]), "lengths": torch.tensor([3, 2])}
    >>> model(torch.tensor([[3, 2], [6, 0]]), source).logits.shape
    torch.Size([2, 2, 7])
    >>> from chainrule.decoding import beam_search
    >>> [first, second] = beam_search(model.eval(), source, beam_size=3, max_length=5, eos=0)
    """

    def __init__(
        self,
        source_vocab_size: int,
        target_vocab_size: int,
        cell: Literal["lstm", "gru", "rnn"] = "gru",
        embedding_size: Size = 256,
        hidden_size: Size = 256,
        num_layers: Layers = 1,
        dropout: Probability = 0.4,
        *,
        attention: Literal["additive", "multiplicative"] | None = "multiplicative",
        input_feeding: bool = True,
        tie_weights: bool = True,
        label_smoothing: Probability = 0.1,
    ):
        check_sizes(source_vocab_size=source_vocab_size, target_vocab_size=target_vocab_size)
        super().__init__(
            target_vocab_size,
            2 * hidden_size,
            2 * hidden_size,
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
        self.source_vocab_size = source_vocab_size
        self.source_embedding = nn.Embedding(source_vocab_size, embedding_size)
        self.encoder = Bidirectional(cell, embedding_size, hidden_size, num_layers, dropout)
        if not self.source_embedding.weight.is_meta:
            nn.init.normal_(self.source_embedding.weight, std=embedding_size**-0.5)

    def encode(self, context: Context) -> Encoded:
        tokens, lengths = checked_source(context, self.source_vocab_size)
        outputs, final = self.encoder(self._dropped(self.source_embedding(tokens)), lengths)
        top = final[0][-1] if self.decoder.has_cell else final[-1]
        return Encoded(self._dropped(outputs), lengths, self._dropped(top))

    def _dropped(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, self.dropout, self.training)


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
