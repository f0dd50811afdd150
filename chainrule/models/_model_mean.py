"""The mean of several models of the same sequences: an ensemble, or a network and a companion of counts."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from chainrule._base import AutoregressiveModel, Context
from chainrule._checks import length_mask
from chainrule.heads import Head
from chainrule.heads._computed_categorical import mean_of
from chainrule.models._executors import MeanExecutor
from chainrule.modes import evaluating, wide
from chainrule.state import State, map_state


class ModelMean(AutoregressiveModel):
    r"""The mean of the conditionals of K models, each with a separate state.

    .. math:: p(x_t \mid x_{<t}, c) = \sum_{k=1}^{K} w_k\, p_k(x_t \mid x_{<t}, c)

    A subclass names the models, and their weights if these differ. A step takes the steps of all models.
    """

    @property
    @abstractmethod
    def parts(self) -> Sequence[AutoregressiveModel]:
        """The K models."""

    @property
    def log_weights(self) -> Tensor | None:
        """(K,) log w; None where all weights are 1/K."""
        return None

    def check_parts(self, names: Sequence[str]) -> None:
        """Take the length of the models' sequences."""
        for name, part in zip(names, self.parts, strict=True):
            if type(part).to_sequence is not AutoregressiveModel.to_sequence:
                raise ValueError(f"{name}: expected models of sequences (B, T), got {type(part).__name__}")
        lengths = {part.sequence_length for part in self.parts}
        if len(lengths) > 1:
            raise ValueError(
                f"{names[-1]}: expected one length of sequences, got {', '.join(sorted(map(str, lengths)))}"
            )
        self.sequence_length = lengths.pop()

    def forward(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Head:
        # No step calls a part as a whole, so that hooks of it would act here alone.
        return self._mean([part.forward(x, context, lengths) for part in self.parts])

    def initial_state(self, batch_size: int, context: Context = None) -> State:
        """Return the states of all models."""
        return tuple(part.initial_state(batch_size, context) for part in self.parts)

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Head, State]:
        return self.together(part.step(x_prev, own) for part, own in self._each(state))

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Head, State]:
        return self.together(part.unroll(x, own, x_prev) for part, own in self._each(state))

    def prepare(self) -> MeanExecutor:
        return MeanExecutor(self)

    def visible_past(self, length: int) -> Tensor:
        """Elements that any of them sees."""
        return torch.stack([part.visible_past(length) for part in self.parts]).any(0)

    @property
    def accepts_missing(self) -> bool:
        """Whether all models accept missing values."""
        return all(part.accepts_missing for part in self.parts)

    @property
    def reach(self) -> int | None:
        """The longest reach of the models."""
        reaches = [part.reach for part in self.parts]
        return None if None in reaches else max(reach for reach in reaches if reach is not None)

    @property
    def positions_end(self) -> int | None:
        """The smallest number of positions of the models."""
        return min((part.positions_end for part in self.parts if part.positions_end is not None), default=None)

    def _each(self, state: State) -> Iterator[tuple[AutoregressiveModel, State]]:
        """Pair each model with its own state."""
        return zip(self.parts, state, strict=True)

    def together(self, answers: Iterable[tuple[Distribution, State]]) -> tuple[Head, State]:
        """Return the mean of the conditionals, and the states of all."""
        conditionals, after = zip(*answers, strict=True)
        return self._mean(conditionals), after

    def _mean(self, conditionals: Sequence[Distribution]) -> Head:
        return mean_of(conditionals, self.log_weights)


def first_part(model: AutoregressiveModel, state: State = None) -> tuple[AutoregressiveModel, State]:
    """Return the network of a mixture, or the first member of an ensemble, and its part of the state.

    For those that look inside one model; a model that is no mean is its own part.
    """
    while isinstance(model, ModelMean):
        model, state = model.parts[0], None if state is None else state[0]
    return model, state


@final
class Ensemble(ModelMean):
    r"""The mean of the conditionals of K models of the same sequences, trained separately.

    .. math:: p(x_t \mid x_{<t}, c) = \frac{1}{K} \sum_{k=1}^{K} p_k(x_t \mid x_{<t}, c)

    Models that differ in their initial weights and their dropout make different mistakes, so the mean is better than
    each of them (Hansen and Salamon 1990; Lakshminarayanan et al. 2017). If one model would read a text often enough to
    memorise it, two models that read it half as often are better. A step takes the steps of all members. Elements are
    symbols, or real numbers under mixtures of one class.

    `log_prob` is the exact likelihood of the mean. Training maximises the mean of the members' log-likelihoods, so that
    no member relies on another; they share the batches and the limit of the gradient norm.

    Args:
        members: at least one, all different, each with its own state.

    Raises:
        ValueError: there is no member, one is there twice, one has an order of its elements that is not their layout,
            or members are made for sequences of different lengths.
        TypeError: `forward` and the like find conditionals that are neither categorical nor mixtures.

    >>> from chainrule.models import RecurrentLM
    >>> model = Ensemble([RecurrentLM(vocab_size=3, hidden_size=4) for _ in range(2)])
    >>> x = torch.tensor([[0, 1, 2, 2]])
    >>> apart = torch.stack([member(x).probs for member in model.members])
    >>> torch.allclose(model(x).probs, apart.mean(0))
    True
    """

    def __init__(self, members: Sequence[AutoregressiveModel]):
        super().__init__()
        if not members:
            raise ValueError("members: expected at least one model, got none")
        if len(set(map(id, members))) < len(members):
            raise ValueError("members: expected different models, got one of them twice")
        self.members = nn.ModuleList(members)
        self.check_parts(["members"] * len(members))

    @property
    def parts(self) -> list[AutoregressiveModel]:
        return list(self.members)  # type: ignore[arg-type]  # a ModuleList forgets the type of its modules

    def features(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """Return the features that each member predicts an element from, side by side, (B, T, K·M)."""
        members: list[Any] = list(self.members)
        return torch.cat([member.features(x, context, lengths) for member in members], -1)

    def training_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """Return the mean of the members' objectives of each row, (B,)."""
        return torch.stack([member.training_objective(x, context, lengths) for member in self.parts]).mean(0)

    def training_terms(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Tensor, State]:
        """Return the mean of the members' terms of a chunk, (B, T), and their states after it."""
        terms, after = zip(*(member.training_terms(x, part, x_prev) for member, part in self._each(state)), strict=True)
        return torch.stack(terms).mean(0), after


USUAL_SHARE = 0.4
_LEAST = 1e-4
_HALVINGS = 30
_MOST_LOG_RATIO = 300.0  # beyond 709 a ratio is infinite, and infinite / infinite no slope


class Rows(Protocol):
    """Rows of elements, as training reads them: `chainrule.training.Batch`."""

    @property
    def x(self) -> Tensor: ...
    @property
    def context(self) -> Context: ...
    @property
    def lengths(self) -> Tensor | None: ...
    @property
    def previous(self) -> Tensor | None: ...


class NetworkMean(ModelMean):
    """A mean whose first part, a network, is trained by gradients alone; the others are fitted."""

    network: AutoregressiveModel

    def features(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """Return the features that the network predicts an element from, (B, T, M)."""
        network: Any = self.network
        return network.features(x, context, lengths)

    def training_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """Return the network's objective, (B,)."""
        return self.network.training_objective(x, context, lengths)

    def training_terms(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Tensor, State]:
        """Return the network's terms, (B, T); the states of the others stay as they are."""
        terms, after = self.network.training_terms(x, state[0], x_prev)
        return terms, (after, *state[1:])


@final
class CalibratedMixture(NetworkMean):
    r"""A mixture of a network and a companion that is fitted without gradients, with weight λ for the companion.

    .. math::
        p(x_t \mid x_{<t}, c) = (1 - \lambda)\, p_\mathrm{network}(x_t \mid x_{<t}, c)
        + \lambda\, p_\mathrm{companion}(x_t \mid x_{<t}, c)

    The companion is fitted by counting or by least squares. An `NgramLM` knows a phrase that occurred once, and a
    `LinearForecaster` a season that occurred a few times; a network must read these many times to learn them. On the
    other hand, a network uses a longer past and generalises to similar symbols. Their errors differ (Mikolov et al.
    2011), so the mixture often beats both, especially with few data or a short training. For forecasts of many steps
    see `ForecastMixture`.

    The counts of an `NgramLM` are not in `state_dict`: load it into a mixture with the same counts.

    Training fits the network alone; `calibrate` fits :math:`\lambda` to held-out data. `log_prob` is the exact
    likelihood of the mean.

    Args:
        network: of sequences (B, T).
        companion: of the same sequences, given the same context.
        calibrated_on: approximate number of validation elements to which the share is fitted.

    Raises:
        ValueError: one reads something other than sequences, or they are made for sequences of different lengths;
            `forward` and the like find mixtures of different classes.
        TypeError: `forward` and the like find conditionals that are neither categorical nor mixtures.

    Source: T. Mikolov, A. Deoras, S. Kombrink, L. Burget and J. Černocký, Empirical evaluation and combination of
    advanced language modeling techniques, 2011.

    >>> from chainrule.models import NgramLM, RecurrentLM
    >>> x = torch.tensor([[0, 1, 2, 0, 1, 2, 0, 1]])
    >>> model = CalibratedMixture(RecurrentLM(vocab_size=3, hidden_size=4), NgramLM.fit(x[0], vocab_size=3, order=2))
    >>> bool(model.log_prob(x) > model.network.log_prob(x))
    True
    """

    share: Tensor

    def __init__(self, network: AutoregressiveModel, companion: AutoregressiveModel, *, calibrated_on: int = 4096):
        super().__init__()
        self.network, self.companion, self.calibrated_on = network, companion, calibrated_on
        self.check_parts(["network", "companion"])
        self.register_buffer("share", torch.tensor(USUAL_SHARE, device="cpu"))

    @property
    def parts(self) -> tuple[AutoregressiveModel, AutoregressiveModel]:
        return self.network, self.companion

    @property
    def log_weights(self) -> Tensor:
        return torch.stack([1 - self.share, self.share]).log()

    @torch.no_grad()
    def calibrate(self, batches: Iterable[Rows]) -> None:
        r"""Fit :math:`\lambda` to the first rows of held-out data: their likelihood is highest where its slope is 0.

        .. math:: \frac{d}{d\lambda} \sum_t \log p(x_t) = \sum_t \frac{r_t - 1}{1 + \lambda (r_t - 1)}, \qquad
            r_t = \frac{p_\mathrm{companion}(x_t)}{p_\mathrm{network}(x_t)}

        The slope falls with :math:`\lambda`, so that halving an interval finds its zero.

        Args:
            batches: chunks of endless rows, or whole rows with their lengths, read until the share is reached.
        """
        with evaluating(self):
            of_network, of_companion = wide(self._terms_apart(batches))
        better = (of_companion - of_network).clamp(max=_MOST_LOG_RATIO).expm1()  # r − 1
        low, high = _LEAST, 1 - _LEAST
        for _ in range(_HALVINGS):
            share = (low + high) / 2
            if float((better / (1 + share * better)).sum()) > 0:
                low = share
            else:
                high = share
        self.share.fill_(share)

    def _terms_apart(self, batches: Iterable[Rows]) -> Tensor:
        """log p of the network and of the companion, (2, N), of the first elements."""
        device, terms = self.share.device, []
        states: State = None
        for batch in batches:
            x = batch.x.to(device)
            context = None if batch.context is None else map_state(lambda leaf: leaf.to(device), batch.context)
            if batch.lengths is None:
                previous = None if batch.previous is None else batch.previous.to(device)
                if previous is None:
                    states = self.initial_state(len(x), context)
                results = [part.unroll(x, own, previous) for part, own in self._each(states)]
                conditionals, states = zip(*results, strict=True)
                real = torch.ones_like(x, dtype=torch.bool)
            else:
                lengths = batch.lengths.to(device)
                conditionals = tuple(part(x, context, lengths) for part in self.parts)
                real = length_mask(lengths, x.shape[1])
                x = x.masked_fill(~real, 0)
            terms.append(torch.stack([conditional.log_prob(x)[real] for conditional in conditionals]))
            if sum(part.shape[1] for part in terms) >= self.calibrated_on:
                break
        return torch.cat(terms, 1)
