"""Many-to-one: a label or numbers for a whole sequence."""

import math
from collections.abc import Sequence
from typing import Annotated, Literal, final

import torch
from torch import Tensor, nn

from chainrule._base import Context, LikelihoodModel
from chainrule._ranges import check_shares, check_sizes
from chainrule.heads import Categorical
from chainrule.heads._computed_categorical import CategoricalMean
from chainrule.heads._real_mixtures import GaussianMixture
from chainrule.layers._cells import check_vocabulary
from chainrule.layers._ngrams import NgramScores
from chainrule.layers._packing import POOLINGS, AttentionPooling, max_pooling, mean_pooling, real_steps
from chainrule.layers._recurrent import Recurrent
from chainrule.layers._recurrent_stack import recurrent_stack
from chainrule.layers._row_encoders import TRANSFORMER, Bidirectional, TransformerEncoder, row_encoder
from chainrule.models._conditioned import check_one_label_a_row, checked_inputs
from chainrule.option_error import OptionError
from chainrule.ranges import Layers, Probability, Range, Size

NOTHING = -1  # no symbol: what fills up a bag


@final
class SequenceClassifier(LikelihoodModel):
    r"""p(y | x) of one label y for a whole sequence x: many-to-one.

    .. math::
        h_{1..T} = \mathrm{encoder}(x_{1..T}), \qquad z = \mathrm{pool}(h_{1..T}), \qquad
        p(y \mid x) = \mathrm{softmax}(W z + b)

    x is a sequence of symbols (B, T), of bags of symbols (B, T, K), such as a word with its character n-grams
    (Bojanowski et al. 2017), or of feature frames (B, T, N), such as a spectrum at each moment. A bag is a symbol s and
    k parts of it, :math:`E_s + \frac{1}{\sqrt k} \sum_j E_{p_j}`; -1 pads bags.

    With `ngram_order` N >= 1 the answer is the mean of this p and of a linear classifier of the n-grams of the symbols
    (of a bag, its first), up to N together, `NgramScores`:

    .. math:: p(y \mid x) = \tfrac{1}{2} \mathrm{softmax}(W z + b) + \tfrac{1}{2} \mathrm{softmax}(\mathrm{ngrams}(x))

    They make different mistakes, especially on few texts. Training maximises the mean of their log-likelihoods, so that
    neither relies on the other; `log_prob` is the log-probability of the mean.

    For an empty sequence the answer is the prior.

    Args:
        num_classes: labels are integers in [0, num_classes).
        vocab_size: V, of sequences of symbols; give this or `feature_size`.
        feature_size: N, of sequences of frames.
        cell: recurrence that reads the sequence; "transformer" attends to all of it.
        embedding_size: features of a word, character or byte; unused with frames.
        hidden_size: units M of each layer in each direction; of a Transformer, the width of its blocks.
        num_layers: layers, or blocks of a Transformer.
        bidirectional: read from both ends.
        pooling: combines all steps into one vector: last (the state after the whole sequence), mean, max, attention, or
            several of them joined by +, which are concatenated.
        dropout: share of features zeroed in training: of the input, between layers and of z.
        symbol_dropout: share of symbols dropped in training.
        prior: (num_classes,) probabilities of the labels before anything is read; uniform by default.
        num_heads: of a Transformer, a divisor of M.
        ngram_order: longest n-grams of a linear classifier that is averaged with the network; 0 for none. The task
            takes 2 for words, 6 for characters and bytes.
        ngram_symbols: the first of the V symbols, which form n-grams; V by default.

    >>> model = SequenceClassifier(num_classes=2, vocab_size=10, hidden_size=8)
    >>> context = {"inputs": torch.tensor([[1, 2, 3], [4, 5, 0]]), "lengths": torch.tensor([3, 2])}
    >>> model(context).probs.shape, model.log_prob(torch.tensor([0, 1]), context).shape
    (torch.Size([2, 2]), torch.Size([2]))
    >>> model.attend(context)[1, 2].item()  # nothing looks past a row's end
    0.0
    """

    log_prior: Tensor

    def __init__(
        self,
        num_classes: int,
        vocab_size: int | None = None,
        feature_size: int | None = None,
        cell: Literal["lstm", "gru", "rnn", "transformer"] = "lstm",
        embedding_size: Size = 100,
        hidden_size: Size = 100,
        num_layers: Layers = 1,
        bidirectional: bool = True,
        pooling: str = "attention+mean+max",
        dropout: Probability = 0.5,
        symbol_dropout: Probability = 0.3,
        prior: Sequence[float] | None = None,
        num_heads: Layers = 2,
        ngram_order: Annotated[int, Range(0, 16)] = 0,
        ngram_symbols: int | None = None,
    ):
        super().__init__()
        if (vocab_size is None) == (feature_size is None):
            raise ValueError(
                "vocab_size, feature_size: expected one of them, of symbols or of frames, "
                f"got {'neither' if vocab_size is None else 'both'}"
            )
        check_sizes(num_classes=num_classes, vocab_size=vocab_size, feature_size=feature_size)
        check_sizes(embedding_size=embedding_size, hidden_size=hidden_size, num_layers=num_layers)
        check_shares(dropout=dropout, symbol_dropout=symbol_dropout)
        if ngram_order and vocab_size is None:
            raise OptionError("ngram_order", f"expected 0 of frames, which have no n-grams, got {ngram_order}")
        if cell == TRANSFORMER and not bidirectional:
            raise OptionError("bidirectional", "a Transformer reads whole rows, got False", "use a recurrent cell")
        self.poolings = _poolings(pooling)
        self.num_classes, self.vocab_size, self.feature_size = num_classes, vocab_size, feature_size
        self.dropout, self.symbol_dropout = dropout, symbol_dropout
        # One row more: nothing, always zero.
        self.embedding = None if vocab_size is None else nn.Embedding(vocab_size + 1, embedding_size, vocab_size)
        width = embedding_size if feature_size is None else feature_size
        self.encoder: Bidirectional | TransformerEncoder | Recurrent
        if bidirectional:
            self.encoder = row_encoder(cell, width, hidden_size, num_layers, dropout, num_heads)
            outputs = self.encoder.output_size
        else:
            self.encoder = recurrent_stack(cell, width, hidden_size, num_layers, dropout)
            outputs = hidden_size
        self.attention = AttentionPooling(outputs) if "attention" in self.poolings else None
        self.output = nn.Linear(outputs * len(self.poolings), num_classes)
        self.ngrams = None
        if vocab_size is not None and ngram_order:
            symbols = vocab_size if ngram_symbols is None else ngram_symbols
            self.ngrams = NgramScores(symbols, num_classes, ngram_order)
        self.register_buffer("log_prior", _log_prior(prior, num_classes))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights of the embedding and the output; the answers begin near the prior."""
        if self.output.weight.is_meta:
            return
        if self.embedding is not None:
            nn.init.normal_(self.embedding.weight, std=0.1)
            with torch.no_grad():
                self.embedding.weight[-1].zero_()
        nn.init.normal_(self.output.weight, std=self.output.in_features**-0.5)
        with torch.no_grad():
            self.output.bias.copy_(self.log_prior)
            if self.ngrams is not None:
                self.ngrams.bias.copy_(self.log_prior)

    @torch.no_grad()
    def start_from_counts(self, counts: Tensor, scale: float = 0.4) -> None:
        r"""Initialise the first features of each symbol by its log-count ratios with the labels.

        .. math:: E_{sy} = \lambda \log \frac{p(s \mid y)}{p(s \mid \neg y)}, \qquad
            p(s \mid y) = \frac{1 + n_{sy}}{\sum_u (1 + n_{uy})}

        These are the log-count ratios of naive Bayes (Wang and Manning 2012), smoothed, so that a rare symbol has
        little weight. From this start a model of few texts trains faster and overfits less.

        Args:
            counts: (V, C) the number of texts of each label that hold each symbol.
            scale: λ; other features begin with a standard deviation of 0.1.

        Raises:
            ValueError: there are no symbols, more labels than half of the features, or counts of another shape.
        """
        if self.embedding is None or self.vocab_size is None or 2 * self.num_classes > self.embedding.embedding_dim:
            raise ValueError("counts: expected a model of symbols with at least two features for each label")
        if counts.shape != (self.vocab_size, self.num_classes):
            wanted = (self.vocab_size, self.num_classes)
            raise ValueError(f"counts: expected shape (V, C) = {wanted}, got {tuple(counts.shape)}")
        smoothed = counts.double() + 1
        rest = smoothed.sum(1, keepdim=True) - smoothed
        ratios = (smoothed / smoothed.sum(0)).log() - (rest / rest.sum(0)).log()
        self.embedding.weight[:-1, : self.num_classes] = (scale * ratios).to(self.embedding.weight)

    def forward(self, context: Context) -> Categorical:
        """p(y | x) of each row.

        Args:
            context: the sequences: a tensor where all are full, or `{"inputs": tensor, "lengths": (B,)}`, lengths 0
                allowed; padding is never read.

        Returns:
            A distribution of batch shape (B,) over the labels.
        """
        z, lengths = self._pooled(context)
        logits = [self.output(nn.functional.dropout(z, self.dropout, self.training))]
        if self.ngrams is not None:
            logits.append(self.ngrams(*self._symbols(context)))
        if lengths is not None:
            empty = (lengths == 0).unsqueeze(1)
            logits = [torch.where(empty, self.log_prior.to(scores), scores) for scores in logits]
        return Categorical(logits[0]) if self.ngrams is None else CategoricalMean([Categorical(a) for a in logits])

    def training_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """Compute log p(y | x), (B,), or the mean of its values from the network and from the n-grams."""
        if self.ngrams is None:
            return self.log_prob(x, context, lengths)
        distribution = self._labels(x, context, lengths)
        assert isinstance(distribution, CategoricalMean)
        return torch.stack([part.log_prob(x) for part in distribution.parts]).mean(0)

    def _symbols(self, context: Context) -> tuple[Tensor, Tensor | None]:
        """Return the symbols themselves, (B, T), without their parts, and the lengths."""
        inputs, lengths = self._inputs(context)
        return inputs if inputs.dim() == 2 else inputs[:, :, 0], lengths

    def features(self, context: Context) -> Tensor:
        """z of each row, (B, N): the pooled features that the network predicts the label from."""
        return self._pooled(context)[0]

    def _pooled(self, context: Context) -> tuple[Tensor, Tensor | None]:
        outputs, last, lengths = self._encoded(context)
        parts = []
        for pooling in self.poolings:
            match pooling:
                case "last":
                    parts.append(last)
                case "mean":
                    parts.append(mean_pooling(outputs, lengths))
                case "max":
                    parts.append(max_pooling(outputs, lengths))
                case "attention":
                    assert self.attention is not None
                    parts.append(self.attention(outputs, lengths)[0])
        return torch.cat([part.to(outputs) for part in parts], 1), lengths

    def log_prob(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """log p(y | x) of each label, (B,), nats.

        Args:
            x: (B,) labels.
            context: the sequences, as `forward` takes them.
            lengths: None: a label has none. Those of the sequences are in the context.
        """
        return self._labels(x, context, lengths).log_prob(x)

    def _labels(self, x: Tensor, context: Context, lengths: Tensor | None) -> Categorical:
        """p(y | x) of each row, checked to be one for each label."""
        if lengths is not None:
            raise ValueError("lengths: expected None: a label has no length; put sequence lengths in the context")
        distribution = self.forward(context)
        check_one_label_a_row(x, *distribution.batch_shape)
        return distribution

    def attend(self, context: Context) -> Tensor:
        """Return the weights α of the time steps in the pooling, (B, T), 0 past a row's end.

        Raises:
            ValueError: the model pools without attention.
        """
        if self.attention is None:
            raise OptionError("pooling", f"expected a model with attention, got one with {'+'.join(self.poolings)}")
        outputs, _, lengths = self._encoded(context)
        return self.attention.weights(outputs, lengths)

    def _encoded(self, context: Context) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the encoder's h of every step (B, T, M), the last state of its top layer (B, M), and the lengths."""
        inputs, lengths = self._inputs(context)
        features = nn.functional.dropout(self._features(inputs), self.dropout, self.training)
        if isinstance(self.encoder, Bidirectional | TransformerEncoder):
            outputs, state = self.encoder(features, lengths)
            last = (state[0] if isinstance(state, tuple) else state)[-1]
        else:
            outputs, state = self.encoder(features, None, lengths)
            last = (state[0] if isinstance(state, tuple) else state)[:, -1]
        return outputs, last, lengths

    def _inputs(self, context: Context) -> tuple[Tensor, Tensor | None]:
        inputs, lengths = checked_inputs(context)
        if lengths is None and not inputs.shape[1]:
            lengths = torch.zeros(len(inputs), dtype=torch.long, device=inputs.device)
        if self.feature_size is None:
            inputs = inputs if inputs.is_floating_point() else inputs.long()
            fits = not inputs.is_floating_point() and inputs.dim() in (2, 3)
            wanted = "integers (B, T), or bags of them (B, T, K)"
        else:
            fits = inputs.is_floating_point() and inputs.dim() == 3 and inputs.shape[2] == self.feature_size
            wanted = f"features (B, T, {self.feature_size})"
        if not fits:
            raise ValueError(f"context: expected {wanted}, got shape {tuple(inputs.shape)} of {inputs.dtype}")
        real = real_steps(inputs, lengths)
        if real is not None and lengths is not None:
            # Padding may hold anything: it must neither be looked up nor spoil a product.
            filling = NOTHING if self.feature_size is None else 0
            inputs = inputs.masked_fill(~real.view(real.shape + (1,) * (inputs.dim() - 2)), filling)
            lengths = lengths.to(inputs.device)
        return inputs, lengths

    def _features(self, inputs: Tensor) -> Tensor:
        """(B, T, N) of what the encoder reads."""
        if self.embedding is None:
            return inputs
        table, nothing = self.embedding.weight, self.embedding.num_embeddings - 1
        check_vocabulary(inputs.clamp(min=0), nothing, "inputs")
        symbols = inputs.where(inputs >= 0, nothing)
        if self.training and self.symbol_dropout:
            symbols = symbols.masked_fill(
                torch.rand(symbols.shape, device=symbols.device) < self.symbol_dropout, nothing
            )
        if symbols.dim() == 2 or symbols.shape[2] == 1:
            return nn.functional.embedding(symbols.view(symbols.shape[:2]), table, nothing)
        itself, parts = symbols[:, :, 0], symbols[:, :, 1:]
        total = nn.functional.embedding_bag(parts.flatten(0, 1), table, mode="sum", padding_idx=nothing)
        count = (parts != nothing).sum(2, keepdim=True).clamp(min=1)
        return nn.functional.embedding(itself, table, nothing) + total.unflatten(0, parts.shape[:2]) * count.rsqrt()


def _poolings(pooling: str) -> tuple[str, ...]:
    """Return the parts of a pooling such as "attention+mean"."""
    parts = tuple(pooling.split("+"))
    if len(set(parts)) < len(parts) or not set(parts) <= set(POOLINGS):
        raise OptionError("pooling", f"expected one or more of {', '.join(POOLINGS)}, joined by '+', got {pooling!r}")
    return parts


def _log_prior(prior: Sequence[float] | None, num_classes: int) -> Tensor:
    shares = [1 / num_classes] * num_classes if prior is None else [float(share) for share in prior]
    if len(shares) != num_classes or not all(share > 0 for share in shares) or abs(sum(shares) - 1) > 1e-6:
        raise ValueError(f"prior: expected {num_classes} positive probabilities that sum to 1, got {prior}")
    return torch.tensor(shares, dtype=torch.float64).log().float()


@final
class SequenceRegressor(LikelihoodModel):
    r"""y given a sequence, y ~ N(ŷ, ½): its log-likelihood is the squared error, with the sign changed.

    .. math:: h_t = \mathrm{cell}(x_t, h_{t-1}), \qquad \hat y = W h_T + b, \qquad
        \log p(y \mid x) = -\lVert y - \hat y \rVert^2 - \tfrac{K}{2} \log \pi

    It predicts a mean and claims nothing about its error: the variance ½ comes from the loss, not from the data. If the
    spread matters, or for several steps, use `Forecaster`.

    Args:
        feature_size: N, numbers of each element.
        num_outputs: K, numbers of the answer.
        hidden_size: M, units of each layer.
        cell: "lstm", "gru" or "rnn".
        num_layers: recurrent layers.
        dropout: probability of zeroing in training, between layers and before the output.

    >>> model = SequenceRegressor(feature_size=2, hidden_size=8)
    >>> context = {"inputs": torch.zeros(3, 6, 2), "lengths": torch.tensor([6, 1, 4])}
    >>> model(context).mean.shape, model.log_prob(torch.zeros(3, 1), context).shape
    (torch.Size([3, 1]), torch.Size([3]))
    """

    def __init__(
        self,
        feature_size: int,
        num_outputs: int = 1,
        hidden_size: int = 64,
        cell: str = "lstm",
        num_layers: int = 1,
        dropout: float = 0.0,
    ):
        super().__init__()
        check_sizes(num_outputs=num_outputs)
        self.feature_size, self.dropout = feature_size, dropout
        self.recurrent = recurrent_stack(cell, feature_size, hidden_size, num_layers, dropout)
        self.output = nn.Linear(hidden_size, num_outputs)

    def forward(self, context: Context) -> GaussianMixture:
        """p(y | x), of batch shape (B, K); its `mean` is the answer ŷ.

        Args:
            context: the sequences (B, T, N), or `{"inputs": (B, T, N), "lengths": (B,)}`; padding is
                never read.
        """
        inputs, lengths = checked_inputs(context)
        if inputs.dim() != 3 or inputs.shape[2] != self.feature_size or not inputs.is_floating_point():
            raise ValueError(
                f"context: expected real numbers (B, T, {self.feature_size}), "
                f"got shape {tuple(inputs.shape)} of {inputs.dtype}"
            )
        _, state = self.recurrent(inputs.to(self.output.weight.dtype), None, lengths)
        h = (state[0] if isinstance(state, tuple) else state)[:, -1]
        means = self.output(nn.functional.dropout(h, self.dropout, self.training)).unsqueeze(2)
        return GaussianMixture(torch.zeros_like(means), means, torch.full_like(means, math.log(0.5) / 2))

    def log_prob(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """log p(y | x) of each row, (B,), nats: −‖y − ŷ‖² − K/2 log π.

        Args:
            x: (B, K) the right answers y; (B,) where K = 1.
            context: the sequences, as `forward` takes them.
            lengths: None: an answer has no length. Those of the sequences are in the context.
        """
        if lengths is not None:
            raise ValueError("lengths: expected None: an answer has no length; put sequence lengths in the context")
        answers = self(context)
        inputs, outputs = answers.batch_shape
        rows = len(x) if inputs == 1 else inputs  # one row of the input for all answers
        if x.shape != (rows, outputs) and (x.shape != (rows,) or outputs != 1):
            raise ValueError(f"x: expected answers of shape {(rows, outputs)}, got {tuple(x.shape)}")
        return answers.log_prob(x.view(rows, outputs)).sum(1)
