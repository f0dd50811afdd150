"""Places inside a model where integers become numbers, so that derivatives can be taken with respect to them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


class InputTaps(TorchFunctionMode):
    r"""While it is entered, every number made of an integer, e(x), becomes e(x) + d with a zero d of its own.

    .. math:: \partial f / \partial d = \partial f / \partial e(x)

    An embedding, a look-up in a table, a conversion to floating point: whatever a model does first to its symbols. The
    derivative with respect to d says how f depends on that symbol, as far as f is smooth in e(x).

    Args:
        rows: B, of the batch that the model is going to read.

    Attributes:
        symbols: of each tap, the integers that were converted, (B, P).
        calls: of each tap, how many conversions came before it: equal in two passes of one model.
        deltas: of each tap, d as a leaf of the graph, its first axes those of the integers.

    >>> taps, table = InputTaps(rows=1), torch.nn.Embedding(5, 3)
    >>> with taps:
    ...     features = table(torch.tensor([[4, 2]]))
    >>> taps.symbols[0].tolist(), taps.deltas[0].shape
    ([[4, 2]], torch.Size([1, 2, 3]))
    """

    def __init__(self, rows: int):
        super().__init__()
        self.rows = rows
        self.symbols: list[Tensor] = []
        self.calls: list[int] = []
        self._seen = 0
        self.deltas: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if func is nn.functional.embedding_bag and _is_a_plain_sum(args[0], kwargs or {}):  # tap each of its terms
            return self.__torch_function__(nn.functional.embedding, types, args).sum(-2)
        out = func(*args, **(kwargs or {}))
        if not isinstance(out, Tensor) or not out.is_floating_point() or _only_looks(func):
            return out
        for symbols in _tensors((args, kwargs)):
            if not _are_symbols(symbols) or out.shape[: symbols.dim()] != symbols.shape:
                continue
            self._seen += 1
            if symbols.numel() % self.rows == 0:  # others are no symbols of x, such as positions
                self.calls.append(self._seen - 1)
                delta = torch.zeros_like(out, requires_grad=torch.is_grad_enabled())
                self.symbols.append(symbols.detach().reshape(self.rows, -1))
                self.deltas.append(delta)
                out = out + delta
        return out

    def gradients(self, value: Tensor) -> list[Tensor]:
        """The dependence of a number on each symbol: Σ (∂value/∂d)² over its features, (B, P) a tap."""
        found = torch.autograd.grad(value, self.deltas, retain_graph=True, allow_unused=True, materialize_grads=True)
        return [
            gradient.reshape(*symbols.shape, -1).square().sum(2)
            for gradient, symbols in zip(found, self.symbols, strict=True)
        ]


def places(symbols: Tensor, x: Tensor) -> Tensor:
    """Which element of x each symbol is, told by how rows differ, (P,) integers, −1 for none.

    A model whose tables are parts of one adds a number of its own to the symbols of each.

    Args:
        symbols: (B, P) integers that a model converted when it read x.
        x: (B, T) integers, drawn at random, so that no two columns differ by the same number in all rows.

    >>> x = torch.tensor([[3, 1, 2], [0, 4, 1]])
    >>> places(torch.tensor([[9, 3, 11], [9, 0, 14]]), x)
    tensor([-1,  0,  1])
    """
    x, symbols = x.long(), symbols.long()  # differences in a narrow type would wrap
    column_of = {tuple(column): place for place, column in enumerate((x - x[:1]).t().tolist())}
    symbols = symbols - symbols[:1]
    found = [column_of.get(tuple(column), -1) for column in symbols.t().tolist()]
    return torch.tensor(found, dtype=torch.long, device="cpu")


def _are_symbols(tensor: Tensor) -> bool:
    numbers = tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool
    return not numbers and tensor.dim() > 0 and tensor.numel() > 0


def _is_a_plain_sum(symbols: Tensor, options: Mapping[str, Any]) -> bool:
    """Whether `embedding_bag` is the sum of an embedding's rows: no lengths, weights, padding or norms."""
    others = ("offsets", "max_norm", "per_sample_weights", "padding_idx")
    return symbols.dim() == 2 and options.get("mode") == "sum" and all(options.get(name) is None for name in others)


def _only_looks(func: Any) -> bool:
    """Whether a function takes no more than shape, type and device from its argument."""
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
