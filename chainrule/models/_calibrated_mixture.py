"""A mixture of a trained network and a companion that is fitted without gradients, such as n-gram counts."""

from collections.abc import Iterable
from typing import Any, Protocol, final

import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel, Context, length_mask
from chainrule._modes import evaluating, wide
from chainrule.models._model_mean import ModelMean
from chainrule.state import State, map_state

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


@final
class CalibratedMixture(ModelMean):
    r"""A mixture of a network and a companion that is fitted without gradients, with weight λ for the companion.

    .. math::
        p(x_t \mid x_{<t}, c) = (1 - \lambda)\, p_\mathrm{network}(x_t \mid x_{<t}, c)
        + \lambda\, p_\mathrm{companion}(x_t \mid x_{<t}, c)

    The companion is fitted by counting or by least squares. An `NgramLM` knows a phrase that occurred once, and a
    `LinearForecaster` a season that occurred a few times; a network must read these many times to learn them. On the
    other hand, a network uses a longer past and generalises to similar symbols. Their errors differ (Mikolov et al.
    2011), so the mixture often beats both, especially with few data or a short training.

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

    def features(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """Return the features that the network predicts an element from, (B, T, M)."""
        network: Any = self.network
        return network.features(x, context, lengths)

    def training_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """Return the network's objective, (B,)."""
        return self.network.training_objective(x, context, lengths)

    def training_terms(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Tensor, State]:
        """Return the network's terms, (B, T); the companion's state stays as it is."""
        terms, after = self.network.training_terms(x, state[0], x_prev)
        return terms, (after, state[1])

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
