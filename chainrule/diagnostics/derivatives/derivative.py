"""The interface of the derivatives of all recurrences."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Derivative(ABC):
    r"""The derivative of one step :math:`s_t = F(p_t, s_{t-1})` of a recurrence, at a set of points.

    The state s is h, (.., M); for an LSTM the concatenation [h, c], (.., 2M). p_t = W_ih x_t + b is the part of
    the input, (.., G·M). Every factor has shape (.., M), the dots being the points: (T, B) along whole rows; a single
    step is `derivative[t]`. No Jacobian is ever formed: J_t is a product with W_hh between elementwise factors.
    """

    weight_hh: Tensor  # (G·M, M)

    @abstractmethod
    def pull(self, ds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """J_tᵀ ds: a gradient at s_t carried back over the step.

        Returns:
            The gradient at s_{t−1}, (.., S); at p_t, (.., G·M), which is D_t δ_t; and at the product with W_hh,
            (.., G·M), the same unless a gate is between the two.
        """

    @abstractmethod
    def push(self, ds: Tensor, dp: Tensor | None = None) -> Tensor:
        """J_t ds + ∂s_t/∂p_t dp: a change of s_{t−1}, and of p_t, carried forward over the step."""

    @abstractmethod
    def bound(self) -> Tensor:
        """A bound of ‖J_t‖ from norms alone, (..): ‖D_t‖‖W_hh‖, plus the largest direct path past W_hh where one is.

        The spectral norm of a matrix that acts on each unit alone is its largest number.
        """

    def weight_gradient(self, d_recurrent: Tensor, h_before: Tensor) -> Tensor:
        """∂L/∂W_hh = Σ_t (D_t δ_t) h_{t−1}ᵀ over all points: one product.

        d_recurrent: (.., G·M), from `pull`; h_before: (.., M), the h_{t−1} of each point.
        """
        return outer_sum(d_recurrent, h_before)

    def whole_gradient(self, ds: Tensor) -> Tensor:
        """∂L/∂s_t from a gradient that holds, for c_t, only the part of the next step: c_t also acts through h_t."""
        return ds

    def __getitem__(self, point: int | slice) -> Self:
        return self.each(lambda factor: factor[point])

    def each(self, function: Callable[[Tensor], Tensor]) -> Self:
        """The same derivative with `function` applied to every factor: other points, or another shape of them."""
        factors = [field.name for field in fields(self) if field.name != "weight_hh"]
        return replace(self, **{name: function(getattr(self, name)) for name in factors})

    @property
    def points(self) -> torch.Size:
        """The shape of the set of points."""
        first = next(field.name for field in fields(self) if field.name != "weight_hh")
        factor: Tensor = getattr(self, first)
        return factor.shape[:-1]

    @property
    def state_size(self) -> int:
        """S: M, or 2M with a cell."""
        return self.weight_hh.shape[1]


@dataclass(frozen=True)
class Passage:
    """One layer along real data: the results of every step, and its derivative there. Arrays are (T, B, M).

    Args:
        h: computed from h_before, one step each: equal to the output of the layer.
        h_before: h_{t−1}.
        c: cell states, where there are any.
        gates: by name, after their σ or tanh.
        derivative: at the points (T, B).
    """

    h: Tensor
    h_before: Tensor
    c: Tensor | None
    gates: dict[str, Tensor]
    derivative: Derivative


def outer_sum(left: Tensor, right: Tensor) -> Tensor:
    """Σ left rightᵀ over all points, (.., K) and (.., M) → (K, M)."""
    return left.flatten(0, -2).t() @ right.flatten(0, -2)
