"""Sequences of binary frames, as of polyphonic music: a recurrence over time, a MADE inside each frame."""

from collections.abc import Sequence
from itertools import product
from typing import Any, Literal, final

import torch
from torch import Tensor, nn
from torch.distributions import constraints

from chainrule._base import ChunkModel, Context
from chainrule._checks import refuse_context
from chainrule.heads._adapter import head_of
from chainrule.heads._categorical import Categorical
from chainrule.heads._head import Choose, Head, broadcast_shapes
from chainrule.layers._recurrent_stack import recurrent_stack
from chainrule.layers._sequence_layer import stepping
from chainrule.models._made import MADE
from chainrule.ranges import Layers, Probability, Size
from chainrule.state import State


class MADEConditional(Head):
    r"""p(x | h) of binary vectors x with D features, by a MADE that reads h.

    .. math:: \log p(x \mid h) = \sum_{d=1}^{D} \log p(x_d \mid x_{<d}, h)

    One pass gives the exact log-likelihood of any number of vectors, nats; a draw computes every unit of the MADE once.
    """

    support = constraints.independent(constraints.boolean, 1)

    def __init__(self, made: MADE, h: Tensor, filters: tuple[float, int | None, float | None] = (1.0, None, None)):
        self.filters = filters  # temperature, top_k and top_p of each feature's conditional
        self.made, self.h, self.has_enumerate_support = made, h, made.num_features <= LISTED
        super().__init__(h.shape[:-1], torch.Size((made.num_features,)), validate_args=False)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Every vector, (2^D, 1, ..., D), or (2^D, ..., D) of the batch shape, expanded."""
        size = self.made.num_features
        if size > LISTED:
            raise NotImplementedError(f"2^{size} vectors are too many to list")  # as torch.distributions does
        values = torch.tensor(list(product((0.0, 1.0), repeat=size)), dtype=self.h.dtype, device=self.h.device)
        values = values.view(-1, *[1] * len(self._batch_shape), size)
        return values.expand(-1, *self._batch_shape, size) if expand else values

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(value), nats; value (..., D) of 0 and 1, broadcast against the batch shape."""
        if self.filters != (1.0, None, None):
            return self.feature_log_prob(value).sum(-1)
        rows, h, shape = self._rows(value)
        return self.made.log_prob(rows, h).view(shape)

    def feature_log_prob(self, value: Tensor) -> Tensor:
        """log p(x_d | x_{<d}, h) of each feature of value (..., D), nats, (..., D): their sum is `log_prob`."""
        rows, h, shape = self._rows(value)
        return self.made(rows, h).filtered(*self.filters).log_prob(rows).view(*shape, -1)

    def _rows(self, value: Tensor) -> tuple[Tensor, Tensor, torch.Size]:
        """Check value, and give its vectors (N, D), h (N, M) and the shape that the N rows have."""
        size = self.made.num_features
        if value.shape[-1:] != (size,):
            raise ValueError(f"value: expected (..., {size}) of 0 and 1, got {tuple(value.shape)}")
        shape = broadcast_shapes(value.shape[:-1], self._batch_shape)
        rows = value.expand(*shape, size).reshape(-1, size)
        return rows, self.h.expand(*shape, self.h.shape[-1]).reshape(-1, self.h.shape[-1]), shape

    def code(self, choose: Choose, value: Tensor | None = None) -> Tensor:
        """Write or read the D features (B, D) one after the other, in the order in which the MADE visits them."""
        step, state = self.made.prepare().step, self.made.initial_state(len(self.h), self.h)
        sequence = None if value is None else self.made.to_sequence(value)
        columns: list[Tensor] = []
        for column in range(self.made.num_features):
            conditional, state = step(columns[-1] if columns else None, state)
            columns.append(
                head_of(conditional)
                .filtered(*self.filters)
                .code(choose, None if sequence is None else sequence[:, column])
            )
        return self.made.from_sequence(torch.stack(columns, 1))

    @torch.no_grad()
    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw vectors of 0 and 1, of shape sample_shape + batch shape + (D,)."""
        shape = torch.Size(sample_shape) + self._batch_shape
        h = self.h.expand(*shape, self.h.shape[-1]).reshape(-1, self.h.shape[-1])
        if not len(h):
            return self.h.new_zeros(*shape, self.made.num_features)
        temperature, top_k, top_p = self.filters
        drawn = self.made.sample(len(h), h, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator)
        return drawn.view(*shape, -1)

    def filtered(
        self, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
    ) -> "MADEConditional":
        """Filter the conditional of each feature given those before it; see `Categorical.filtered`."""
        Categorical.check_filters(temperature, top_k, top_p)
        if self.filters != (1.0, None, None):
            raise ValueError("filtered: this conditional is filtered already: give all filters at once")
        return MADEConditional(self.made, self.h, (temperature, top_k, top_p))

    def expand(self, batch_shape: Any, _instance: Any = None) -> "MADEConditional":
        return MADEConditional(self.made, self.h.expand(*torch.Size(batch_shape), -1), self.filters)

    def __repr__(self) -> str:
        return f"MADEConditional(batch_shape={tuple(self._batch_shape)}, D={self.made.num_features})"


@final
class RNNMADE(ChunkModel):
    r"""A recurrent network whose every element is a frame of D binary values, modelled jointly by a MADE.

    .. math:: h_t = \mathrm{cell}(x_{t-1}, h_{t-1}), \qquad
        p(x_t \mid x_{<t}) = \prod_{d=1}^{D} p(x_{td} \mid x_{t,<d}, h_t)

    The notes that sound together are chosen together: a Bernoulli for each note given h_t alone would draw them
    independently. It is the RNN-NADE of Boulanger-Lewandowski et al. (2012) with a MADE (Germain et
    al. 2015) for the NADE. The first frame follows a start symbol, an input that no frame has.

    An element is a frame: x is (B, T, D), `lengths` and `prefix` count frames, and `step` reads and gives frames. With
    `made_hidden=[]` and `direct=False` the inside of a frame is a chain of logistic regressions.

    Args:
        num_features: D, 88 for the keys of a piano.
        hidden_size: M, units of each recurrent layer.
        made_hidden: units of each hidden layer of the MADE.
        cell: "lstm", "gru" or "rnn".
        num_layers: recurrent layers.
        dropout: probability of zeroing in training, of what the recurrence reads, gives, and passes from layer to
            layer, and of the MADE's hidden units.
        direct: connect each feature to later ones past the MADE's hidden layers too.

    >>> model = RNNMADE(num_features=4, hidden_size=8, made_hidden=[8])
    >>> x = model.sample(2, length=5, generator=torch.Generator().manual_seed(0))
    >>> x.shape, model(x).batch_shape, model.log_prob(x, lengths=torch.tensor([5, 2])).shape
    (torch.Size([2, 5, 4]), torch.Size([2, 5]), torch.Size([2]))
    """

    def __init__(
        self,
        num_features: int = 88,
        hidden_size: Size = 256,
        made_hidden: Sequence[int] = (256,),
        cell: Literal["lstm", "gru", "rnn"] = "lstm",
        num_layers: Layers = 1,
        dropout: Probability = 0.0,
        *,
        direct: bool = True,
    ):
        super().__init__()
        self.num_features, self.dropout = num_features, dropout
        self.made = MADE(num_features, made_hidden, context_size=hidden_size, direct=direct, dropout=dropout)
        self.recurrent = recurrent_stack(cell, num_features + 1, hidden_size, num_layers, dropout)

    def read(
        self, x: Tensor, state: State, x_prev: Tensor | None = None, lengths: Tensor | None = None
    ) -> tuple[MADEConditional, State]:
        """Return the conditionals p(x_t | x_<t) of frames x (B, T, D) of 0 and 1, batch shape (B, T), event (D,)."""
        h, state = self.recurrent(self._inputs(x, x_prev), state, lengths)
        return self._conditional(h), state

    def initial_state(self, batch_size: int, context: Context = None) -> State:
        refuse_context(context)
        return self.recurrent.initial_state(batch_size)

    def step(self, x_prev: Tensor | None, state: State) -> tuple[MADEConditional, State]:
        rows = len(state[0] if isinstance(state, tuple) else state)
        read = self._start(rows) if x_prev is None else self._frame(x_prev, (rows, self.num_features))
        h, state = stepping(self.recurrent)(self._dropped(read), state)
        return self._conditional(h), state

    def _inputs(self, x: Tensor, x_prev: Tensor | None) -> Tensor:
        """Inputs of the recurrence before each frame, (B, T, D + 1): the start or `x_prev`, then x but its last."""
        if x.dim() != 3 or x.shape[2] != self.num_features:
            raise ValueError(f"x: expected shape (B, T, D) with D = {self.num_features}, got {tuple(x.shape)}")
        before = self._start(len(x)) if x_prev is None else self._frame(x_prev, (len(x), self.num_features))
        frames = self._frame(x[:, :-1], (len(x), max(x.shape[1] - 1, 0), self.num_features))
        return self._dropped(torch.cat([before.unsqueeze(1), frames], 1)[:, : x.shape[1]])

    def _start(self, rows: int) -> Tensor:
        start = self.recurrent.weight_hh_l0.new_zeros(rows, self.num_features + 1)
        start[:, -1] = 1
        return start

    def _frame(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return a frame, or several, as an input: no start."""
        if x.shape != shape:
            raise ValueError(f"x_prev: expected shape {shape}, got {tuple(x.shape)}")
        return nn.functional.pad(x.to(self.recurrent.weight_hh_l0), (0, 1))

    def _dropped(self, read: Tensor) -> Tensor:
        return nn.functional.dropout(read, self.dropout, self.training)

    def _conditional(self, h: Tensor) -> MADEConditional:
        return MADEConditional(self.made, nn.functional.dropout(h, self.dropout, self.training))


LISTED = 12  # features up to which all vectors are listed
