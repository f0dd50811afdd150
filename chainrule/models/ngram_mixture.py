"""A model of symbols averaged with counts of n-grams, which remember what it is slow to learn."""

from collections.abc import Iterable
from typing import Any, Protocol, final

import torch
from torch import Tensor

from chainrule.base import AutoregressiveModel, Context, Step, Unroll, length_mask, refuse_context
from chainrule.heads import Categorical, CategoricalMean, LookedUpCategorical, head_of
from chainrule.layers.kneser_ney import KneserNey
from chainrule.state import State

USUAL_SHARE = 0.4
_LEAST = 1e-4
_READ = 4096  # symbols that the share is fitted on, about
_HALVINGS = 30
_MOST_LOG_RATIO = 300.0  # beyond 709 a ratio is infinite, and infinite / infinite no slope


class Rows(Protocol):
    """Rows of symbols, as training reads them: `chainrule.training.Batch`."""

    @property
    def x(self) -> Tensor: ...
    @property
    def lengths(self) -> Tensor | None: ...
    @property
    def previous(self) -> Tensor | None: ...


@final
class NgramMixture(AutoregressiveModel):
    r"""A network and counts of n-grams, averaged with a share of each.

    .. math::
        p(x_t \mid x_{<t}) = (1 - \lambda)\, p_\mathrm{network}(x_t \mid x_{<t})
        + \lambda\, p_\mathrm{KN}(x_t \mid x_{t-n+1}, \ldots, x_{t-1})

    Counts know a name or a turn of phrase that was there once, which a network learns only where it reads it often; a
    network knows what lies further back, and what is alike. Each is wrong where the other is not (Mikolov et al. 2011),
    most of all where there is little text, or little time. One pass of counting costs a second or two.

    Training fits the network alone; `calibrate` fits :math:`\lambda` to held-out data. `log_prob` is the exact
    likelihood of the mean.

    Args:
        network: of sequences of symbols in [0, V), without a context.
        ngrams: counts of the same symbols.

    Raises:
        ValueError: the network reads something other than sequences.
        TypeError: `forward` and the like find conditionals that are not categorical.

    Source: T. Mikolov, A. Deoras, S. Kombrink, L. Burget and J. Černocký, Empirical evaluation and combination of
    advanced language modeling techniques, 2011.

    >>> from chainrule.models import RecurrentLM
    >>> x = torch.tensor([[0, 1, 2, 0, 1, 2, 0, 1]])
    >>> model = NgramMixture(RecurrentLM(vocab_size=3, hidden_size=4), KneserNey.fit(x[0], vocab_size=3, order=2))
    >>> bool(model.log_prob(x) > model.network.log_prob(x))
    True
    """

    share: Tensor

    def __init__(self, network: AutoregressiveModel, ngrams: KneserNey):
        super().__init__()
        if type(network).to_sequence is not AutoregressiveModel.to_sequence:
            raise ValueError(f"network: expected a model of sequences (B, T), got {type(network).__name__}")
        self.network, self.ngrams = network, ngrams
        self.sequence_length = network.sequence_length
        self.register_buffer("share", torch.tensor(USUAL_SHARE, device="cpu"))

    def forward(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> CategoricalMean:
        refuse_context(context)
        contexts, _ = self.ngrams.read(x, self.ngrams.initial_contexts(len(x)))
        return self._mixture(self.network(x, None, lengths), contexts)

    def initial_state(self, batch_size: int, context: Context = None) -> State:
        """The network's state, and the contexts of the n-grams, (B, n − 1)."""
        refuse_context(context)
        return self.network.initial_state(batch_size), self.ngrams.initial_contexts(batch_size)

    def step(self, x_prev: Tensor | None, state: State) -> tuple[CategoricalMean, State]:
        return self._step(self.network.step, x_prev, state)

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[CategoricalMean, State]:
        return self._unroll(self.network.unroll, x, state, x_prev)

    def stepper(self) -> Step:
        step = self.network.stepper()
        return lambda x_prev, state: self._step(step, x_prev, state)

    def window_reader(self) -> Unroll:
        read = self.network.window_reader()
        return lambda x, state, x_prev: self._unroll(read, x, state, x_prev)

    @property
    def block_length(self) -> int:
        return self.network.block_length

    def rewind(self, before: State, after: State, x: Tensor, x_prev: Tensor | None, kept: int) -> State:
        network = self.network.rewind(before[0], after[0], x, x_prev, kept)
        return network, self._read(x[:, :kept], before[1], x_prev)[1]

    def shared(self, state: State) -> State:
        return self.network.shared(state[0]), state[1]

    def visible_past(self, length: int) -> Tensor:
        """Elements that the network sees, and the last n − 1."""
        return self.network.visible_past(length) | super().visible_past(length).triu(1 - self.ngrams.order)

    def useful_prefix(self, drawn: int) -> int | None:
        """As many as matter to the network; n − 1 where these are fewer, and its positions leave room for them."""
        useful, counted = self.network.useful_prefix(drawn), self.ngrams.order - 1
        if useful is None or useful >= counted:
            return useful
        try:
            has_room = self.network.useful_prefix(drawn + counted - useful) == useful
        except ValueError:  # its positions end before
            has_room = False
        return counted if has_room else useful

    def features(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """The features that the network predicts an element from, (B, T, M)."""
        network: Any = self.network
        return network.features(x, context, lengths)

    def training_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """The network's, (B,)."""
        return self.network.training_objective(x, context, lengths)

    def training_terms(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Tensor, State]:
        """The network's terms, (B, T); the contexts of the state stay as they are."""
        terms, after = self.network.training_terms(x, state[0], x_prev)
        return terms, (after, state[1])

    @torch.no_grad()
    def calibrate(self, batches: Iterable[Rows]) -> None:
        r"""Fit :math:`\lambda` to the first rows of held-out data: their likelihood is highest where its slope is 0.

        .. math:: \frac{d}{d\lambda} \sum_t \log p(x_t) = \sum_t \frac{r_t - 1}{1 + \lambda (r_t - 1)}, \qquad
            r_t = \frac{p_\mathrm{KN}(x_t)}{p_\mathrm{network}(x_t)}

        The slope falls with :math:`\lambda`, so that halving an interval finds its zero.

        Args:
            batches: chunks of endless rows, or whole rows with their lengths, of which about 4,000 symbols are read.
        """
        training = self.training
        self.eval()
        try:
            of_network, of_counts = self._terms_apart(batches).double()
        finally:
            self.train(training)
        better = (of_counts - of_network).clamp(max=_MOST_LOG_RATIO).expm1()  # r − 1
        low, high = _LEAST, 1 - _LEAST
        for _ in range(_HALVINGS):
            share = (low + high) / 2
            if float((better / (1 + share * better)).sum()) > 0:
                low = share
            else:
                high = share
        self.share.fill_(share)

    def _terms_apart(self, batches: Iterable[Rows]) -> Tensor:
        """log p of the network and of the counts, (2, N), of the first symbols."""
        device, state, terms = self.share.device, None, []
        for batch in batches:
            x = batch.x.to(device)
            if batch.lengths is None:
                previous = None if batch.previous is None else batch.previous.to(device)
                state = self.initial_state(len(x)) if previous is None else state
                head, state = self.unroll(x, state, previous)
                real = torch.ones_like(x, dtype=torch.bool)
            else:
                lengths = batch.lengths.to(device)
                head, real = self(x, None, lengths), length_mask(lengths, x.shape[1])
                x = x.masked_fill(~real, 0)
            terms.append(torch.stack([part.log_prob(x)[real] for part in head.parts]))
            if sum(part.shape[1] for part in terms) >= _READ:
                break
        return torch.cat(terms, 1)

    def _mixture(self, conditionals: torch.distributions.Distribution, contexts: Tensor) -> CategoricalMean:
        head = head_of(conditionals)
        if not isinstance(head, Categorical):
            raise TypeError(f"network: expected categorical distributions, got {type(head).__name__}")
        log_weights = torch.stack([1 - self.share, self.share]).log()
        return CategoricalMean([head, LookedUpCategorical(contexts, self.ngrams)], log_weights)

    def _step(self, step: Step, x_prev: Tensor | None, state: State) -> tuple[CategoricalMean, State]:
        network, contexts = state
        if x_prev is not None:
            contexts = self.ngrams.step(x_prev, contexts)
        conditional, network = step(x_prev, network)
        return self._mixture(conditional, contexts), (network, contexts)

    def _unroll(self, unroll: Unroll, x: Tensor, state: State, x_prev: Tensor | None) -> tuple[CategoricalMean, State]:
        contexts, last = self._read(x, state[1], x_prev)
        conditionals, network = unroll(x, state[0], x_prev)
        return self._mixture(conditionals, contexts), (network, last)

    def _read(self, x: Tensor, contexts: Tensor, x_prev: Tensor | None) -> tuple[Tensor, Tensor]:
        """The contexts before each symbol of a chunk, and the state after it, which is ready to read its last one."""
        if x_prev is not None:
            contexts = self.ngrams.step(x_prev, contexts)
        before, _ = self.ngrams.read(x, contexts)
        return before, before[:, -1]
