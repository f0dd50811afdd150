"""Receptive fields: the elements that a conditional depends on, by derivatives."""

import copy
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from chainrule._base import AutoregressiveModel, Context
from chainrule.modes import check_gradients_work, own_draws
from chainrule.state import count_rows, expand, map_state, select
from chainrule.testing._agreement import finite_support

_DIRECTIONS = 4  # random directions in which log-probabilities are differentiated
_ROWS = 8  # rows of a random x; one row may hide an influence that others show


@dataclass(frozen=True)
class ReceptiveField:
    """Elements that p(x_t | x_{<t}, c) depends on, in the layout of x without its batch axis.

    Attributes:
        position: t, in visiting order.
        influence: size of the derivative with respect to each element.
        permitted: true for elements before t.
        declared: true for elements that the model declares in `visible_past`.
    """

    position: int
    influence: Tensor
    permitted: Tensor
    declared: Tensor

    @property
    def reached(self) -> Tensor:
        """True for elements with an influence."""
        return self.influence > 0

    @property
    def unreached(self) -> Tensor:
        """True for permitted elements without an influence, in the blind spot or beyond the reach."""
        return self.permitted & ~self.reached

    @property
    def blind_spot(self) -> Tensor:
        """True for unreached elements between reached ones.

        In a sequence, these follow the first reached element; in an image, they lie inside the bounding box of the
        reached pixels.
        """
        seen = self.reached.clone()
        if seen.dim() == 3:  # (C, H, W): combine the colours
            seen = seen.any(0)
        inside = torch.ones_like(seen)
        for axis in range(seen.dim()):
            others = [other for other in range(seen.dim()) if other != axis]
            line = seen.any(others[0]) if others else seen
            shape = [-1 if other == axis else 1 for other in range(seen.dim())]
            inside = inside & _between(line).view(shape)
        return self.unreached & inside

    def summary(self) -> dict[str, int | bool]:
        """Count permitted, reached, blind and distant elements, and compare with the declaration."""
        return {
            "permitted": int(self.permitted.sum()),
            "reached": int((self.reached & self.permitted).sum()),
            "blind_spot": int(self.blind_spot.sum()),
            "beyond_reach": int((self.unreached & ~self.blind_spot).sum()),
            "declared": int(self.declared.sum()),
            "as_declared": bool(torch.equal(self.reached, self.declared)),
            "not_permitted": int((self.reached & ~self.permitted).sum()),
        }


@torch.enable_grad()
def receptive_field(
    model: AutoregressiveModel,
    position: int | tuple[int, ...],
    x: Tensor | None = None,
    context: Context = None,
    *,
    seed: int = 0,
) -> ReceptiveField:
    r"""Find the receptive field of a conditional by derivatives in float64.

    .. math:: \mathrm{influence}_s = \Big(\frac{1}{B} \sum_{b} \mathbb{E}_r \big\| \partial
        \sum_v r_v \log p(v \mid x^{(b)}_{<t}) \,/\, \partial e(x^{(b)}_s) \big\|^2\Big)^{1/2}

    e(x_s) is x_s itself for real elements; for integers it is their embedding, or the integer converted to a float. v
    runs over the element itself and some draws, r over random signs. Flat functions, such as a rectifier that is
    inactive for every row of x, hide an influence; more rows reveal more.

    Args:
        model: any model; it must embed or convert integers by functions of PyTorch, not by custom autograd functions.
            It is not changed.
        position: t in visiting order, or the index of the element in x without its batch axis, such as (colour, row,
            column) of an image.
        x: (B, ...) elements in the model's layout; default random elements.
        context: context of each row, batch first.
        seed: seed of the draws.

    Raises:
        ValueError: the position is invalid; x is empty, or required and missing; the model converts integers in an
            unsupported way; or columns of a table have symbols, which have no gradient.

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
            "model: expected elements with gradients, got columns with categories, frequent or missing values: "
            "compare values with chainrule.testing.check_model"
        )
    check_gradients_work()
    generator = torch.Generator().manual_seed(seed)
    twin = copy.deepcopy(model).cpu().double().eval().requires_grad_(requires_grad=False)
    context = map_state(lambda leaf: leaf.cpu().double() if leaf.is_floating_point() else leaf.cpu(), context)
    if x is None:
        x = _random(twin, _ROWS if context is None else count_rows(context), context, generator)
    x = x.detach().cpu().double() if x.is_floating_point() else x.detach().cpu().long()
    if not len(x):
        raise ValueError("x: expected at least one row, got none")
    if context is not None:
        context = expand(context, len(x))
    indices = torch.arange(x[0].numel(), device="cpu").view(1, *x.shape[1:])
    order = twin.to_sequence(indices)[0]  # (T,): index in x of each element in visiting order
    frames = order.dim() > 1  # each element is several numbers, whose influences are combined
    if frames:
        order = torch.arange(len(order), device="cpu")
    t = _visiting_index(position, order, x)
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
    sources = _symbol_sources(model, x, context, generator)
    probes = InputProbes(len(x))
    with probes:
        conditionals = model(x, context)
    numbers = _numbers(model, conditionals, x, t, generator)
    elements = [sources.get(call) for call in probes.calls]
    seen = any(index is not None and (index >= 0).any() for index in elements)
    total = torch.zeros(x[0].numel(), dtype=torch.float64, device="cpu")
    if not seen or not numbers[0].requires_grad:
        if t:
            raise _unseen(model)
        return total  # p(x_0) depends on nothing
    for value in numbers:
        for index, gradient in zip(elements, probes.gradients(value), strict=True):
            if index is not None:
                valid = index >= 0
                total.index_add_(0, index[valid], gradient.sum(0)[valid])
    return total


@torch.no_grad()
def _symbol_sources(
    model: AutoregressiveModel, x: Tensor, context: Context, generator: torch.Generator
) -> dict[int, Tensor]:
    """Map each probe's call to the elements of x that its symbols come from, using an x whose columns all differ."""
    support = _support(model, x, context)
    rows = 1 + math.ceil((2 * math.log2(max(x[0].numel(), 2)) + 30) / math.log2(len(support)))  # a tie: one in 2³⁰
    drawn = support[torch.randint(len(support), (rows, *x.shape[1:]), generator=generator, device="cpu")].to(x.dtype)
    probes = InputProbes(rows)
    with probes:  # the same context for all rows, so that only x makes them differ
        model(drawn, None if context is None else select(context, torch.zeros(rows, dtype=torch.long, device="cpu")))
    sources = {
        call: element_indices(part, drawn.flatten(1)) for call, part in zip(probes.calls, probes.symbols, strict=True)
    }
    for index, symbols in zip(sources.values(), probes.symbols, strict=True):
        if ((index < 0) & (symbols != symbols[:1]).any(0)).any():
            raise _unseen(model)
    return sources


def _unseen(model: AutoregressiveModel) -> ValueError:
    return ValueError(
        f"model: {type(model).__name__} converts integers where no derivative with respect to an element exists, as "
        "for n-grams or in a custom autograd function: use an embedding of single elements"
    )


def _numbers(
    model: AutoregressiveModel,
    conditionals: torch.distributions.Distribution,
    x: Tensor,
    t: int,
    generator: torch.Generator,
) -> list[Tensor]:
    """Combine the log-probabilities at t of the elements and some draws at random, summed over rows."""
    seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))
    with own_draws(seed), torch.no_grad():  # torch's distributions take no generator
        values = [x, *(conditionals.sample().to(x.dtype) for _ in range(_DIRECTIONS - 1))]
    terms = torch.stack([model.to_sequence(conditionals.log_prob(value))[:, t] for value in values])  # (K, B)
    terms = torch.where(terms.isfinite(), terms, 0)
    signs = torch.randn(_DIRECTIONS, *terms.shape, generator=generator, dtype=torch.float64, device="cpu")
    return list((signs * terms).sum((1, 2)).unbind())


def _random(model: AutoregressiveModel, rows: int, context: Context, generator: torch.Generator) -> Tensor:
    if model.sequence_length is None:
        raise ValueError("x: expected sequences, as this model has no fixed length, got None")
    x = model.from_sequence(torch.zeros(rows, model.sequence_length, dtype=torch.long, device="cpu"))
    support = _support(model, x, context)
    return support[torch.randint(len(support), tuple(x.shape), generator=generator, device="cpu")].long()


@torch.no_grad()
def _support(model: AutoregressiveModel, x: Tensor, context: Context) -> Tensor:
    support = finite_support(model(x[:1], None if context is None else select(context, torch.arange(1, device="cpu"))))
    if support is None or support.dim() != 1 or len(support) < 2:
        raise ValueError(f"model: expected elements from a list of integers, got {type(model).__name__}")
    return support


def _visiting_index(position: int | tuple[int, ...], order: Tensor, x: Tensor) -> int:
    """Return the index of an element in visiting order."""
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
    """Return booleans, true from the first true entry to the last."""
    return (line.cumsum(0) > 0) & (line.flip(0).cumsum(0).flip(0) > 0)


class InputProbes(TorchFunctionMode):
    r"""Mode that adds a separate zero tensor d to every tensor e(x) computed from integers x.

    .. math:: \partial f / \partial d = \partial f / \partial e(x)

    e may be an embedding, an index into a table or a conversion to floating point. The derivative with respect to d
    shows how f depends on that symbol, if f is smooth in e(x).
    """

    def __init__(self, rows: int):
        super().__init__()
        self.rows = rows  # batch size B of the model's input
        self.symbols: list[Tensor] = []  # the converted integers of each probe, (B, P)
        self.calls: list[int] = []  # number of conversions before each probe, which is equal in two passes of a model
        self._seen = 0
        self.deltas: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if func is nn.functional.embedding_bag and _is_a_plain_sum(args[0], kwargs or {}):  # probe each of its terms
            return self.__torch_function__(nn.functional.embedding, types, args).sum(-2)
        out = func(*args, **(kwargs or {}))
        if not isinstance(out, Tensor) or not out.is_floating_point() or _reads_metadata_only(func):
            return out
        for symbols in _tensors((args, kwargs)):
            if not _are_symbols(symbols) or out.shape[: symbols.dim()] != symbols.shape:
                continue
            self._seen += 1
            if symbols.numel() % self.rows == 0:  # other integers, such as positions, are not symbols of x
                self.calls.append(self._seen - 1)
                delta = torch.zeros_like(out, requires_grad=torch.is_grad_enabled())
                self.symbols.append(symbols.detach().reshape(self.rows, -1))
                self.deltas.append(delta)
                out = out + delta
        return out

    def gradients(self, value: Tensor) -> list[Tensor]:
        """Return Σ (∂value/∂d)² over the features of each symbol, (B, P) per probe."""
        gradients = torch.autograd.grad(
            value, self.deltas, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        return [
            gradient.reshape(*symbols.shape, -1).square().sum(2)
            for gradient, symbols in zip(gradients, self.symbols, strict=True)
        ]


def element_indices(symbols: Tensor, x: Tensor) -> Tensor:
    """Return the element of x that each symbol (B, P) comes from, (P,) integers, −1 for none.

    It compares differences between rows, because a model may add an offset to the symbols of each element.
    """
    x, symbols = x.long(), symbols.long()  # differences in a narrow dtype would wrap
    column_of = {tuple(column): index for index, column in enumerate((x - x[:1]).t().tolist())}
    symbols = symbols - symbols[:1]
    indices = [column_of.get(tuple(column), -1) for column in symbols.t().tolist()]
    return torch.tensor(indices, dtype=torch.long, device="cpu")


def _are_symbols(tensor: Tensor) -> bool:
    numbers = tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool
    return not numbers and tensor.dim() > 0 and tensor.numel() > 0


def _is_a_plain_sum(symbols: Tensor, options: Mapping[str, Any]) -> bool:
    """Return true if `embedding_bag` just sums an embedding's rows: no lengths, weights, padding or norms."""
    others = ("offsets", "max_norm", "per_sample_weights", "padding_idx")
    return symbols.dim() == 2 and options.get("mode") == "sum" and all(options.get(name) is None for name in others)


def _reads_metadata_only(func: Any) -> bool:
    """Return true if a function uses only shape, dtype and device of its argument."""
    name = getattr(func, "__name__", "")
    return name.startswith("new_") or name.endswith("_like")


def _tensors(arguments: Any) -> Iterator[Tensor]:
    if isinstance(arguments, Tensor):
        yield arguments
    elif isinstance(arguments, Mapping):
        yield from _tensors(arguments.values())
    elif isinstance(arguments, Iterable) and not isinstance(arguments, str):
        for argument in arguments:
            yield from _tensors(argument)
