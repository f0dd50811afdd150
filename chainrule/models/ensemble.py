"""The mean of several models of the same sequences."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast, final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from chainrule.base import AutoregressiveModel, Context, Step, Unroll
from chainrule.heads import Categorical, CategoricalMean, Head, head_of
from chainrule.heads.location_scale_mixture import LocationScaleMixture
from chainrule.models.ngram_mixture import NgramMixture
from chainrule.state import State


@final
class Ensemble(AutoregressiveModel):
    r"""The mean of the conditionals of K models of the same sequences, each trained for itself.

    .. math:: p(x_t \mid x_{<t}, c) = \frac{1}{K} \sum_{k=1}^{K} p_k(x_t \mid x_{<t}, c)

    Models that differ in their initial weights and in their dropout make different mistakes, so that the mean is
    better than each (Hansen and Salamon 1990; Lakshminarayanan et al. 2017): where a text is read so often that a
    model learns it by heart, two models that read it half as often are better than one. A step costs what the steps
    of the members cost together. Elements are symbols, or real numbers under mixtures of one class.

    `log_prob` is the exact likelihood of the mean. Training maximises the mean of the members' log-likelihoods, so
    that none leaves to another what it could learn itself; they share the batches, and the limit of the gradient's
    norm.

    Args:
        members: at least one, all different, each with a state of its own.

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
        for member in members:
            if type(member).to_sequence is not AutoregressiveModel.to_sequence:
                raise ValueError(f"members: expected models of sequences (B, T), got {type(member).__name__}")
        lengths = {member.sequence_length for member in members}
        if len(lengths) > 1:
            raise ValueError(f"members: expected one length of sequences, got {', '.join(sorted(map(str, lengths)))}")
        self.members = nn.ModuleList(members)
        self.sequence_length = lengths.pop()

    def forward(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Head:
        return _mean([member(x, context, lengths) for member in self._models])

    def initial_state(self, batch_size: int, context: Context = None) -> State:
        return tuple(member.initial_state(batch_size, context) for member in self._models)

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Head, State]:
        return _together(member.step(x_prev, part) for member, part in self._each(state))

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Head, State]:
        return _together(member.unroll(x, part, x_prev) for member, part in self._each(state))

    def stepper(self) -> Step:
        steps = [member.stepper() for member in self._models]
        return lambda x_prev, state: _together(step(x_prev, part) for step, part in zip(steps, state, strict=True))

    def window_reader(self) -> Unroll:
        readers = [member.window_reader() for member in self._models]
        return lambda x, state, x_prev: _together(
            read(x, part, x_prev) for read, part in zip(readers, state, strict=True)
        )

    @property
    def block_length(self) -> int:
        return math.lcm(*(member.block_length for member in self._models))

    def rewind(self, before: State, after: State, x: Tensor, x_prev: Tensor | None, kept: int) -> State:
        parts = zip(self._models, before, after, strict=True)
        return tuple(member.rewind(old, new, x, x_prev, kept) for member, old, new in parts)

    def shared(self, state: State) -> State:
        return tuple(member.shared(part) for member, part in self._each(state))

    def visible_past(self, length: int) -> Tensor:
        """Elements that any member sees."""
        return torch.stack([member.visible_past(length) for member in self._models]).any(0)

    def useful_prefix(self, drawn: int) -> int | None:
        """As many as matter to any member."""
        useful = [member.useful_prefix(drawn) for member in self._models]
        return None if None in useful else max(number for number in useful if number is not None)

    def features(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """The features that each member predicts an element from, side by side, (B, T, K·M)."""
        members: list[Any] = list(self.members)
        return torch.cat([member.features(x, context, lengths) for member in members], -1)

    def training_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """The mean of the members' objectives of each row, (B,)."""
        return torch.stack([member.training_objective(x, context, lengths) for member in self._models]).mean(0)

    def training_terms(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Tensor, State]:
        """The mean of the members' terms of a chunk, (B, T), and their states after it."""
        terms, after = zip(*(member.training_terms(x, part, x_prev) for member, part in self._each(state)), strict=True)
        return torch.stack(terms).mean(0), after

    @property
    def _models(self) -> list[AutoregressiveModel]:
        return list(self.members)  # type: ignore[arg-type]  # a ModuleList forgets the type of its modules

    def _each(self, state: State) -> Iterator[tuple[AutoregressiveModel, State]]:
        """Each member with its own state."""
        return zip(self._models, state, strict=True)


def _mean(conditionals: Sequence[Distribution]) -> Head:
    heads = [head_of(conditional) for conditional in conditionals]
    if all(isinstance(head, Categorical) for head in heads):
        return CategoricalMean(cast("list[Categorical]", heads))
    if all(isinstance(head, LocationScaleMixture) for head in heads):
        return LocationScaleMixture.mean_of(cast("list[LocationScaleMixture]", heads))
    kinds = ", ".join(sorted({type(head).__name__ for head in heads}))
    raise TypeError(f"members: expected categorical distributions, or mixtures, got {kinds}")


def _together(answers: Iterable[tuple[Distribution, State]]) -> tuple[Head, State]:
    """The mean of the members' conditionals, and the states of all."""
    conditionals, after = zip(*answers, strict=True)
    return _mean(conditionals), after


def first_member(model: AutoregressiveModel) -> AutoregressiveModel:
    """The network of a mixture, and the first member of an ensemble, for those that look inside one model."""
    return part_of(model, None)[0]


def part_of(model: AutoregressiveModel, state: State) -> tuple[AutoregressiveModel, State]:
    """The `first_member` of a model, and its part of the model's state."""
    while isinstance(model, NgramMixture | Ensemble):
        model = model.network if isinstance(model, NgramMixture) else cast("AutoregressiveModel", model.members[0])
        state = None if state is None else state[0]
    return model, state
