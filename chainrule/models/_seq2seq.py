"""A translator: a sequence in, another of any length out."""

from typing import Literal, final

from torch import Tensor, nn

from chainrule._base import Context
from chainrule._ranges import Layers, Probability, Size, check_sizes
from chainrule.layers._row_encoders import Bidirectional
from chainrule.models._attentive_decoder import AttentiveDecoder, Encoded
from chainrule.models._conditioned import checked_source


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
