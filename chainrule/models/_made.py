"""A masked autoencoder for distribution estimation: binary tables."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import final

import torch
from torch import Tensor, nn

from chainrule._base import Context
from chainrule._checks import check_binary
from chainrule._executor import Executor
from chainrule._ranges import check_shares, check_sizes
from chainrule.heads import Bernoulli
from chainrule.heads._adapter import Draw
from chainrule.kernels._made_columns import Columns, DegreeLayer
from chainrule.kernels._transforms import may_prepare
from chainrule.layers._cells import project
from chainrule.layers._packing import real_steps
from chainrule.models._column_model import AgnosticColumnModel, checked_order
from chainrule.models._conditioned import checked_condition
from chainrule.option_error import OptionError
from chainrule.state import State


@final
class MADE(AgnosticColumnModel):
    r"""A dense network whose masks make every output a conditional of D binary columns (Germain et al. 2015).

    .. math:: h^{(l)} = \mathrm{relu}((W^{(l)} \odot M^{(l)}) h^{(l-1)} + b^{(l)}), \qquad h^{(0)} = x, \qquad
        p(x_d = 1 \mid x_{<d}) = \sigma((V \odot M^V) h^{(L)} + (A \odot M^A) x + c)_d

    Columns are visited in any order; `forward` takes them in the order of x, `step` in the visiting order. The first
    layer and the output also read a condition, if there is one. Without hidden layers the model is a chain of logistic
    regressions (a fully visible sigmoid belief network, Neal 1992).

    Args:
        num_features: D; x is (B, D) of 0 and 1 in any type.
        hidden_sizes: units of each hidden layer. A layer of fewer than D-1 units cannot pass every column on to the
            next one; `visible_past` says which pairs are lost, and `direct` restores them.
        order: a permutation of the columns, in the order they are visited; None visits them from left to right.
        context_size: features of a condition, (B, context_size) real numbers, or the number of labels, (B,) integers;
            None for no condition.
        direct: connect each column to later outputs directly, past the hidden layers (A).
        dropout: probability of zeroing a hidden unit in training, in `forward` only.

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
            raise OptionError("direct", "without a hidden layer all connections are direct, leave it False; got True")
        check_shares(dropout=dropout)
        self.num_features = self.sequence_length = num_features
        self.hidden_sizes, self.context_size, self.dropout = tuple(hidden_sizes), context_size, dropout
        # With a condition, units of degree 0 read it alone: the first column depends on it through them.
        self.lowest_degree = 1 if context_size is None else 0
        self.add_layers(checked_order(order, num_features), direct)
        widths = {"hidden": self.hidden_sizes[:1], "output": (num_features,)}
        self.context_weights = nn.ParameterDict(
            {name: nn.Parameter(torch.empty(*width, context_size)) for name, width in widths.items() if width}
            if context_size is not None
            else {}
        )
        for weight in self.context_weights.values():
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)

    @staticmethod
    def raster_orders(height: int, width: int) -> Tensor:
        """Return the eight orders in which an image can be read line by line, (8, height · width).

        By rows and by columns from the first corner, the same two backwards, then from the other two corners: in each a
        pixel comes soon after its neighbours, and each begins elsewhere.

        >>> MADE.raster_orders(2, 3)[:4].tolist()
        [[0, 1, 2, 3, 4, 5], [0, 3, 1, 4, 2, 5], [5, 4, 3, 2, 1, 0], [5, 2, 4, 1, 3, 0]]
        """
        rows = torch.arange(height * width).view(height, width)
        turns = [rows.flip(sides) for sides in ((), (0, 1), (0,), (1,))]
        return torch.stack([image.reshape(-1) for turned in turns for image in (turned, turned.t())])

    def forward(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Bernoulli:
        x = self.wide(x, "x").to(self.output.weight.dtype)
        real = real_steps(x, lengths)
        if real is not None:
            x = x.masked_fill(~self.from_sequence(real), 0)
        check_binary(x, "x")
        context = self._context(context, len(x))
        read = {} if context is None else {n: project(context, w, None) for n, w in self.context_weights.items()}
        return Bernoulli(self.network(x, read.get("hidden"), read.get("output")))

    def initial_state(self, batch_size: int, context: Tensor | None = None) -> State:
        return self._steps().initial_state(batch_size, self._context(context, batch_size))

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Bernoulli, State]:
        return _stepped(self._steps(), x_prev, state)

    def prepare(self) -> Executor:
        return _ColumnExecutor(self)

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
        return Columns(self.order, [DegreeLayer(*part) for part in parts], partial(project, bias=None))

    def _context(self, context: Tensor | None, batch_size: int) -> Tensor | None:
        return checked_condition(context, batch_size, self.context_size, self.output.weight.dtype)


def _stepped(steps: "Columns | _PlainColumns", x_prev: Tensor | None, state: State) -> tuple[Bernoulli, State]:
    logits, state = steps.step(x_prev, state)
    return Bernoulli(logits), state


class _ColumnExecutor(Executor):
    """Columns prepared once; a sample is drawn in buffers that nobody else holds."""

    def __init__(self, made: MADE):
        with torch.no_grad():
            columns = made._steps()
        super().__init__(made, partial(_stepped, columns))
        self.made, self.columns = made, columns

    def draws(
        self, n: int, context: Context, prefix: Tensor | None, pick: Draw, count: int | None = None
    ) -> Iterator[Tensor]:
        columns = self._columns(prefix)
        if columns is None:
            return super().draws(n, context, prefix, pick, count)
        return columns.draws(n, self.made._context(context, n), prefix, lambda logits: pick(Bernoulli(logits)))

    def rows(
        self, n: int, count: int, context: Context, prefix: Tensor | None, pick: Draw, eos: int | None = None
    ) -> Tensor:
        columns = self._columns(prefix)
        plain = (pick.temperature, pick.top_k, pick.top_p, eos) == (1, None, None, None)
        if columns is None or not plain or not columns.has_loop(count):
            return super().rows(n, count, context, prefix, pick, eos)
        context = self.made._context(context, n)
        return columns.rows(n, context, prefix, lambda logits: pick(Bernoulli(logits)), pick.generator)

    def _columns(self, prefix: Tensor | None) -> Columns | None:
        """Return the columns without gradients, None where modules must be called."""
        if prefix is not None:
            check_binary(prefix, "prefix")
        if isinstance(self.columns, _PlainColumns):
            return None
        self.columns.layers = [layer.detached() for layer in self.columns.layers]
        return self.columns


class _PlainColumns:
    """The steps by `forward` of all columns, for modules that have to be called. A state is (context, columns)."""

    def __init__(self, made: MADE):
        self.made = made

    def initial_state(self, batch_size: int, context: Tensor | None) -> State:
        return context, self.made.output.weight.new_zeros(batch_size, 0)

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Tensor, State]:
        columns, x, t = self.made.with_column(state[1], x_prev)
        logits = self.made.to_sequence(self.made(x, state[0]).logits)
        return logits[:, t], (state[0], columns)
