"""A table's network with a companion for one column: the training rows near the other cells."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor
from torch.nn.functional import pad

from chainrule._base import AutoregressiveModel, Context
from chainrule._buffers import fixed_buffer
from chainrule._executor import Executor, Step
from chainrule.heads._table_column import TableColumn
from chainrule.heads._table_row import TableRow
from chainrule.kernels._transforms import values_are_known
from chainrule.models._model_mean import Rows
from chainrule.models._table_candidates import TableCandidates
from chainrule.models._table_made import TableMADE
from chainrule.modes import evaluating, wide
from chainrule.state import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chainrule.models._table_ensemble import TableEnsemble

_LEVELS = 2
_WIDTHS = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)  # h that `calibrate` tries, wide to narrow
_STRENGTHS = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # a
_LEAST_GAIN = 0.01  # of the network's nats
_TOGETHER = 256  # rows whose distances to all training rows are computed at once


@final
class TableNeighbours(AutoregressiveModel):
    r"""A network of a table whose last column, a categorical one, also counts the training rows near the other cells.

    .. math::
        p_l(y \mid z) = \frac{p_{l-1}(y \mid z) + a_l \sum_i k_l(z, z_i)\, [y_i = y]}{1 + a_l \sum_i k_l(z, z_i)},
        \qquad k_l(z, z_i) = \exp\left(-\frac{d(z, z_i)^2}{2 h_l}\right), \qquad l = 1, 2

    Here :math:`p_0` is the network's conditional of the column y that it visits last, given all other cells z, and
    :math:`(z_i, y_i)` are training rows. Each level is the posterior mean of a Dirichlet prior of concentration 1/a
    around the level before, after the fractional counts of a kernel; far from all rows nothing changes. A network needs
    many passes to learn a row by heart, and then it has learnt the noise of all others too; counts know a row that
    comes again at once. The first level has the wider kernel.

    .. math:: d(z, u)^2 = \sum_{\text{numeric}} (s_d(z) - s_d(u))^2 + (m_d(z) - m_d(u))^2
        + \sum_{\text{categorical}} [z_d \ne u_d], \qquad
        s_d(z) = \Phi^{-1}\left(\frac{2\,\#\{i : z_{id} < z_d\} + \#\{i : z_{id} = z_d\} + 1}{2(N_d + 1)}\right)

    A number is compared by its normal score s among the :math:`N_d` training rows that have it; where it is missing, s
    is 0 and m is 1. All other columns keep the network's conditionals, so the joint density stays exact.

    Training fits the network alone; `calibrate` chooses h and a on held-out rows. The rows are not in `state_dict`:
    load it into a model with the same rows. A training row finds itself among them, so its own column looks too
    probable: score rows that are not in training.

    Args:
        network: a `TableMADE` or a `TableEnsemble`, which visits a categorical column last.
        rows: (N, D) training rows in the layout of the table, at least one.
        calibrated_on: held-out rows that `calibrate` reads at most.

    Raises:
        ValueError: the last column is not categorical, or the rows have another number of columns.

    Source: the levels are those of interpolated n-gram counts: D. J. C. MacKay and L. Peto, A hierarchical Dirichlet
    language model, 1995; the kernel is that of E. A. Nadaraya and G. S. Watson, 1964.

    >>> from chainrule.heads import Column
    >>> rows = torch.tensor([[1.5, 0.0], [2.5, 1.0], [7.0, 1.0]])
    >>> model = TableNeighbours(TableMADE([Column("real"), Column("categorical", categories=2)]), rows)
    >>> model.set_levels([(0.1, 1.0)])
    >>> near, far = model.log_prob(rows), model.network.log_prob(rows)
    >>> bool((near > far).all())
    True
    """

    sequence_length: int
    widths: Tensor
    strengths: Tensor
    sorted: Tensor  # (C, N) numbers of each numeric column, ascending, infinite where they are missing
    counts: Tensor  # (C,) those that are not missing
    symbols: Tensor  # (N,) targets
    codes: Tensor  # (N, ΣK) a 1 for the code of each categorical column
    scores: Tensor  # (N, 2·C)

    def __init__(self, network: "TableMADE | TableEnsemble", rows: Tensor, *, calibrated_on: int = 1024):
        super().__init__()
        self.network, self.calibrated_on = network, calibrated_on
        self.columns, self.order, self.sequence_length = network.columns, network.order, len(network.columns)
        self.layout, self.target = network.layout, network.order[-1]
        if self.columns[self.target].kind != "categorical":
            kind = self.columns[self.target].kind
            raise ValueError(f"network: expected a categorical column last in its order, got one of kind {kind}")
        if rows.dim() != 2 or rows.shape[1] != self.sequence_length or not len(rows):
            raise ValueError(
                f"rows: expected shape (N, D) with N > 0 and D = {self.sequence_length}, got {tuple(rows.shape)}"
            )
        others = [index for index in range(self.sequence_length) if index != self.target]
        self._numeric = [index for index in others if self.columns[index].numeric]
        self._categorical = [index for index in others if not self.columns[index].numeric]
        rows = wide(rows.detach())
        numbers = rows[:, self._numeric].t().contiguous()
        ascending, counts = (
            numbers.nan_to_num(torch.inf, torch.inf, -torch.inf).sort(1).values,
            (~numbers.isnan()).sum(1),
        )
        fixed_buffer(self, "sorted", ascending)
        fixed_buffer(self, "counts", counts)
        fixed_buffer(self, "symbols", self._symbols(rows, [self.target]).squeeze(1))
        fixed_buffer(self, "codes", self._codes(rows))
        fixed_buffer(self, "scores", _scores(numbers, ascending, counts))
        self.register_buffer("widths", torch.ones(_LEVELS, device="cpu"))
        self.register_buffer("strengths", torch.zeros(_LEVELS, device="cpu"))
        self._excluded: list[int] = []
        self._calibration: tuple[Tensor, Tensor, Tensor] | None = None

    def set_levels(self, levels: "Sequence[tuple[float, float]]") -> None:
        """Set (h, a) of the levels, at most two, the first one first; the others count nothing.

        Raises:
            ValueError: there are too many, h is not positive, or a is negative.
        """
        if len(levels) > _LEVELS or any(width <= 0 or strength < 0 for width, strength in levels):
            raise ValueError(f"levels: expected at most {_LEVELS} pairs with h > 0 and a >= 0, got {levels!r:.80}")
        self.widths.fill_(1.0)
        self.strengths.fill_(0.0)
        for index, (width, strength) in enumerate(levels):
            self.widths[index], self.strengths[index] = width, strength

    @property
    def levels(self) -> list[tuple[float, float]]:
        """(h, a) of the levels that count anything."""
        pairs = zip(self.widths.tolist(), self.strengths.tolist(), strict=True)
        return [(width, strength) for width, strength in pairs if strength > 0]

    def forward(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> TableRow:
        """Return all conditionals; only later columns read columns after `lengths`."""
        row: TableRow = self.network(x, context, lengths)
        return row.replaced(self.target, self.mixed(row.column(self.target), wide(x)))

    def mixed(self, column: TableColumn, x: Tensor) -> TableColumn:
        """Return the network's conditional of the target in rows x (B, D) with what their neighbours count."""
        if not values_are_known(self.strengths) or self.levels:
            parts = zip(column.logits.split(_TOGETHER), x.split(_TOGETHER), strict=True)
            column = column.with_parameters(torch.cat([self._logits(*part) for part in parts]))
        if not self._excluded:
            return column
        bias = torch.zeros_like(column.outputs[:1])
        bias[:, self._excluded] = -1e30
        return column.with_parameters(column.outputs + bias)

    def _logits(self, logits: Tensor, x: Tensor) -> Tensor:
        """Return log-probabilities of the symbols, (B, K)."""
        logs, distances = wide(logits).log_softmax(-1), self._distances(x)
        rows = torch.nn.functional.one_hot(self.symbols, logs.shape[-1]).to(distances)
        for width, strength in zip(wide(self.widths), wide(self.strengths), strict=True):
            counts = strength * ((distances / (-2 * width)).exp() @ rows)
            logs = torch.logaddexp(logs, counts.log()) - counts.sum(-1, keepdim=True).log1p()
        return logs

    def _symbols(self, x: Tensor, columns: "Sequence[int]") -> Tensor:
        """Return the codes of categorical columns, (B, C)."""
        codes = [self.layout.singles[index].symbol(wide(x[:, index])) for index in columns]
        return torch.stack(codes, 1) if codes else torch.empty(len(x), 0, dtype=torch.long, device=x.device)

    def _codes(self, x: Tensor) -> Tensor:
        """Return a 1 for the code of each categorical column, float32 (B, ΣK)."""
        symbols = zip(self._categorical, self._symbols(x, self._categorical).t(), strict=True)
        codes = [
            own.unsqueeze(1) == torch.arange(self.columns[index].symbols, device=x.device) for index, own in symbols
        ]
        return torch.cat(codes, 1).float() if codes else torch.empty(len(x), 0, dtype=torch.float32, device=x.device)

    def _distances(self, x: Tensor) -> Tensor:
        """Return d² of rows (B, D) to all training rows, (B, N)."""
        numbers = wide(x[:, self._numeric]).t().contiguous()
        scores, rows = _scores(numbers, wide(self.sorted), self.counts), wide(self.scores)
        squares = scores.square().sum(1, keepdim=True) + rows.square().sum(1)
        distances = torch.addmm(squares, scores, rows.t(), alpha=-2).clamp_min(0)
        if self._categorical:  # whole numbers, which float32 has exactly
            distances = distances + (len(self._categorical) - self._codes(x) @ self.codes.float().t())
        return distances

    @torch.no_grad()
    def calibrate(self, batches: Iterable[Rows]) -> None:
        """Choose the levels by the log-likelihood of the target in the first held-out rows.

        The network alone stays unless the gain exceeds its standard error over the rows, and 1% of the nats: each
        answer costs distances to all training rows.
        """
        with evaluating(self):
            x = self._first(batches)
            own, every = self._kernel_sums(x)
            network: TableRow = self.network(x)
            share = network.log_prob(x)[:, self.target].exp()
        strengths = share.new_tensor(_STRENGTHS).view(-1, 1)
        best, levels, alone = share.new_tensor(-torch.inf), list[tuple[float, float]](), _nats(share)
        for first, width in enumerate(_WIDTHS):
            wider = (share + strengths * own[first]) / (1 + strengths * every[first])  # (A, B)
            for second, narrow in enumerate(_WIDTHS[first + 1 :], first + 1):
                both = (wider.unsqueeze(1) + strengths * own[second]) / (1 + strengths * every[second])
                logs = _nats(both)
                index = int(logs.sum(2).argmax())
                one, two = divmod(index, len(_STRENGTHS))
                if logs[one, two].sum() > best:
                    best, gain = logs[one, two].sum(), logs[one, two] - alone
                    levels = [(width, _STRENGTHS[one]), (narrow, _STRENGTHS[two])]
        least = torch.maximum(gain.std(correction=0) * len(gain) ** 0.5, -_LEAST_GAIN * alone.sum())
        self.set_levels(levels if bool(gain.sum() > least) else [])

    def _first(self, batches: Iterable[Rows]) -> Tensor:
        """Return the first rows of batches, (B, D)."""
        rows = list[Tensor]()
        for batch in batches:
            rows.append(wide(batch.x.to(self.strengths.device)))
            if sum(map(len, rows)) >= self.calibrated_on:
                break
        return torch.cat(rows)[: self.calibrated_on]

    def _kernel_sums(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the kernels' sums over the rows that share the target of x (B, D), and over all, (H, B) each.

        They do not change in training, so that those of the last rows are kept.
        """
        if self._calibration is None or not torch.equal(self._calibration[0].nan_to_num(), x.nan_to_num()):
            own, every = zip(*self._each_kernel_sums(x), strict=True)
            self._calibration = x, torch.cat(own, 1), torch.cat(every, 1)
        return self._calibration[1:]

    def _each_kernel_sums(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        for part in x.split(_TOGETHER):
            distances = self._distances(part)
            same = self._symbols(part, [self.target]) == self.symbols
            kernels = [(distances / (-2 * width)).exp() for width in _WIDTHS]
            yield torch.stack([(kernel * same).sum(1) for kernel in kernels]), torch.stack([k.sum(1) for k in kernels])

    def training_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """Return the network's objective, (B,)."""
        return self.network.training_objective(x, context, lengths)

    def initial_state(self, batch_size: int, context: Context = None) -> State:
        """Return the network's state and the known columns, (B, t)."""
        own = self.network.initial_state(batch_size, context)
        return own, wide(torch.zeros(batch_size, 0, device=self.strengths.device))

    def step(self, x_prev: Tensor | None, state: State) -> tuple[TableColumn, State]:
        return self._step(self.network.step, x_prev, state)

    def _step(self, step: Step, x_prev: Tensor | None, state: State) -> tuple[TableColumn, State]:
        own, columns = state
        if x_prev is not None:
            columns = torch.cat([columns, x_prev.to(columns).unsqueeze(1)], 1)
        column, own = step(x_prev, own)
        assert isinstance(column, TableColumn)
        if columns.shape[1] == self.sequence_length - 1:
            column = self.mixed(column, self.from_sequence(pad(columns, (0, 1))))
        return column, (own, columns)

    def prepare(self) -> Executor:
        return Executor(self, partial(self._step, self.network.prepare().step))

    def to_sequence(self, x: Tensor) -> Tensor:
        return self.network.to_sequence(x)

    def from_sequence(self, sequence: Tensor) -> Tensor:
        return self.network.from_sequence(sequence)

    def visible_past(self, length: int) -> Tensor:
        past = self.network.visible_past(length).clone()
        past[-1, :-1] = True
        return past

    def candidates(self, x: Tensor, column: int, counted: Tensor) -> TableCandidates:
        """Return what changes of rows (B, D) as the cell of a column does; see `TableCandidates`."""
        return self.network.candidates(x, column, counted, self)

    def exclude(self, symbols: "Sequence[int | None]") -> None:
        """Give one symbol of each column probability 0 from now on, whatever is known; see `TableLayout.exclude`."""
        self.network.exclude([None if index == self.target else symbol for index, symbol in enumerate(symbols)])
        own = symbols[self.target]
        if own is not None:
            self._excluded.append(own)


def _scores(numbers: Tensor, ascending: Tensor, counts: Tensor) -> Tensor:
    """Return normal scores of numbers (C, B) among ascending ones (C, N), then which are missing, (B, 2·C)."""
    low, high = torch.searchsorted(ascending, numbers), torch.searchsorted(ascending, numbers, right=True)
    counts, missing = counts.unsqueeze(1), numbers.isnan()
    # Missing numbers of training rows are sorted behind all others, as infinite ones.
    ranks = torch.minimum(low, counts) + torch.minimum(high, counts) + 1
    scores = torch.special.ndtri(wide(ranks) / (2 * (wide(counts) + 1))).masked_fill(missing, 0.0)
    return torch.cat([scores, missing.to(scores)]).t().contiguous()


def _nats(shares: Tensor) -> Tensor:
    return shares.clamp_min(torch.finfo(shares.dtype).tiny).log()
