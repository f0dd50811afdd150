"""The base of all heads: the distribution of one element, as a network gives it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from chainrule.kernels._transforms import needs_plain_form

if TYPE_CHECKING:
    from chainrule.heads._categorical import Categorical

Choose: TypeAlias = Callable[[Tensor, Tensor | None], Tensor]
"""Codes one symbol in each of B rows, given probabilities (B, V), and returns the symbols (B,). An encoder gets the
symbols as the second argument and writes them; a decoder gets `None` and reads them."""


class NotDiscreteError(ValueError):
    """Values of a continuous distribution have a density and no probability: they cannot be written in −log₂ p bits."""


class Head(Distribution, ABC):
    """A `torch.distributions.Distribution` that draws from an explicit generator, and can be filtered and stacked.

    A head owns both the density and the sampler: draws of `sample` are always in the support of `log_prob`. A
    model may return any distribution of torch instead; `head_of` adapts it.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}

    @abstractmethod
    def log_prob(self, value: Tensor) -> Tensor:
        """log p(value), nats; value (...) and the event shape, broadcast against the batch shape. −inf outside the
        support.
        """

    @abstractmethod
    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw values of shape sample_shape + batch shape + event shape; the same seed gives the same values.

        Raises:
            ValueError: a parameter is NaN, or the distribution has none that is possible.
        """

    def categorical(self) -> "Categorical | None":
        """The same distribution as a table over its V symbols 0, …, V−1; `None` where it is not over symbols."""
        return None

    def code(self, choose: Choose, value: Tensor | None = None) -> Tensor:
        """Encode or decode a value as a series of choices; `chainrule.coding` uses it in both directions.

        The product of the probabilities of the choices is p(value). This version makes a single choice, out of the
        symbols of `categorical()`.

        Args:
            choose: makes a choice in each of B rows.
            value: batch shape (B,) and event shape; `None` to read one.

        Returns:
            The value in the type in which `sample` draws.

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
        """The distribution that sampling draws from, as `Categorical.filtered` makes it of `categorical()`.

        Raises:
            ValueError: a filter is out of range, or is asked of a distribution that is not over symbols: a power of a
                mixture of densities is no such mixture, and a pixel is filtered channel by channel.
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
    """A head made of tensors whose first axes are the batch shape: heads of one kind are stacked into another."""

    @property
    @abstractmethod
    def parameters(self) -> tuple[Tensor, ...]:
        """The tensors, each of the batch shape and axes of its own, in the order of the constructor."""

    @property
    def settings(self) -> tuple[Any, ...]:
        """Arguments of the constructor after the parameters, which heads must share to be stacked into one."""
        return ()

    def with_parameters(self, *parameters: Tensor) -> Self:
        """A head of the same kind and settings with other parameters, such as those of another layout of the batch."""
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
        """The same head for a larger batch."""
        shape, own = torch.Size(batch_shape), len(self._batch_shape)
        return self.with_parameters(*(part.expand(*shape, *part.shape[own:]) for part in self.parameters))

    def _is_like(self, other: Head) -> bool:
        if type(other) is not type(self):
            return False
        alike = zip(self.parameters, other.parameters, strict=True)
        return _same(self.settings, other.settings) and all(a.shape == b.shape for a, b in alike)


def _same(a: Any, b: Any) -> bool:
    """Whether settings are the same numbers, and the same tensors: their values are not compared."""
    if isinstance(a, (tuple, list)) and type(a) is type(b):
        return len(a) == len(b) and all(map(_same, a, b))
    return a is b or (isinstance(a, int) and a == b)


class WrappedHead(Head):
    """A head made of another distribution, with the same values of an element in another batch."""

    def __init__(self, inner: Distribution, batch_shape: torch.Size):
        self.inner, self.has_enumerate_support = inner, inner.has_enumerate_support
        super().__init__(batch_shape, inner.event_shape, validate_args=False)

    @property
    def support(self) -> Any:
        return self.inner.support

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Every value of one element, (K, 1, ..., event shape), or (K, batch shape, event shape) expanded."""
        values = self.inner.enumerate_support(expand=False)
        values = values.view(-1, *[1] * len(self._batch_shape), *self._event_shape)
        return values.expand(-1, *self._batch_shape, *self._event_shape) if expand else values


class Stacked(WrappedHead):
    """T distributions of any kinds over the elements of a sequence; a value is (B, T, ...)."""

    def __init__(self, parts: Sequence[Head]):
        self.parts = list(parts)
        first = self.parts[0].batch_shape
        super().__init__(self.parts[0], torch.Size((first[0], len(self.parts), *first[1:])))

    def log_prob(self, value: Tensor) -> Tensor:
        value = value.expand(broadcast_shapes(value.shape, self._batch_shape + self._event_shape))
        after = len(self._batch_shape) - 2  # axes of the batch that follow time
        elements = value.unbind(-1 - after - len(self._event_shape))
        terms = [part.log_prob(element) for part, element in zip(self.parts, elements, strict=True)]
        return torch.stack(terms, -1 - after)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        drawn = [part.sample(sample_shape, generator=generator) for part in self.parts]
        return torch.stack(drawn, len(torch.Size(sample_shape)) + 1)

    def filtered(self, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None) -> Head:
        return Stacked([part.filtered(temperature, top_k, top_p) for part in self.parts])


def broadcast_shapes(*shapes: torch.Size) -> torch.Size:
    """Broadcast shape of several tensors, by NumPy: torch's function imports SymPy, half a second of a run.

    Raises:
        ValueError: they do not fit.

    >>> broadcast_shapes(torch.Size((3, 1)), torch.Size((2,)))
    torch.Size([3, 2])
    """
    return torch.Size(np.broadcast_shapes(*shapes))


def check_drawable(summary: Tensor, name: str) -> None:
    """Raise ValueError where a number is NaN or infinite that a draw depends on.

    A network of NaN would else give symbols like any other. Inside `torch.compile` and the transforms of `torch.func`
    numbers cannot be looked at, and nothing is checked.

    Args:
        summary: one number, finite if and only if all parameters are valid: their greatest, or a sum.
        name: of the parameters.
    """
    if needs_plain_form() or torch.compiler.is_compiling():
        return
    if not math.isfinite(summary):
        raise ValueError(
            f"{name}: expected a valid distribution to draw from, got NaN or infinite parameters: look for NaN in the "
            "weights and in the input of the model"
        )


def at_least_float32(parameter: Tensor) -> Tensor:
    """A parameter in the type it is worked on: half precision is too short for sums of exponentials."""
    return parameter.float() if parameter.dtype in (torch.bfloat16, torch.float16) else parameter


def largest_exponent(dtype: torch.dtype) -> float:
    """λ at which e^λ nears the end of a type: 84 in float32, 674 in float64. Scales beyond, either way, stay there."""
    return 0.95 * math.log(torch.finfo(dtype).max)


def representable(temperature: float, dtype: torch.dtype) -> float:
    """The nearest temperature that a type can divide by."""
    limits = torch.finfo(dtype)
    return min(max(temperature, limits.tiny), limits.max)
