"""Many-to-one: a label, or several, for a whole sequence."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, final

import torch
from torch import Tensor, nn

from chainrule._base import Context, LikelihoodModel
from chainrule._ranges import check_shares, check_sizes
from chainrule.heads import Categorical
from chainrule.heads._computed_categorical import CategoricalMean
from chainrule.layers._cells import check_vocabulary
from chainrule.layers._ngrams import NgramScores
from chainrule.layers._packing import POOLINGS, AttentionPooling, max_pooling, mean_pooling, real_steps
from chainrule.layers._recurrent import Recurrent
from chainrule.layers._recurrent_stack import recurrent_stack
from chainrule.layers._row_encoders import TRANSFORMER, Bidirectional, TransformerEncoder, row_encoder
from chainrule.layers._tfidf import TfidfScores
from chainrule.models._conditioned import check_one_label_a_row, checked_inputs
from chainrule.models._label_calibration import LabelledRows, fitted_shares, fitted_temperature
from chainrule.modes import evaluating, wide
from chainrule.option_error import OptionError
from chainrule.ranges import Layers, Probability, Range, Size
from chainrule.state import map_state

NOTHING = -1  # no symbol: what fills up a bag
_CALIBRATED_ON = 4096  # labels


@final
class SequenceClassifier(LikelihoodModel):
    r"""p(y | x) of one label y for a whole sequence x: many-to-one.

    .. math::
        h_{1..T} = \mathrm{encoder}(x_{1..T}), \qquad z = \mathrm{pool}(h_{1..T}), \qquad
        p(y \mid x) = \mathrm{softmax}(W z + b)

    x is a sequence of symbols (B, T), of bags of symbols (B, T, K), such as a word with its character n-grams
    (Bojanowski et al. 2017), or of feature frames (B, T, N), such as a spectrum at each moment. A bag is a symbol s and
    k parts of it, :math:`E_s + \frac{1}{\sqrt k} \sum_j E_{p_j}`; -1 pads bags.

    With `ngram_order` N >= 1 a linear classifier of the n-grams of the symbols (of a bag, its first), up to N together,
    answers, too (`NgramScores`); with `tfidf` also a logistic regression of TF-IDF weights of n-grams and parts, which
    is fitted without gradients (`model.tfidf.fit`). The answer is the mean of these K classifiers at a temperature T:

    .. math:: p(y \mid x) \propto \Big(\sum_{k=1}^{K} w_k\, p_k(y \mid x)\Big)^{1/T}

    They make different mistakes, especially on few texts. Training maximises the mean log-likelihood of the network and
    the n-grams, so that neither relies on the other; `log_prob` is the log-probability of the answer. `calibrate` fits
    w and T to held-out data; before that all w are equal, and T is 1.

    With `several` a sequence may have any number of the C labels: y is a row of 0 and 1, and the labels are independent
    given x, :math:`p(y \mid x) = \prod_c p(y_c \mid x)`, each with its own logistic answer in place of the softmax.

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
        prior: (num_classes,) probabilities of the labels before anything is read; uniform by default, and one half for
            each with `several`.
        num_heads: of a Transformer, a divisor of M.
        ngram_order: longest n-grams of a linear classifier that is averaged with the network; 0 for none. The task
            takes 2 for words, 6 for characters and bytes.
        ngram_symbols: the first of the V symbols, which form n-grams; V by default.
        tfidf: whether a logistic regression of TF-IDF weights is averaged with the others.
        several: whether a sequence may have several labels, or none.

    >>> model = SequenceClassifier(num_classes=2, vocab_size=10, hidden_size=8)
    >>> context = {"inputs": torch.tensor([[1, 2, 3], [4, 5, 0]]), "lengths": torch.tensor([3, 2])}
    >>> model(context).probs.shape, model.log_prob(torch.tensor([0, 1]), context).shape
    (torch.Size([2, 2]), torch.Size([2]))
    >>> model.attend(context)[1, 2].item()  # nothing looks past a row's end
    0.0
    """

    log_prior: Tensor
    shares: Tensor
    temperature: Tensor

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
        tfidf: bool = False,
        several: bool = False,
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
        if vocab_size is None and (ngram_order or tfidf):
            name, none, got = ("ngram_order", 0, ngram_order) if ngram_order else ("tfidf", False, True)
            raise OptionError(name, f"expected {none} of frames, which have no n-grams, got {got}")
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
        self.several, self.ngrams, self.tfidf = several, None, None
        symbols = vocab_size if ngram_symbols is None else ngram_symbols
        if vocab_size is not None and symbols is not None:
            if ngram_order:
                self.ngrams = NgramScores(symbols, num_classes, ngram_order)
            if tfidf:
                order = max(ngram_order, 1)
                self.tfidf = TfidfScores(vocab_size, num_classes, order, elements=symbols, several=several)
        self.register_buffer("log_prior", _log_prior(prior, num_classes, several=several))
        classifiers = 1 + (self.ngrams is not None) + (self.tfidf is not None)
        self.register_buffer("shares", torch.full((classifiers,), 1 / classifiers))
        self.register_buffer("temperature", torch.ones(()))
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
            A distribution of batch shape (B,) over the labels; with `several` of batch shape (B, C) over no and yes.
        """
        parts, empty = self._parts(context)
        logits = parts[0].logits if len(parts) == 1 else CategoricalMean(parts, self.shares.log()).logits
        if empty is None:
            return Categorical(logits / self.temperature)
        return Categorical(logits / self.temperature.where(~empty.view(-1, *[1] * (logits.dim() - 1)), 1.0))

    def _parts(self, context: Context, *, trained: bool = False) -> tuple[list[Categorical], Tensor | None]:
        """Return the answers of the classifiers, or of those that gradients train, and which rows are empty."""
        z, lengths = self._pooled(context)
        empty = None if lengths is None else lengths == 0
        scores = [self.output(nn.functional.dropout(z, self.dropout, self.training))]
        if self.ngrams is not None:
            scores.append(self.ngrams(*self._symbols(context)))
        if self.tfidf is not None and not trained:
            scores.append(self.tfidf(*self._inputs(context)))
        return [self._categorical(part, empty) for part in scores], empty

    def _categorical(self, scores: Tensor, empty: Tensor | None) -> Categorical:
        """Return the answer of scores (B, C); of an empty row the prior."""
        if empty is not None:
            scores = torch.where(empty.unsqueeze(1), self.log_prior.to(scores), scores)
        return Categorical(torch.stack([torch.zeros_like(scores), scores], -1) if self.several else scores)

    def training_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """Compute the mean of log p(y | x), (B,), of the network and of the n-grams."""
        parts, _ = self._parts(context, trained=True)
        self._check_labels(x, lengths, parts[0])
        return torch.stack([self._of_rows(part.log_prob(x)) for part in parts]).mean(0)

    @torch.no_grad()
    def calibrate(self, batches: Iterable[LabelledRows]) -> None:
        r"""Fit the weights w of the classifiers, and then the temperature, to the first rows of held-out data.

        Both maximise the likelihood with a little pull towards equal weights and T = 1, as of a few rows more, so that
        neither makes the likelihood of these rows worse than it was there.

        Args:
            batches: labels and their sequences, read until some thousand rows are seen.
        """
        self.shares.fill_(1 / len(self.shares))
        self.temperature.fill_(1.0)
        found: list[Tensor] = []  # (K, N, C) log p of each classifier and label
        true: list[Tensor] = []
        with evaluating(self):
            for batch in batches:
                context = map_state(lambda leaf: leaf.to(self.shares.device), batch.context)
                parts, empty = self._parts(context)
                real = slice(None) if empty is None else ~empty
                log_probs = torch.stack([part.logits.log_softmax(-1) for part in parts])
                found.append(log_probs[:, real].flatten(1, -2))
                true.append(batch.x.to(self.shares.device)[real].flatten().long())
                if sum(map(len, true)) >= _CALIBRATED_ON:
                    break
        log_probs, right = wide(torch.cat(found, 1)), torch.cat(true)
        if len(right):
            shares = fitted_shares(log_probs.gather(2, right.expand(len(log_probs), -1).unsqueeze(2)).squeeze(2))
            self.shares.copy_(shares)
            mean = torch.logsumexp(log_probs + shares.log().view(-1, 1, 1), 0)
            self.temperature.fill_(fitted_temperature(mean, right))

    def _of_rows(self, log_probs: Tensor) -> Tensor:
        """Return the log-probability of each row, (B,)."""
        return log_probs.sum(1) if self.several else log_probs

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
        """log p(y | x) of each row, (B,), nats.

        Args:
            x: (B,) labels; with `several` (B, C) of 0 and 1.
            context: the sequences, as `forward` takes them.
            lengths: None: a label has none. Those of the sequences are in the context.
        """
        distribution = self.forward(context)
        self._check_labels(x, lengths, distribution)
        return self._of_rows(distribution.log_prob(x))

    def _check_labels(self, x: Tensor, lengths: Tensor | None, distribution: Categorical) -> None:
        """Check that there is one label for each row, or one row of them."""
        if lengths is not None:
            raise ValueError("lengths: expected None: a label has no length; put sequence lengths in the context")
        rows = distribution.batch_shape[0]
        if not self.several:
            check_one_label_a_row(x, rows)
        elif x.shape != (rows, self.num_classes):
            raise ValueError(f"x: expected 0 and 1 of shape {(rows, self.num_classes)}, got {tuple(x.shape)}")

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


def _log_prior(prior: Sequence[float] | None, num_classes: int, *, several: bool) -> Tensor:
    """Return the scores of the prior: logarithms, or with `several` log-odds."""
    usual = 0.5 if several else 1 / num_classes
    shares = [usual] * num_classes if prior is None else [float(share) for share in prior]
    sums = several or abs(sum(shares) - 1) <= 1e-6
    if len(shares) != num_classes or not all(share > 0 and (share < 1 or not several) for share in shares) or not sums:
        wanted = "probabilities between 0 and 1" if several else "positive probabilities that sum to 1"
        raise ValueError(f"prior: expected {num_classes} {wanted}, got {prior}")
    wide_shares = torch.tensor(shares, dtype=torch.float64)
    return (wide_shares.logit() if several else wide_shares.log()).float()
