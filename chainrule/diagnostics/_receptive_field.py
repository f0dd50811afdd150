"""The elements that one conditional depends on, by the derivatives of a trained model."""

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel, Context
from chainrule.diagnostics._input_taps import InputTaps, places
from chainrule.state import count_rows, expand, map_state, select
from chainrule.testing._support import finite_support

_DIRECTIONS = 4  # in which the numbers of a distribution are followed, drawn at random
_ROWS = 8  # of x, where none is given: an influence that one hides, others show


@dataclass(frozen=True)
class ReceptiveField:
    """The elements that p(x_t | x_{<t}, c) depends on.

    Attributes:
        position: t, in visiting order.
        influence: the size of its derivative with respect to each element, laid out as x is without its batch axis.
        permitted: which elements come before it.
        declared: which of them the model says that it sees, by `visible_past`.
    """

    position: int
    influence: Tensor
    permitted: Tensor
    declared: Tensor

    @property
    def reached(self) -> Tensor:
        """The elements that have an influence."""
        return self.influence > 0

    @property
    def unreached(self) -> Tensor:
        """The permitted elements without an influence: the blind spot, and those beyond the reach."""
        return self.permitted & ~self.reached

    @property
    def blind_spot(self) -> Tensor:
        """The unreached elements in the midst of reached ones.

        In a sequence those after the first that is reached; in an image those that are neither higher up than any
        that is reached nor farther to a side.
        """
        seen = self.reached.clone()
        if seen.dim() == 3:  # (C, H, W): the same of every colour
            seen = seen.any(0)
        inside = torch.ones_like(seen)
        for axis in range(seen.dim()):
            others = [other for other in range(seen.dim()) if other != axis]
            line = seen.any(others[0]) if others else seen
            shape = [-1 if other == axis else 1 for other in range(seen.dim())]
            inside = inside & _between(line).view(shape)
        return self.unreached & inside

    def summary(self) -> dict[str, int | bool]:
        """The counts: permitted, reached, blind spot, beyond reach; and whether the model declares the same."""
        return {
            "permitted": int(self.permitted.sum()),
            "reached": int((self.reached & self.permitted).sum()),
            "blind_spot": int(self.blind_spot.sum()),
            "beyond_reach": int((self.unreached & ~self.blind_spot).sum()),
            "declared": int(self.declared.sum()),
            "as_declared": bool(torch.equal(self.reached, self.declared)),
            "not_permitted": int((self.reached & ~self.permitted).sum()),
        }


def receptive_field(
    model: AutoregressiveModel,
    position: int | tuple[int, ...],
    x: Tensor | None = None,
    context: Context = None,
    *,
    seed: int = 0,
) -> ReceptiveField:
    r"""The receptive field of one conditional, by derivatives in float64.

    .. math:: \mathrm{influence}_s = \Big(\frac{1}{B} \sum_{b} \mathbb{E}_r \big\| \partial
        \sum_v r_v \log p(v \mid x^{(b)}_{<t}) \,/\, \partial e(x^{(b)}_s) \big\|^2\Big)^{1/2}

    e(x_s) is x_s itself where elements are real numbers, and its embedding, or the integer as a number, where they are
    integers. v runs over the element itself and some draws, r over random signs.
    Functions that are flat, such as a rectifier that does not fire for any row of x, hide an influence; several rows
    show more.

    Args:
        model: any model; one of integers must embed or convert them by functions of PyTorch, not by custom autograd
            functions. It is not changed.
        position: t in visiting order, or the index of the element in an x without its batch axis: (colour, row, column)
            of an image.
        x: (B, ...) the elements that are read, as the model lays them out; random elements where not given.
        context: the condition of each row, batch first.
        seed: of the draws.

    Raises:
        ValueError: there is no such position; x has no rows, or is needed and not given; integers enter the model in a
            way that is not seen; columns of a table have symbols, which no gradient shows.

    >>> from chainrule.models import WaveNet
    >>> _ = torch.manual_seed(0)
    >>> model = WaveNet(levels=8, channels=4, blocks=1, layers_per_block=3, skip_channels=4)
    >>> field = receptive_field(model, 12, torch.randint(8, (2, 16)))
    >>> field.reached.int().tolist()
    [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0]
    >>> field.summary()["reached"], field.summary()["beyond_reach"]
    (8, 4)
    """
    if any(getattr(column, "symbols", 1) > 1 for column in getattr(model, "columns", ())):
        raise ValueError(
            "model: expected elements that a gradient shows, got columns with categories, frequent or missing values: "
            "compare values with chainrule.testing.check_model"
        )
    generator = torch.Generator().manual_seed(seed)
    twin = copy.deepcopy(model).cpu().double().eval().requires_grad_(requires_grad=False)
    context = map_state(lambda leaf: leaf.cpu().double() if leaf.is_floating_point() else leaf.cpu(), context)
    if x is None:
        x = _random(twin, _ROWS if context is None else count_rows(context), context, generator)
    x = x.detach().cpu().double() if x.is_floating_point() else x.detach().cpu()
    if not len(x):
        raise ValueError("x: expected at least one row, got none")
    if context is not None:
        context = expand(context, len(x))
    order = twin.to_sequence(torch.arange(x[0].numel(), device="cpu").view(1, *x.shape[1:]))[
        0
    ]  # (T,): place t of the order in x
    frames = order.dim() > 1  # an element is several numbers, which count together
    if frames:
        order = torch.arange(len(order), device="cpu")
    t = _place(position, order, x)
    if x.is_floating_point():
        squares = _of_reals(twin, x, context, t, generator)
    else:
        squares = _of_integers(twin, x, context, t, generator)
    before = torch.zeros(len(order), dtype=torch.bool, device="cpu").index_fill_(0, order[:t], value=True)
    declared = torch.zeros_like(before)
    declared[order] = model.visible_past(len(order))[t].cpu()
    if frames:
        squares = squares.view(len(order), -1).sum(1)
    influence = (squares / (_DIRECTIONS * len(x))).sqrt()
    shape = x.shape[1:2] if frames else x.shape[1:]
    return ReceptiveField(t, influence.view(shape), before.view(shape), declared.view(shape))


def _of_reals(model: AutoregressiveModel, x: Tensor, context: Context, t: int, generator: torch.Generator) -> Tensor:
    x = x.clone().requires_grad_()
    total = torch.zeros(x[0].numel(), dtype=torch.float64, device="cpu")
    for value in _numbers(model, model(x, context), x.detach(), t, generator):
        (gradient,) = torch.autograd.grad(value, x, retain_graph=True, allow_unused=True, materialize_grads=True)
        total += gradient.square().sum(0).flatten()
    return total


def _of_integers(model: AutoregressiveModel, x: Tensor, context: Context, t: int, generator: torch.Generator) -> Tensor:
    whose = _whose_symbols(model, x, context, generator)
    taps = InputTaps(len(x))
    with taps:
        conditionals = model(x, context)
    numbers = _numbers(model, conditionals, x, t, generator)
    places_read = [whose.get(call) for call in taps.calls]
    seen = any(place is not None and (place >= 0).any() for place in places_read)
    total = torch.zeros(x[0].numel(), dtype=torch.float64, device="cpu")
    if not seen or not numbers[0].requires_grad:
        if t:
            raise _unseen(model)
        return total  # p(x_0) depends on nothing
    for value in numbers:
        for place, gradient in zip(places_read, taps.gradients(value), strict=True):
            if place is not None:
                known = place >= 0
                total.index_add_(0, place[known], gradient.sum(0)[known])
    return total


@torch.no_grad()
def _whose_symbols(
    model: AutoregressiveModel, x: Tensor, context: Context, generator: torch.Generator
) -> dict[int, Tensor]:
    """For each tap, which elements of x its symbols are: looked up in an x whose columns all differ; by its call."""
    support = _support(model, x, context)
    rows = 1 + math.ceil((2 * math.log2(max(x[0].numel(), 2)) + 30) / math.log2(len(support)))  # a tie: one in 2³⁰
    drawn = support[torch.randint(len(support), (rows, *x.shape[1:]), generator=generator, device="cpu")].to(x.dtype)
    taps = InputTaps(rows)
    with taps:  # one condition for all rows, so that x alone makes them differ
        model(drawn, None if context is None else select(context, torch.zeros(rows, dtype=torch.long, device="cpu")))
    whose = {call: places(part, drawn.flatten(1)) for call, part in zip(taps.calls, taps.symbols, strict=True)}
    for place, symbols in zip(whose.values(), taps.symbols, strict=True):
        if ((place < 0) & (symbols != symbols[:1]).any(0)).any():
            raise _unseen(model)
    return whose


def _unseen(model: AutoregressiveModel) -> ValueError:
    return ValueError(
        f"model: {type(model).__name__} makes numbers of integers where no derivative with respect to an element can "
        "be taken, such as of n-grams or in an autograd function of its own: give it an embedding of elements alone"
    )


def _numbers(
    model: AutoregressiveModel,
    conditionals: torch.distributions.Distribution,
    x: Tensor,
    t: int,
    generator: torch.Generator,
) -> list[Tensor]:
    """Random combinations of the log-probabilities at t of an element and of some draws, summed over rows."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():  # torch's distributions know no generator
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator, device="cpu")))
        values = [x, *(conditionals.sample().to(x.dtype) for _ in range(_DIRECTIONS - 1))]
    terms = torch.stack([model.to_sequence(conditionals.log_prob(value))[:, t] for value in values])  # (K, B)
    terms = torch.where(terms.isfinite(), terms, 0)
    signs = torch.randn(_DIRECTIONS, *terms.shape, generator=generator, dtype=torch.float64, device="cpu")
    return list((signs * terms).sum((1, 2)).unbind())


def _random(model: AutoregressiveModel, rows: int, context: Context, generator: torch.Generator) -> Tensor:
    if model.sequence_length is None:
        raise ValueError("x: expected sequences to read: this model leaves their length open, got None")
    x = model.from_sequence(torch.zeros(rows, model.sequence_length, dtype=torch.long, device="cpu"))
    support = _support(model, x, context)
    return support[torch.randint(len(support), tuple(x.shape), generator=generator, device="cpu")].long()


@torch.no_grad()
def _support(model: AutoregressiveModel, x: Tensor, context: Context) -> Tensor:
    support = finite_support(model(x[:1], None if context is None else select(context, torch.arange(1, device="cpu"))))
    if support is None or support.dim() != 1 or len(support) < 2:
        raise ValueError(f"model: expected elements from a list of integers, got those of {type(model).__name__}")
    return support


def _place(position: int | tuple[int, ...], order: Tensor, x: Tensor) -> int:
    """The place of an element in visiting order."""
    shape = tuple(x.shape[1:])
    if isinstance(position, tuple):
        if len(position) != len(shape) or not all(0 <= at < size for at, size in zip(position, shape, strict=True)):
            raise ValueError(f"position: expected an index into {shape}, an x without its batch axis, got {position}")
        flat = int(torch.arange(order.numel(), device="cpu").view(shape)[position])
        return int((order == flat).nonzero()[0, 0])
    if not 0 <= position < len(order):
        raise ValueError(f"position: expected from 0 to {len(order) - 1}, got {position}")
    return position


def _between(line: Tensor) -> Tensor:
    """True from the first true entry to the last."""
    return (line.cumsum(0) > 0) & (line.flip(0).cumsum(0).flip(0) > 0)
