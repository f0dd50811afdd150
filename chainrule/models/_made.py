"""A masked autoencoder for distribution estimation: binary tables."""

import copy
from collections.abc import Iterator, Sequence
from typing import final

import torch
from torch import Tensor, nn

from chainrule._base import AutoregressiveModel, Context, Executor, for_rows, refuse_context
from chainrule._drawing import Draw
from chainrule._ranges import check_shares, check_sizes
from chainrule.heads import Bernoulli
from chainrule.kernels._made_columns import Columns, DegreeLayer
from chainrule.kernels._plain_modules import may_prepare
from chainrule.kernels._transforms import values_are_known
from chainrule.layers._cells import project
from chainrule.layers._masked_linear import MaskedLinear, made_degrees, made_masks
from chainrule.layers._packing import real_steps
from chainrule.state import State


@final
class MADE(AutoregressiveModel):
    r"""A dense network whose masks make every output a conditional of D binary columns (Germain et al. 2015).

    .. math:: h^{(l)} = \mathrm{relu}((W^{(l)} \odot M^{(l)}) h^{(l-1)} + b^{(l)}), \qquad h^{(0)} = x, \qquad
        p(x_d = 1 \mid x_{<d}) = \sigma((V \odot M^V) h^{(L)} + (A \odot M^A) x + c)_d

    Columns are visited in any order; `forward` takes them in the order of x, `step` in the order of visits. The first
    layer and the output also read a condition, where there is one. Without hidden layers it is a chain of logistic
    regressions (a fully visible sigmoid belief network, Neal 1992).

    Args:
        num_features: D; x is (B, D) of 0 and 1 in any type.
        hidden_sizes: units of each hidden layer. A layer of fewer than D-1 units cannot pass every column on to the
            next one; `visible_past` says which pairs are lost, and `direct` restores them.
        order: a permutation of the columns, in the order they are visited; None visits them from left to right.
        context_size: features of a condition, (B, context_size) real numbers, or the number of labels, (B,) integers;
            None for no condition.
        direct: connect each column to later outputs past the hidden layers too (A).
        dropout: probability of zeroing a hidden unit in training; of `forward` alone, `step` never drops any.

    Raises:
        ValueError: a size is below 1, the order is no permutation, `dropout` is no probability, or there is no hidden
            layer for `direct` to go past.

    >>> model = MADE(num_features=3, hidden_sizes=[8], order=[2, 0, 1])
    >>> x = model.sample(4, generator=torch.Generator().manual_seed(0))
    >>> x.shape, model(x).probs.shape, model.log_prob(x).shape
    (torch.Size([4, 3]), torch.Size([4, 3]), torch.Size([4]))
    """

    order: Tensor

    def __init__(
        self,
        num_features: int,
        hidden_sizes: Sequence[int],
        order: Sequence[int] | Tensor | None = None,
        *,
        context_size: int | None = None,
        direct: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        check_sizes(num_features=num_features, hidden_sizes=min(hidden_sizes, default=None), context_size=context_size)
        if direct and not hidden_sizes:
            raise ValueError("direct: without a hidden layer all connections are direct, leave it False; got True")
        check_shares(dropout=dropout)
        self.dropout = dropout
        self.num_features = self.sequence_length = num_features
        self.hidden_sizes = tuple(hidden_sizes)
        self.context_size = context_size
        with torch.device("cpu"):  # also where weights are made without memory, and the order comes with them
            none = order is None or (isinstance(order, Tensor) and order.is_meta)
            order = torch.arange(num_features) if none else torch.as_tensor(order)
        self._check_order(order)
        degrees = self.draw_degrees(order)
        *masks, output_mask = made_masks(degrees)
        self.hidden = nn.ModuleList(MaskedLinear(mask) for mask in masks)
        self.output = MaskedLinear(output_mask)
        self.direct = MaskedLinear(made_masks(degrees[:1])[0], bias=False) if direct else None
        if self.direct is not None:
            nn.init.zeros_(self.direct.weight)  # begins as the network without it
        widths = {"hidden": self.hidden_sizes[:1], "output": (num_features,)}
        self.context_weights = nn.ParameterDict(
            {name: nn.Parameter(torch.empty(*width, context_size)) for name, width in widths.items() if width}
            if context_size is not None
            else {}
        )
        for weight in self.context_weights.values():
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
        device = self.output.mask.device
        self._set_degrees(order.to(device), [part.to(device) for part in degrees[1:]])
        self.register_load_state_dict_post_hook(_remask)

    def forward(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Bernoulli:
        x = self._wide(x, "x").to(self.output.weight.dtype)
        real = real_steps(x, lengths)
        if real is not None:
            x = x.masked_fill(~self.from_sequence(real), 0)
        _refuse_other_values(x, "x")
        context = self._context(context, len(x))
        h = x
        for number, layer in enumerate(self.hidden):
            activation = layer(h)
            if number == 0 and context is not None:
                activation = activation + project(context, self.context_weights["hidden"], None)
            h = nn.functional.dropout(activation.relu(), self.dropout, self.training)
        logits = self.output(h)
        if self.direct is not None:
            logits = logits + self.direct(x)
        if context is not None:
            logits = logits + project(context, self.context_weights["output"], None)
        return Bernoulli(logits)

    def initial_state(self, batch_size: int, context: Tensor | None = None) -> State:
        return self._steps().initial_state(batch_size, self._context(context, batch_size))

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Bernoulli, State]:
        return self._stepped(self._steps(), x_prev, state)

    def prepare(self) -> Executor:
        return _ColumnExecutor(self)

    def to_sequence(self, x: Tensor) -> Tensor:
        return self._wide(x, "x").index_select(1, self.order.to(x.device))

    def from_sequence(self, sequence: Tensor) -> Tensor:
        return self._wide(sequence, "sequence").index_select(1, self.order.argsort().to(sequence.device))

    def visible_past(self, length: int) -> Tensor:
        if length != self.num_features:
            raise ValueError(f"length: expected {self.num_features}, the columns of every row, got {length}")
        reach = torch.eye(length, device=self.order.device)
        for layer in (*self.hidden, self.output):
            reach = (layer.mask.to(reach) @ reach).clamp_max(1)  # counts of paths, kept from overflowing
        if self.direct is not None:
            reach = reach + self.direct.mask.to(reach)
        return self.to_sequence(self.to_sequence(reach).t()).t() > 0

    @property
    def degrees(self) -> list[Tensor]:
        """Degrees of the columns, then of the units of each hidden layer; see `made_degrees`."""
        hidden = [self.get_buffer(f"degrees_{number}") for number in range(len(self.hidden_sizes))]
        return [self.order.argsort() + 1, *hidden]

    def draw_degrees(self, order: Tensor, generator: torch.Generator | None = None) -> list[Tensor]:
        """Degrees of this model's columns and units for an order; shuffled by a generator, ascending without one."""
        # With a condition, units of degree 0 read it alone: the first column depends on it through them.
        lowest = 1 if self.context_size is None else 0
        return made_degrees(order, self.hidden_sizes, lowest=lowest, generator=generator)

    def with_masks(self, order: Tensor, degrees: Sequence[Tensor]) -> "MADE":
        """This model with the same weights under other masks: the parameters are shared, and trained together.

        Args:
            order: (D,) a permutation of the columns.
            degrees: (M,) integers from 0 to D-1 for each hidden layer.

        Raises:
            ValueError: the order is no permutation, or the degrees do not fit the hidden layers.
        """
        self._check_order(order)
        sizes = tuple(len(part) for part in degrees)
        if sizes != self.hidden_sizes:
            raise ValueError(f"degrees: expected one for each unit, {self.hidden_sizes}, got {sizes}")
        if any(part.min() < 0 or part.max() >= self.num_features for part in degrees):
            raise ValueError(f"degrees: expected integers from 0 to {self.num_features - 1}, got others")
        shared = {id(tensor): tensor for tensor in (*self.parameters(), *self.buffers())}
        other = copy.deepcopy(self, shared)
        device = self.order.device
        other._set_degrees(order.to(device), [part.to(device) for part in degrees])
        return other

    def resampled(self, generator: torch.Generator, order: Sequence[int] | Tensor | None = None) -> "MADE":
        """This model under drawn masks, sharing its parameters: one batch of agnostic training (section 4.2-4.3).

        Args:
            generator: source of the order and of the units' degrees.
            order: a permutation of the columns; None draws one. With the model's own, only the connections change.

        >>> model = MADE(num_features=3, hidden_sizes=[8])
        >>> other = model.resampled(torch.Generator().manual_seed(0))
        >>> other.order, other.output.weight is model.output.weight
        (tensor([2, 0, 1]), True)
        """
        if order is None:
            order = torch.randperm(self.num_features, generator=generator, device=generator.device)
        order = torch.as_tensor(order, device="cpu")
        self._check_order(order)
        return self.with_masks(order, self.draw_degrees(order, generator)[1:])

    def _set_degrees(self, order: Tensor, degrees: Sequence[Tensor]) -> None:
        self.register_buffer("order", order)
        for number, part in enumerate(degrees):
            self.register_buffer(f"degrees_{number}", part)
        _remask(self)

    def _steps(self) -> "Columns | _PlainColumns":
        if not may_prepare(self):
            return _PlainColumns(self)
        layers = [*self.hidden, self.output]
        # An output is ready when all columns before its own are known, one less than its degree.
        degrees = [*self.degrees[1:], self.degrees[0] - 1]
        weights = [{index: layer.weight} for index, layer in enumerate(layers)]
        if self.direct is not None:
            weights[-1][0] = self.direct.weight
        context: list[Tensor | None] = [None] * len(layers)
        if self.context_weights:
            context[0], context[-1] = self.context_weights.get("hidden"), self.context_weights["output"]
        parts = zip(degrees, (layer.bias for layer in layers), weights, context, strict=True)
        return Columns(self.order, [DegreeLayer(*part) for part in parts])

    def _stepped(
        self, columns: "Columns | _PlainColumns", x_prev: Tensor | None, state: State
    ) -> tuple[Bernoulli, State]:
        return columns.step(None if x_prev is None else x_prev.to(self.output.weight.dtype), state)

    def _wide(self, x: Tensor, name: str) -> Tensor:
        if x.dim() != 2 or x.shape[1] != self.num_features:
            raise ValueError(f"{name}: expected shape (B, D) with D = {self.num_features}, got {tuple(x.shape)}")
        return x

    def _context(self, context: Tensor | None, batch_size: int) -> Tensor | None:
        if self.context_size is None:
            refuse_context(context)
            return None
        size = self.context_size
        if context is None:
            raise ValueError(
                f"context: expected (B, {size}) features or (B,) labels, got None: the model is conditioned"
            )
        if context.is_floating_point():
            if context.dim() != 2 or context.shape[1] != size:
                raise ValueError(f"context: expected shape (B, {size}), got {tuple(context.shape)}")
            context = context.to(self.output.weight.dtype)
        elif context.dim() != 1 or (
            values_are_known(context) and not bool(((context >= 0) & (context <= size - 1)).all())
        ):
            got = (
                f"shape {tuple(context.shape)}"
                if context.dim() != 1
                else f"{int(context.min())} to {int(context.max())}"
            )
            raise ValueError(f"context: expected (B,) labels from 0 to {size - 1}, got {got}")
        else:
            context = context.long()
        expanded: Tensor = for_rows(context, batch_size)
        return expanded

    def _check_order(self, order: Tensor) -> None:
        if order.shape != (self.num_features,) or order.sort().values.tolist() != list(range(len(order))):
            raise ValueError(
                f"order: expected a permutation of 0 to {self.num_features - 1}, "
                f"got {order.tolist() if order.numel() < 20 else f'shape {tuple(order.shape)}'}"
            )


class _ColumnExecutor(Executor):
    """Columns prepared once; a sample is drawn in buffers that nobody else holds."""

    def __init__(self, made: MADE):
        with torch.no_grad():
            columns = made._steps()
        super().__init__(made, lambda x_prev, state: made._stepped(columns, x_prev, state))
        self.made, self.columns = made, columns

    def draws(self, n: int, context: Context, prefix: Tensor | None, pick: Draw) -> Iterator[Tensor]:
        if prefix is not None:
            _refuse_other_values(prefix, "prefix")
        columns = self.columns
        if isinstance(columns, _PlainColumns):
            return super().draws(n, context, prefix, pick)
        columns.layers = [layer.detached() for layer in columns.layers]
        return columns.draws(n, self.made._context(context, n), prefix, pick)


class _PlainColumns:
    """The steps by `forward` of all columns, for modules that have to be called. A state is (context, columns)."""

    def __init__(self, made: MADE):
        self.made = made

    def initial_state(self, batch_size: int, context: Tensor | None) -> State:
        return context, self.made.output.weight.new_zeros(batch_size, 0)

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Bernoulli, State]:
        (context, columns_before), made = state, self.made
        if x_prev is not None:
            columns_before = torch.cat([columns_before, x_prev.unsqueeze(1)], 1)
        t = columns_before.shape[1]
        if t == made.num_features:
            raise ValueError(f"x_prev: expected one of the first {t - 1} columns, got the last: nothing follows it")
        columns = made.from_sequence(nn.functional.pad(columns_before, (0, made.num_features - t)))
        return Bernoulli(made.to_sequence(made(columns, context).logits)[:, t]), (context, columns_before)


def _remask(model: MADE, *_: object) -> None:
    """Masks follow from the degrees: after drawing these or loading them."""
    degrees = model.degrees
    for layer, mask in zip((*model.hidden, model.output), made_masks(degrees), strict=True):
        layer.mask = mask
    if model.direct is not None:
        (model.direct.mask,) = made_masks(degrees[:1])


def _refuse_other_values(x: Tensor, name: str) -> None:
    if not values_are_known(x):
        return
    others = x[(x != 0) & (x != 1)]
    if others.numel():
        raise ValueError(
            f"{name}: expected 0 and 1, got {others[0].item():g}: binarise the columns, or model them as another kind"
        )
