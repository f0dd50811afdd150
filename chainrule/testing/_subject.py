"""Base class of subjects: a float64 copy of the model under test, and a few rows."""

import copy
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from chainrule._base import Context, TrainableModel
from chainrule._checks import check_lengths
from chainrule.modes import device_of
from chainrule.state import expand, leaves, map_state, select
from chainrule.testing._isolation import hidden_tensors

ROWS = 4  # maximum rows of the caller's batch: enough to differ, few enough for a wide model
OPERATIONS = 5e9  # limit of floating-point operations per pass: about a third of a second on one core

N = TypeVar("N", bound=nn.Module)
M = TypeVar("M", bound=TrainableModel)


class Violation(Exception):  # noqa: N818 - an error of the model, not of the program
    """Signal that the rule is broken; the message says where."""


class DoesNotApply(Exception):  # noqa: N818 - no error at all
    """Signal that the rule does not apply to this model; the message says why."""


class Batch(NamedTuple):
    """Batch of rows: arguments of `log_prob`."""

    x: Tensor
    context: Context = None
    lengths: Tensor | None = None

    def rows(self, rows: Tensor) -> "Batch":
        """Select rows in the given order."""
        return Batch(*(select(part, rows) for part in self))


class Subject(ABC, Generic[M]):
    """Base class: a copy of a model that checks may change, a few of the caller's rows, and a random source.

    Attributes:
        random: random source on the CPU; tensors are returned on the device of the model.
        model: the copy, in float64 and evaluation mode, on the device of the original.
        original: the model itself.
        own_type: dtype of the original.
        x: (B, ...) 2 to `ROWS` rows, real numbers in float64.
        context: context of the rows, or `None`.
        lengths: (B,) lengths of the rows, or `None`.
        thorough: false for fewer random draws in the tests of samples and of latent codes.
    """

    models: ClassVar[type]  # class of the models
    named: ClassVar[str]  # the same in words, for messages
    axes: ClassVar[int] = 2  # minimum number of non-empty axes of x
    gradient_draws: ClassVar[tuple[str, ...]] = ("fresh", "biased", "jittered", "remembering", "uneven")  # of weights
    finite_gradients: ClassVar[bool] = False  # true if gradients must be finite at all draws, not only as given
    thorough = True
    adds_up = False  # true if log-likelihoods are sums over elements, so that an empty row has 0

    def __init__(self, model: M, x: Tensor, context: Context, lengths: Tensor | None, seed: int):
        self.random, self.device = torch.Generator().manual_seed(seed), device_of(model)
        self.original, self.model, self.own_type = model, independent_copy(model), number_type(model)
        rows = torch.arange(max(2, min(ROWS, len(x))), device=self.device) % len(x)
        batch = Batch(*(self.here(part) for part in (x, expand(context, len(x)), lengths)))
        self.x, self.context, self.lengths = batch.rows(rows)

    def here(self, tree: Any) -> Any:
        """Move a tree of tensors to the device of the model, real numbers in float64."""

        def moved(leaf: Tensor) -> Tensor:
            leaf = leaf.detach().to(self.device)
            return leaf.double() if leaf.is_floating_point() else leaf

        return map_state(moved, tree)

    @classmethod
    def check_arguments(cls, model: M, x: Tensor, context: Context, lengths: Tensor | None) -> None:
        """Raise ValueError for invalid arguments."""
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
        """Return the length T of a row of x."""
        return x.shape[1]

    @property
    def rows(self) -> Tensor:
        """Indices of the rows of x, (B,)."""
        return torch.arange(len(self.x), device=self.device)

    def batch(self, time: int | None = None) -> Batch:
        """Return the rows for `numbers`, cut to `time` elements if the model accepts that."""
        return Batch(self.x, self.context, self.lengths)

    @abstractmethod
    def numbers(self, batch: Batch, model: M | None = None) -> Tensor:
        """Return the numbers by which models and batches are compared, (B, T, K) or (B, 1, K)."""

    def totals(self, batch: Batch, model: M | None = None) -> Tensor:
        """Return log-likelihoods of whole rows, (B, 1, K)."""
        return self.numbers(batch, model)

    def further(self, batch: Batch, model: M | None = None, *, steps: int = 2) -> dict[str, Tensor]:
        """Return the results of other methods by name, (B, T, K); for `step`, the first conditionals."""
        return {}

    def draws(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Return random results by name, all drawn from the generator."""
        return {}

    def chance_of(self, draws: dict[str, Tensor]) -> float:
        """Bound the probability of drawing the same again."""
        return 0.0

    @abstractmethod
    def objectives(self, model: M) -> Iterable[tuple[str, Tensor]]:
        """Yield scalars that training could maximise, with the name of the method."""

    def arranged(self, batch: Batch, rows: Tensor, changed: Tensor) -> Batch:
        """Select rows, and replace the contents of those where `changed` (N,) is true."""
        return batch.rows(torch.where(changed, (rows + 1) % len(batch.x), rows))

    def shortened(self) -> Iterable[tuple[Batch, Batch]]:
        """Return pairs of unpadded rows and rows with various lengths; raise `DoesNotApply` without lengths."""
        if self.lengths is None:
            raise DoesNotApply("no lengths were passed")
        return [(self.batch(), self.batch())]

    def ends(self, batch: Batch) -> Tensor:
        """Return the lengths of shortened rows, (B,)."""
        assert batch.lengths is not None
        return batch.lengths

    def cut(self, batch: Batch, length: int) -> Batch | None:
        """Cut the rows after `length` elements; `None` if that is impossible."""
        return None

    def paddings(self, batch: Batch) -> Iterable[tuple[str, Batch]]:
        """Yield the rows with other padding, by name."""
        return ()

    def integers(self, high: int, shape: torch.Size | tuple[int, ...]) -> Tensor:
        return torch.randint(high, tuple(shape), generator=self.random, device="cpu").to(self.device)

    def uniform(self, shape: torch.Size | tuple[int, ...]) -> Tensor:
        return torch.rand(tuple(shape), generator=self.random, dtype=torch.float64, device="cpu").to(self.device)

    def normal(self, shape: torch.Size | tuple[int, ...]) -> Tensor:
        return torch.randn(tuple(shape), generator=self.random, dtype=torch.float64, device="cpu").to(self.device)

    def generator(self, seed: int) -> torch.Generator:
        """Return a seeded generator on the device of the model."""
        return torch.Generator(self.device).manual_seed(seed)


def number_type(model: nn.Module) -> torch.dtype:
    parts = [*model.parameters(), *model.buffers()]
    return next((part.dtype for part in parts if part.is_floating_point()), torch.float32)


def in_type(tree: Any, dtype: torch.dtype) -> Any:
    """Convert the real numbers of a tree of tensors to another dtype."""
    return map_state(lambda leaf: leaf.to(dtype) if leaf.is_floating_point() else leaf, tree)


def independent_copy(model: N, *, double: bool = True) -> N:
    """Copy a model in evaluation mode without gradients; `double` converts all tensors to float64, also hidden ones."""
    hidden = hidden_tensors(model)
    copies: dict[int, Any] = {  # of the empty dictionaries for hooks, 11 in a module, which take deepcopy the longest
        id(value): OrderedDict()
        for part in model.modules()
        for value in vars(part).values()
        if type(value) is OrderedDict and not value
    }
    copies |= {
        id(tensor): tensor.detach().clone()
        for tensor in hidden.values()
        if tensor.requires_grad and not tensor.is_leaf  # deepcopy rejects tensors with a graph
    }
    twin = copy.deepcopy(model, copies).eval()
    if double:
        twin = twin.double()
        for tensor in hidden_tensors(twin).values() if hidden else ():
            if tensor.dtype in (torch.float16, torch.bfloat16, torch.float32):
                tensor.data = tensor.data.double()
    twin.zero_grad(set_to_none=True)
    return twin


def filled(x: Tensor, padding: Tensor, real: Tensor) -> Tensor:
    """Return x (B, T, ...) where `real` (B, T) is true, and padding elsewhere."""
    return torch.where(real.view(real.shape + (1,) * (x.dim() - 2)), x, padding)
