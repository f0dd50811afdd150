"""The mean of several models of symbols."""

import math
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from chainrule.base import AutoregressiveModel, Context, Step, Unroll
from chainrule.heads import Categorical, head_of
from chainrule.state import State


@final
class Ensemble(AutoregressiveModel):
    r"""The mean of the conditionals of K models of the same symbols, each trained for itself.

    .. math:: p(x_t \mid x_{<t}, c) = \frac{1}{K} \sum_{k=1}^{K} p_k(x_t \mid x_{<t}, c)

    Models that differ in their initial weights and in their dropout make different mistakes, so that the mean is
    better than each (Hansen and Salamon 1990; Lakshminarayanan et al. 2017): where a text is read so often that a
    model learns it by heart, two models that read it half as often are better than one. A step costs what the steps
    of the members cost together.

    `log_prob` is the exact likelihood of the mean. Training maximises the mean of the members' log-likelihoods, so
    that none leaves to another what it could learn itself.

    Args:
        members: at least one; each has a state of its own, and no weights in common with another.

    Raises:
        ValueError: there is no member, or members are made for sequences of different lengths.

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
        lengths = {member.sequence_length for member in members}
        if len(lengths) > 1:
            raise ValueError(f"members: expected one length of sequences, got {sorted(map(str, lengths))}")
        self.members = nn.ModuleList(members)
        self.sequence_length = lengths.pop()

    def forward(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Categorical:
        return mean_of([member(x, context, lengths) for member in self.members])

    def initial_state(self, batch_size: int, context: Context = None) -> State:
        return tuple(member.initial_state(batch_size, context) for member in self._models)

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Categorical, State]:
        return _together([member.step for member in self._models], x_prev, state)

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Categorical, State]:
        return _read([member.unroll for member in self._models], x, state, x_prev)

    def stepper(self) -> Step:
        steps = [member.stepper() for member in self._models]
        return lambda x_prev, state: _together(steps, x_prev, state)

    def window_reader(self) -> Unroll:
        readers = [member.window_reader() for member in self._models]
        return lambda x, state, x_prev: _read(readers, x, state, x_prev)

    @property
    def block_length(self) -> int:
        return math.lcm(*(member.block_length for member in self._models))

    def rewind(self, before: State, after: State, x: Tensor, x_prev: Tensor | None, kept: int) -> State:
        parts = zip(self._models, before, after, strict=True)
        return tuple(member.rewind(old, new, x, x_prev, kept) for member, old, new in parts)

    def shared(self, state: State) -> State:
        return tuple(member.shared(part) for member, part in zip(self._models, state, strict=True))

    def visible_past(self, length: int) -> Tensor:
        """What any member sees."""
        return torch.stack([member.visible_past(length) for member in self._models]).any(0)

    def features(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """The features that each member predicts an element from, side by side, (B, T, K·M)."""
        members: list[Any] = list(self.members)
        return torch.cat([member.features(x, context, lengths) for member in members], -1)

    def training_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """The mean of the members' objectives of each row, (B,)."""
        return torch.stack([member.training_objective(x, context, lengths) for member in self._models]).mean(0)

    def training_terms(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Tensor, State]:
        """The mean of the members' terms of a chunk, and their states after it."""
        parts = zip(self._models, state, strict=True)
        terms, after = zip(*(member.training_terms(x, part, x_prev) for member, part in parts), strict=True)
        return torch.stack(terms).mean(0), after

    @property
    def _models(self) -> list[AutoregressiveModel]:
        return list(self.members)  # type: ignore[arg-type]  # a ModuleList forgets the type of its modules


def mean_of(conditionals: Sequence[Any]) -> Categorical:
    """The mean of distributions over the same symbols.

    Raises:
        TypeError: one is no distribution over symbols.
    """
    logits = []
    for conditional in conditionals:
        symbols = head_of(conditional).categorical()
        if symbols is None:
            raise TypeError(f"members: expected distributions over symbols, got {type(conditional).__name__}")
        logits.append(symbols.logits)
    return Categorical(torch.stack(logits).logsumexp(0) - math.log(len(logits)))


def _together(steps: Sequence[Step], x_prev: Tensor | None, state: State) -> tuple[Categorical, State]:
    conditionals, after = zip(*(step(x_prev, part) for step, part in zip(steps, state, strict=True)), strict=True)
    return mean_of(conditionals), after


def _read(
    readers: Sequence[Callable[..., Any]], x: Tensor, state: State, x_prev: Tensor | None
) -> tuple[Categorical, State]:
    parts = zip(readers, state, strict=True)
    conditionals, after = zip(*(read(x, part, x_prev) for read, part in parts), strict=True)
    return mean_of(conditionals), after


def first_member(model: AutoregressiveModel) -> AutoregressiveModel:
    """The first member of an ensemble, for those that look inside one model; any other model itself."""
    return model._models[0] if isinstance(model, Ensemble) else model
