"""A label for every element of a sequence, given the whole of it."""

from typing import Annotated, Literal, final

import torch
from torch import Tensor, nn

from chainrule._base import Context, LikelihoodModel
from chainrule._checks import for_rows
from chainrule._ranges import check_sizes
from chainrule.heads import LinearChainCRF, TagConstraints
from chainrule.heads._linear_chain_crf import IndependentTags, TagSequences
from chainrule.layers import CharacterEncoder
from chainrule.layers._cells import check_vocabulary, symbols_of
from chainrule.layers._pointwise import dropout
from chainrule.layers._row_encoders import row_encoder
from chainrule.layers._word_forms import CHARACTER_ENCODERS, AffixEmbedding, TemplateScores, WordForm
from chainrule.modes import in_evaluation
from chainrule.option_error import OptionError
from chainrule.ranges import Layers, Probability, Range, Size

TAG_HEADS = ("crf", "softmax")
_FORMS = ("cnn+affixes", "affixes", *CHARACTER_ENCODERS, "none")


@final
class SequenceTagger(LikelihoodModel):
    r"""A bidirectional tagger with a softmax or a conditional random field over K tags.

    .. math::
        w_t = [E[x_t], \mathrm{chars}(x_t)], \qquad
        h_t = \mathrm{dropout}([\overrightarrow{h}_t, \overleftarrow{h}_t]), \qquad
        e_t = W h_t + b, \qquad y \sim p(y \mid e)

    Since every tag depends on the whole row, this is p(y | x) and not a model of x: `forward` returns the distribution
    of y, and `log_prob` its exact log-probability (Huang et al. 2015; Lample et al. 2016; Ma and Hovy 2016).

    Args:
        num_tags: K.
        vocab_size: V; words (or bases, or notes) are integers in [0, V).
        num_characters: characters are integers in [1, num_characters], and 0 pads a word; None reads words alone.
        head: "crf" chooses the tags of a sentence together, "softmax" each by itself.
        constraints: for "crf": which tags may follow each other, see `chainrule.heads.TagConstraints.bio`.
        cell: recurrence that reads the sentence; "transformer" attends to all of it.
        embedding_size: features of a word, the width of E.
        character_encoder: encoder of the characters of each word: "affixes" reads its first and last four, "lstm" and
            "cnn" read all of them, "cnn+affixes" does both (see `WordForm`), "none" reads words only. If not given, the
            task takes "affixes" for few passes.
        character_size: features of a word from its characters; an even number for an LSTM.
        affix_dropout: share of words whose affixes are dropped in training, for "cnn+affixes".
        hidden_size: units M of each layer in each direction; of a Transformer, the width of its blocks.
        num_layers: layers that read the sentence from both ends.
        dropout: share of features zeroed in training: of words, between layers, and of h.
        num_heads: of a Transformer, a divisor of M.
        templates: scores of templates, fitted before: the tags then follow from the mean of theirs, z, and of the
            network's, :math:`\tfrac{1}{2}(e_t + z_t)`. Both make different mistakes. Training maximises the likelihood
            of the network alone, so that it leaves nothing to them; `log_prob` is of the mean.

    The context of `forward` and of the derived methods is the words, (B, T), or with characters the mapping {"words":
    (B, T), "characters": (B, T, C)}, C characters of each word, 0 past its end. Nothing past the length of a row is
    read, but it must contain integers in range.

    >>> tagger = SequenceTagger(num_tags=3, vocab_size=10, hidden_size=8).eval()
    >>> words, lengths = torch.tensor([[4, 7, 1], [2, 0, 0]]), torch.tensor([3, 1])
    >>> tagger.decode(words, lengths).shape, tagger.marginals(words, lengths).sum(2).round()
    (torch.Size([2, 3]), tensor([[1., 1., 1.],
            [1., 0., 0.]], grad_fn=<RoundBackward0>))
    >>> tagger.log_prob(torch.tensor([[0, 2, 1], [1, 0, 0]]), words, lengths).shape
    torch.Size([2])
    """

    def __init__(
        self,
        num_tags: int,
        vocab_size: int,
        num_characters: int | None = None,
        *,
        head: Literal["crf", "softmax"] = "crf",
        constraints: TagConstraints | None = None,
        cell: Literal["lstm", "gru", "rnn", "transformer"] = "lstm",
        embedding_size: Size = 100,
        character_encoder: Literal["cnn+affixes", "affixes", "lstm", "cnn", "none"] = "cnn+affixes",
        character_size: Annotated[int, Range(2, 1 << 16)] = 128,
        affix_dropout: Probability = 0.5,
        hidden_size: Size = 200,
        num_layers: Layers = 1,
        dropout: Probability = 0.4,
        num_heads: Layers = 4,
        templates: TemplateScores | None = None,
    ):
        super().__init__()
        check_sizes(vocab_size=vocab_size, embedding_size=embedding_size)
        if head not in TAG_HEADS:
            raise OptionError("head", f"expected one of {', '.join(TAG_HEADS)}, got {head!r}")
        if head == "softmax" and constraints is not None:
            raise ValueError("constraints: a softmax chooses each tag by itself and can keep none: use head='crf'")
        if character_encoder not in _FORMS:
            raise OptionError("character_encoder", f"expected one of {', '.join(_FORMS)}, got {character_encoder!r}")
        if character_encoder == "none":
            num_characters = None
        if num_characters is not None and character_encoder == "lstm" and character_size % 2:
            raise OptionError(
                "character_size", f"expected an even number for the character encoder lstm, got {character_size}"
            )
        self.dropout = dropout
        self.embedding = nn.Embedding(vocab_size, embedding_size)
        self.characters: WordForm | AffixEmbedding | CharacterEncoder | None = None
        if num_characters is not None and character_encoder == "cnn+affixes":
            self.characters = WordForm(num_characters, character_size, affix_dropout)
        elif num_characters is not None and character_encoder == "affixes":
            self.characters = AffixEmbedding(num_characters, character_size)
        elif num_characters is not None:
            self.characters = CharacterEncoder(num_characters, output_size=character_size, kind=character_encoder)
        width = embedding_size + (0 if self.characters is None else character_size)
        self.encoder = row_encoder(cell, width, hidden_size, num_layers, dropout, num_heads)
        self.head: LinearChainCRF | IndependentTags = (
            LinearChainCRF(num_tags, constraints) if head == "crf" else IndependentTags(num_tags)
        )
        self.output = nn.Linear(self.encoder.output_size, num_tags)
        if templates is not None and templates.table.shape[1] != num_tags:
            raise ValueError(f"templates: expected scores of {num_tags} tags, got {templates.table.shape[1]}")
        self.templates = templates

    def forward(self, context: Context, lengths: Tensor | None = None) -> TagSequences:
        """p(y | x), of batch shape (B,) and event shape (T,).

        Args:
            context: the words of each row, with or without characters; see the class.
            lengths: (B,) words of each row, 0 allowed; None where all are T.

        Raises:
            ValueError: the context has no characters where the model reads them, or shapes do not agree.
        """
        emissions = self._emissions(context, lengths)
        if self.templates is not None:
            emissions = (emissions + self.templates(_characters(context), lengths)) / 2
        return TagSequences(self.head, emissions, lengths)

    def training_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """log p of the tags by the network alone, (B,), nats."""
        emissions = self._emissions(for_rows(context, len(x)), lengths)
        return TagSequences(self.head, emissions, lengths).log_prob(x)

    def _emissions(self, context: Context, lengths: Tensor | None) -> Tensor:
        """e of each word by the network, (B, T, K)."""
        return self.output(self._dropped(self.features(context, lengths)))

    def features(self, context: Context, lengths: Tensor | None = None) -> Tensor:
        """h of each word, (B, T, N), which its tag is predicted from."""
        h, _ = self.encoder(self._features(context), lengths)
        return h

    def log_prob(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """Exact log p(y | x) of each row, (B,), nats; -inf for what the constraints forbid.

        Args:
            x: the tags y, (B, T).
            context: the words.
            lengths: (B,).
        """
        return self.forward(for_rows(context, len(x)), lengths).log_prob(x)

    @in_evaluation
    @torch.no_grad()
    def decode(self, context: Context, lengths: Tensor | None = None) -> Tensor:
        """Return the most probable tags of each row, (B, T); -1 past its end."""
        return self.forward(context, lengths).mode

    def marginals(self, context: Context, lengths: Tensor | None = None) -> Tensor:
        """p(y_t = k | x), (B, T, K); 0 past each row's end."""
        return self.forward(context, lengths).marginals

    @in_evaluation
    @torch.no_grad()
    def n_best(self, context: Context, lengths: Tensor | None = None, *, n: int) -> tuple[Tensor, Tensor]:
        """Return the n most probable tag sequences of each row, best first, (B, n, T), and log p, (B, n), nats."""
        return self.forward(context, lengths).n_best(n)

    def _features(self, context: Context) -> Tensor:
        """Return the words as the encoder reads them, (B, T, N)."""
        words = context["words"] if isinstance(context, dict) else context
        if not isinstance(words, Tensor):
            raise ValueError(f"context: expected words, (B, T) integers, got {type(words).__name__}")
        if words.dim() != 2 or words.is_floating_point():
            raise ValueError(f"context: expected words as integers (B, T), got {words.dtype} of {tuple(words.shape)}")
        features = self.embedding(check_vocabulary(symbols_of(words), self.embedding.num_embeddings, "words"))
        if self.characters is not None:
            characters = _characters(context)
            if characters.shape[:2] != words.shape:
                raise ValueError(f"context: expected characters {(*words.shape, 'C')}, got {tuple(characters.shape)}")
            features = torch.cat([features, self.characters(characters).to(features.dtype)], 2)
        return self._dropped(features)

    def _dropped(self, features: Tensor) -> Tensor:
        return dropout(features, self.dropout, self.training)


def _characters(context: Context) -> Tensor:
    """Return the characters of each word."""
    if not isinstance(context, dict) or not isinstance(context.get("characters"), Tensor):
        raise ValueError('context: expected {"words": (B, T), "characters": (B, T, C)}, got words alone')
    return context["characters"]
