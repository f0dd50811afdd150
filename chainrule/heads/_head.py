"""Base classes of heads: distributions of one element, parametrised by a network."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from chainrule.kernels._transforms import needs_plain_form

Choose: TypeAlias = Callable[[Tensor, Tensor | None], Tensor]
"""Function that codes one symbol in each of B rows, given probabilities (B, V), and returns the symbols (B,). An
encoder gets the symbols as the second argument and writes them; a decoder gets `None` and reads them."""


class NotDiscreteError(ValueError):
    """Error: a continuous distribution has densities, not probabilities, so its values have no code of −log₂ p bits."""


class Head(Distribution, ABC):
    """Base class: a `torch.distributions.Distribution` with explicit generators, filters and stacking.

    A head defines both the density and the sampler: draws of `sample` are always in the support of `log_prob`. A
    model may also return any distribution of torch; `head_of` adapts it.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}

    @abstractmethod
    def log_prob(self, value: Tensor) -> Tensor:
        """Return log p(value), nats; value of batch and event shape broadcasts. −inf outside the support."""

    @abstractmethod
    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw values of shape sample_shape + batch shape + event shape; equal seeds give equal values.

        Raises:
            ValueError: a parameter is NaN, or no value has positive probability.
        """

    def categorical(self) -> Any:
        """Return the same distribution as a `Categorical` over 0, …, V−1, or `None` if it is not over symbols."""
        return None

    def code(self, choose: Choose, value: Tensor | None = None) -> Tensor:
        """Encode or decode a value as a series of choices; `chainrule.coding` uses it in both directions.

        The product of the probabilities of the choices is p(value). The base class makes a single choice among the
        symbols of `categorical()`.

        Args:
            choose: function that makes a choice in each of B rows.
            value: value to encode, of batch shape (B,) and event shape; `None` to decode one.

        Returns:
            The value, in the dtype of `sample`.

        Raises:
            NotDiscreteError: the distribution is continuous.
        """
        table = self.categorical()
        if table is None:
            raise NotDiscreteError(
                f"lossless coding needs a distribution of discrete values, got {self._name()}, which has a density: "
                "give the model levels, bins or categories"
            )
        return choose(table.probs, None if value is None else value.long())

    def filtered(self, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None) -> "Head":
        """Apply temperature, top-k and top-p to `categorical()`; see `Categorical.filtered`.

        Raises:
            ValueError: a filter is out of range, or the distribution is not over symbols. (A power of a mixture of
                densities is not such a mixture; pixels are filtered channel by channel.)
        """
        if temperature == 1 and top_k is None and top_p is None:
            return self
        table = self.categorical()
        if table is None:
            raise ValueError(
                "temperature, top_k and top_p need a categorical distribution, "
                f"got {self._name()}: leave them at their defaults"
            )
        return table.filtered(temperature, top_k, top_p)

    @classmethod
    def stacked(cls, parts: "Sequence[Head]") -> "Head":
        """Join T heads of batch shape (B, ...), the first of this class, into one of batch shape (B, T, ...)."""
        return Stacked(parts)

    def _name(self) -> str:
        return type(self).__name__


class TensorHead(Head):
    """Base class of heads whose parameters are tensors that begin with the batch shape; these stack into one head."""

    @property
    @abstractmethod
    def parameters(self) -> tuple[Tensor, ...]:
        """Tensors of batch shape plus any further axes, in the order of the constructor."""

    @property
    def settings(self) -> tuple[Any, ...]:
        """Further arguments of the constructor; heads must share them to be stacked into one."""
        return ()

    def with_parameters(self, *parameters: Tensor) -> Self:
        """Return a head of the same class and settings with other parameters, for example a reshaped batch."""
        kind: Any = type(self)
        return kind(*parameters, *self.settings)

    @classmethod
    def stacked(cls, parts: Sequence[Head]) -> Head:
        first, *others = parts
        if not isinstance(first, cls) or not all(first._is_like(other) for other in others):
            return Stacked(parts)
        rows = zip(*(part.parameters for part in parts if isinstance(part, cls)), strict=True)
        return first.with_parameters(*(torch.stack(row, 1) for row in rows))

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        """Expand the head to a larger batch."""
        shape, dims = torch.Size(batch_shape), len(self._batch_shape)
        return self.with_parameters(*(part.expand(*shape, *part.shape[dims:]) for part in self.parameters))

    def _is_like(self, other: Head) -> bool:
        if type(other) is not type(self):
            return False
        alike = zip(self.parameters, other.parameters, strict=True)
        return _same(self.settings, other.settings) and all(a.shape == b.shape for a, b in alike)


def _same(a: Any, b: Any) -> bool:
    """Compare settings: numbers by value, tensors by identity."""
    if isinstance(a, (tuple, list)) and type(a) is type(b):
        return len(a) == len(b) and all(map(_same, a, b))
    return a is b or (isinstance(a, int) and a == b)


class WrappedHead(Head):
    """Base class of heads that wrap another distribution of the same elements."""

    def __init__(self, inner: Distribution, batch_shape: torch.Size):
        self.inner, self.has_enumerate_support = inner, inner.has_enumerate_support
        super().__init__(batch_shape, inner.event_shape, validate_args=False)

    @property
    def support(self) -> Any:
        return self.inner.support

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Return every value of one element, (K, 1, ..., event shape), or (K, batch shape, event shape) expanded."""
        values = self.inner.enumerate_support(expand=False)
        values = values.view(-1, *[1] * len(self._batch_shape), *self._event_shape)
        return values.expand(-1, *self._batch_shape, *self._event_shape) if expand else values


class Stacked(WrappedHead):
    """A stack of T distributions, of any classes, over the elements of a sequence; a value is (B, T, ...)."""

    def __init__(self, parts: Sequence[Head]):
        self.parts = list(parts)
        first = self.parts[0].batch_shape
        super().__init__(self.parts[0], torch.Size((first[0], len(self.parts), *first[1:])))

    def log_prob(self, value: Tensor) -> Tensor:
        value = value.expand(broadcast_shapes(value.shape, self._batch_shape + self._event_shape))
        after = len(self._batch_shape) - 2  # batch axes after time
        elements = value.unbind(-1 - after - len(self._event_shape))
        terms = [part.log_prob(element) for part, element in zip(self.parts, elements, strict=True)]
        return torch.stack(terms, -1 - after)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        drawn = [part.sample(sample_shape, generator=generator) for part in self.parts]
        return torch.stack(drawn, len(torch.Size(sample_shape)) + 1)

    def filtered(self, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None) -> Head:
        return Stacked([part.filtered(temperature, top_k, top_p) for part in self.parts])


def broadcast_shapes(*shapes: torch.Size) -> torch.Size:
    """Broadcast several shapes with NumPy; torch's function imports SymPy, which takes half a second.

    >>> broadcast_shapes(torch.Size((3, 1)), torch.Size((2,)))
    torch.Size([3, 2])
    """
    return torch.Size(np.broadcast_shapes(*shapes))


def check_drawable(summary: Tensor, name: str) -> None:
    """Raise ValueError if `summary`, a sum or maximum of the parameters `name`, is NaN or infinite."""
    # Without this check NaN weights would draw ordinary symbols. Transforms and torch.compile hide the values.
    if needs_plain_form() or torch.compiler.is_compiling():
        return
    if not math.isfinite(summary):
        raise ValueError(
            f"{name}: expected a valid distribution to draw from, got NaN or infinite parameters: check the model's "
            "weights and input for NaN"
        )


def at_least_float32(parameter: Tensor) -> Tensor:
    """Cast half precision to float32, because sums of exponentials need more digits."""
    return parameter.float() if parameter.dtype in (torch.bfloat16, torch.float16) else parameter


def largest_exponent(dtype: torch.dtype) -> float:
    """Return the λ at which e^λ nears overflow, 84 in float32 and 674 in float64; log-scales are clamped to ±λ."""
    return 0.95 * math.log(torch.finfo(dtype).max)


def representable(temperature: float, dtype: torch.dtype) -> float:
    """Clamp a temperature to the positive numbers of a dtype."""
    limits = torch.finfo(dtype)
    return min(max(temperature, limits.tiny), limits.max)
