"""The model under examination: a copy in float64, and a few rows to try on it."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from chainrule._base import Context, TrainableModel
from chainrule._checks import check_lengths
from chainrule._modes import device_of
from chainrule.state import expand, leaves, map_state, select
from chainrule.testing._leaves import hidden_tensors

ROWS = 4  # of the caller's batch: enough for rows that differ, few enough for a wide model
OPERATIONS = 5e9  # multiplications and additions of one pass: about a third of a second on one core

N = TypeVar("N", bound=nn.Module)
M = TypeVar("M", bound=TrainableModel)


class Violation(Exception):  # noqa: N818 - an error of the model, not of the program
    """The rule is broken; the message says where."""


class DoesNotApply(Exception):  # noqa: N818 - no error at all
    """The rule says nothing about this model; the message says why."""


class Batch(NamedTuple):
    """Rows that a model is asked about, batch first: arguments of `log_prob`."""

    x: Tensor
    context: Context = None
    lengths: Tensor | None = None

    def rows(self, rows: Tensor) -> "Batch":
        """Some of the rows, in that order."""
        return Batch(*(select(part, rows) for part in self))


class Subject(ABC, Generic[M]):
    """A copy of a model that may be changed at will, with a few rows of the caller's, and random numbers of its own.

    Attributes:
        random: their source, on the CPU; tensors come on the device of the model.
        model: the copy, float64, in evaluation mode, on the device of the original.
        original: the model itself.
        own_type: its number type.
        x: (B, ...) 2 to `ROWS` rows, real numbers in float64.
        context: their condition, or `None`.
        lengths: (B,) their real elements, or `None`.
    """

    models: ClassVar[type]  # that are examined in this way
    named: ClassVar[str]  # one of them, in words
    axes: ClassVar[int] = 2  # of x at least, none of them empty
    gradient_draws: ClassVar[tuple[str, ...]] = ("fresh", "biased", "jittered", "remembering", "uneven")  # of weights
    finite_gradients: ClassVar[bool] = False  # at all of these, or at the weights as they are alone
    adds_up = False  # whether log-likelihoods are sums over elements, and so 0 of an empty row

    def __init__(self, model: M, x: Tensor, context: Context, lengths: Tensor | None, seed: int):
        self.random, self.device = torch.Generator().manual_seed(seed), device_of(model)
        self.original, self.model, self.own_type = model, independent_copy(model), number_type(model)
        chosen = torch.arange(max(2, min(ROWS, len(x))), device=self.device) % len(x)
        given = Batch(*(self.here(part) for part in (x, expand(context, len(x)), lengths)))
        self.x, self.context, self.lengths = given.rows(chosen)

    def here(self, tree: Any) -> Any:
        """A tensor or a tree of them on the device of the model, real numbers in float64."""

        def moved(leaf: Tensor) -> Tensor:
            leaf = leaf.detach().to(self.device)
            return leaf.double() if leaf.is_floating_point() else leaf

        return map_state(moved, tree)

    @classmethod
    def check_arguments(cls, model: M, x: Tensor, context: Context, lengths: Tensor | None) -> None:
        """Raise ValueError for arguments that no model of the kind could be checked with."""
        if not isinstance(x, Tensor) or x.dim() < cls.axes or 0 in x.shape[: cls.axes]:
            got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            shape = ("(B, ...)", "(B, T)")[cls.axes - 1]
            raise ValueError(f"x: expected a tensor of shape {shape}, none of them 0, got {got}")
        if any(leaf.dim() < 1 or leaf.shape[0] not in (1, len(x)) for leaf in leaves(context)):
            shapes = ", ".join(str(tuple(leaf.shape)) for leaf in leaves(context))
            raise ValueError(f"context: expected {len(x)} rows as in x, or 1, got shape {shapes}")
        if lengths is not None:
            check_lengths(lengths, (len(x), cls.time_of(model, x)))
            if not lengths.any():
                raise ValueError("lengths: expected some real elements, not all 0")

    @classmethod
    def time_of(cls, model: M, x: Tensor) -> int:
        """T, the elements of a row of x."""
        return x.shape[1]

    @property
    def rows(self) -> Tensor:
        """(B,) the numbers of the rows of x."""
        return torch.arange(len(self.x), device=self.device)

    def batch(self, time: int | None = None) -> Batch:
        """The rows, as `numbers` takes them; where the model takes shorter ones, the first `time` elements of each."""
        return Batch(self.x, self.context, self.lengths)

    @abstractmethod
    def numbers(self, batch: Batch, model: M | None = None) -> Tensor:
        """(B, T, K) or (B, 1, K): all that the model says of each row, by which models and batches are compared."""

    def totals(self, batch: Batch, model: M | None = None) -> Tensor:
        """(B, 1, K) log-likelihoods of whole rows."""
        return self.numbers(batch, model)

    def further(self, batch: Batch, model: M | None = None, *, steps: int = 2) -> dict[str, Tensor]:
        """What other methods say of the rows, by name, (B, T, K); of `step`, the first conditionals."""
        return {}

    def draws(self, generator: torch.Generator) -> dict[str, Tensor]:
        """What a generator fixes, by name."""
        return {}

    def chance_of(self, draws: dict[str, Tensor]) -> float:
        """An upper bound of the probability of drawing the same again."""
        return 0.0

    @abstractmethod
    def objectives(self, model: M) -> Iterable[tuple[str, Tensor]]:
        """Scalars that training could maximise, by the name of the method that makes them."""

    def arranged(self, batch: Batch, rows: Tensor, changed: Tensor) -> Batch:
        """Some of the rows, with something else in those that are `changed`, (N,) booleans."""
        return batch.rows(torch.where(changed, (rows + 1) % len(batch.x), rows))

    def shortened(self) -> Iterable[tuple[Batch, Batch]]:
        """Rows as they are, and with lengths of many kinds; raises `DoesNotApply` where they cannot have any."""
        if self.lengths is None:
            raise DoesNotApply("no lengths were given")
        return [(self.batch(), self.batch())]

    def ends(self, batch: Batch) -> Tensor:
        """(B,) the real elements of shortened rows."""
        assert batch.lengths is not None
        return batch.lengths

    def cut(self, batch: Batch, length: int) -> Batch | None:
        """The rows cut after some elements, all of them real; `None` where that cannot be."""
        return None

    def paddings(self, batch: Batch) -> Iterable[tuple[str, Batch]]:
        """The rows with something else after their ends, by name."""
        return ()

    def integers(self, high: int, shape: torch.Size | tuple[int, ...]) -> Tensor:
        return torch.randint(high, tuple(shape), generator=self.random, device="cpu").to(self.device)

    def uniform(self, shape: torch.Size | tuple[int, ...]) -> Tensor:
        return torch.rand(tuple(shape), generator=self.random, dtype=torch.float64, device="cpu").to(self.device)

    def normal(self, shape: torch.Size | tuple[int, ...]) -> Tensor:
        return torch.randn(tuple(shape), generator=self.random, dtype=torch.float64, device="cpu").to(self.device)

    def generator(self, seed: int) -> torch.Generator:
        """A generator for a sampler, on the device of the model."""
        return torch.Generator(self.device).manual_seed(seed)


def number_type(model: nn.Module) -> torch.dtype:
    parts = [*model.parameters(), *model.buffers()]
    return next((part.dtype for part in parts if part.is_floating_point()), torch.float32)


def in_type(tree: Any, dtype: torch.dtype) -> Any:
    """A tensor or a tree of them, with real numbers of another type."""
    return map_state(lambda leaf: leaf.to(dtype) if leaf.is_floating_point() else leaf, tree)


def independent_copy(model: N, *, double: bool = True) -> N:
    """A deep copy in float64 and evaluation mode, without gradients; what is not registered is converted too.

    double: False leaves number types as they are.
    """
    graphs = {
        id(tensor): tensor.detach().clone()
        for tensor in hidden_tensors(model).values()
        if tensor.requires_grad and not tensor.is_leaf  # torch copies no tensor that hangs on a graph
    }
    twin = copy.deepcopy(model, graphs).eval()
    if double:
        twin = twin.double()
        for tensor in hidden_tensors(twin).values():
            if tensor.dtype in (torch.float16, torch.bfloat16, torch.float32):
                tensor.data = tensor.data.double()
    twin.zero_grad(set_to_none=True)
    return twin


def filled(x: Tensor, padding: Tensor, real: Tensor) -> Tensor:
    """x (B, T, ...) where `real` (B, T) is true, and padding elsewhere."""
    return torch.where(real.view(real.shape + (1,) * (x.dim() - 2)), x, padding)
