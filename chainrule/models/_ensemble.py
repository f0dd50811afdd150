"""The mean of several models of the same sequences."""

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from chainrule._base import AutoregressiveModel, Context
from chainrule.models._model_mean import ModelMean
from chainrule.state import State


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
