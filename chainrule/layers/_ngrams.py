"""N-grams in tables of bounded size, by a hash: their embeddings, and scores of the labels of a text."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast, final

import torch
from torch import Tensor, nn

from chainrule._ranges import check_shares, check_sizes
from chainrule.layers._cells import check_vocabulary, symbols_of
from chainrule.layers._packing import last_before_ends, zero_past_ends
from chainrule.layers._pointwise import dropout
from chainrule.layers._sequence_layer import SequenceLayer
from chainrule.state import State

_MULTIPLIER, _MIXER = 1_000_003, 0x9E37_79B1  # a prime; 2³² over the golden ratio (Knuth's multiplicative hashing)
_POSITIVE = 0x7FFF_FFFF


@final
class NgramEmbedding(SequenceLayer):
    r"""Add up embeddings of the pair, the triple, ... of symbols that ends at each place.

    .. math:: e_t = \sum_{n=2}^{N} E_n[\mathrm{bucket}_n(s_{t-n+1}, \ldots, s_t)]

    A table of order n has a row for every n-gram where they fit into it; otherwise n-grams share rows by a hash, as
    in fastText (Bojanowski et al. 2017). A recurrent layer that reads e_t and the embedding of s_t need not spend
    its state on the last few symbols: that costs one look-up an order and no product. In training `dropout` leaves out
    an n-gram, all of its features together: a rare one is easily learnt by heart.

    The layer reads integers, (B, T) or (B,) a step; its state holds the last N − 1 of them, (B, N − 1).
    """

    def __init__(
        self,
        num_symbols: int,
        embedding_size: int,
        order: int,
        *,
        buckets: int = 2**14,
        padding: int = 0,
        dropout: float = 0.0,
    ):
        super().__init__()
        check_shares(dropout=dropout)
        check_sizes(buckets=buckets)
        self.num_symbols, self.order, self.buckets = num_symbols, order, buckets
        self.padding, self.dropout = padding, dropout
        self.tables = nn.ModuleList(
            nn.Embedding(min(num_symbols**n, buckets), embedding_size) for n in range(2, order + 1)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw small rows: most n-grams are rare, and a rare one should begin near no effect."""
        for weight in self._weights():
            if not weight.is_meta:
                nn.init.normal_(weight, std=INITIAL_STD)

    def initial_state(self, batch_size: int) -> Tensor:
        """Return the symbols before the first one, (B, N − 1): padding."""
        return torch.full((batch_size, self.order - 1), self.padding, device=self._weights()[0].device)

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Read a chunk; see `SequenceLayer.forward`.

        Args:
            x: (B, T) integers in [0, num_symbols).
            state: (B, N − 1) symbols before them.
            lengths: (B,) real symbols of each row.
        """
        x = zero_past_ends(x, lengths)
        places, past = self._places(x, state)
        total = None
        for place, weight in zip(places, self._weights(), strict=True):
            row = nn.functional.embedding(place, weight)
            if self.training and self.dropout:
                scale = dropout(row.new_ones(row.shape[:-1]), self.dropout, True)  # (B, T)
                row = row * scale.unsqueeze(-1)
            total = row if total is None else total + row
        assert total is not None
        return zero_past_ends(total, lengths), last_before_ends(past, self.order - 1, lengths)

    def places(self, x: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Return the rows that `forward` adds up, (B, T, N − 1), in the tables one after another, and the next state.

        Args:
            x: (B, T) integers in [0, num_symbols).
            state: (B, N − 1) symbols before them.
        """
        places, past = self._places(x, state)
        sizes = torch.tensor([0, *map(len, self._weights()[:-1])], device=x.device)
        return torch.stack(places, 2) + sizes.cumsum(0), last_before_ends(past, self.order - 1, None)

    def _places(self, x: Tensor, state: State) -> tuple[list[Tensor], Tensor]:
        """Return the row of each n-gram in its table, (B, T) each, and the symbols with those before them."""
        past = torch.cat([self.initial_state(len(x)) if state is None else state, x], 1)
        rows = []
        for n, weight in enumerate(self._weights(), start=2):
            columns = [past[:, self.order - 1 - back :][:, : x.shape[1]] for back in range(n)]
            rows.append(self._buckets(columns, len(weight)))
        return rows, past

    def tables_apart(self) -> tuple[list[Tensor], int]:
        """Return the tables, and the longest n-gram with a separate row."""
        exact = sum(self.num_symbols**n <= self.buckets for n in range(2, self.order + 1)) + 1
        return self._weights(), exact

    def _weights(self) -> list[Tensor]:
        return [cast(Tensor, table.weight) for table in self.tables]  # not a parameter in torch.func

    def _buckets(self, columns: list[Tensor], rows: int) -> Tensor:
        """Return the row of each n-gram; columns: s_t, s_{t-1}, ..., s_{t-n+1}."""
        exact = self.num_symbols ** len(columns) <= self.buckets
        if exact:
            return _code(columns, self.num_symbols)
        return hashed_rows(columns, rows)


def hashed_rows(columns: list[Tensor], rows: int) -> Tensor:
    """Return a row in [0, rows) for each tuple of integers; the columns are of one shape, and so is the result."""
    code = _code(columns, _MULTIPLIER)
    return ((code ^ (code >> 17)) * _MIXER & _POSITIVE) % rows


def _code(columns: list[Tensor], multiplier: int) -> Tensor:
    code = columns[-1].long()
    for column in reversed(columns[:-1]):
        code = code * multiplier + column  # 64 bits, which wrap around
    return code


INITIAL_STD = 0.3


# Of the ratios, 1 to 1/256. The device is named because a model may be imported while the default one is meta.
_SCALES = torch.logspace(0, -8, 33, base=2, dtype=torch.float64, device="cpu").tolist()
_MOST_WEIGHTS = 1 << 21  # of rows by labels
_TEXTS_FOR_SCALE = 20_000


@dataclass(frozen=True)
class NgramRows:
    """Numbers of the n-grams of texts: rows of a table.

    Every symbol has a separate row, unless there are very many; longer n-grams share rows by a hash.
    """

    num_symbols: int
    order: int  # of the longest n-grams
    singles: int  # rows of single symbols
    buckets: int  # rows of longer n-grams

    @classmethod
    def of(cls, num_symbols: int, num_classes: int, order: int, buckets: int = 1 << 18) -> "NgramRows":
        """Choose the rows of a table with a column for each class."""
        check_sizes(num_symbols=num_symbols, num_classes=num_classes, order=order, buckets=buckets)
        most = most_rows(num_classes)
        return cls(num_symbols, order, min(num_symbols, most), min(buckets, most) if order > 1 else 0)

    @property
    def nothing(self) -> int:
        """The number after the last row, for a missing n-gram."""
        return self.singles + self.buckets

    def rows(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the row of each n-gram of each text, (B, F), `nothing` for a missing one."""
        x = symbols_of(x)
        batch, length = x.shape
        lengths = x.new_full((batch,), length) if lengths is None else lengths.to(x.device)
        positions = torch.arange(length + 1, device=x.device)
        ended, empty = positions >= lengths.unsqueeze(1), (lengths == 0).unsqueeze(1)
        none = ended[:, :-1] | (x < 0)
        single = x.masked_fill(none, 0)
        check_vocabulary(single, self.num_symbols, "x")
        if self.singles < self.num_symbols:
            single = hashed_rows([single], self.singles)
        parts = [single.masked_fill(none, self.nothing), x.new_full((batch, 1), self.nothing)]  # a row has one at least
        if self.order > 1:
            before = x.new_full((batch, self.order - 1), self.num_symbols)
            marked = nn.functional.pad(x, (0, 1)).masked_fill(ended, self.num_symbols)
            past = torch.cat([before, marked], 1)
            left_out = (positions > lengths.unsqueeze(1)) | empty
            for n in range(2, self.order + 1):
                columns = [past[:, self.order - 1 - back :][:, : length + 1] for back in range(n)]
                hashed = hashed_rows([*columns, torch.full_like(marked, n)], self.buckets)
                parts.append((self.singles + hashed).masked_fill(left_out, self.nothing))
        return torch.cat(parts, 1)


def most_rows(num_classes: int) -> int:
    """Return the most rows of a table with a column for each class."""
    return max(_MOST_WEIGHTS // num_classes, 1)


LabelledTexts = Callable[[], Iterable[tuple[Tensor, Tensor | None, Tensor]]]
"""Makes batches of texts, symbols (B, T) and their lengths (B,), with their labels (B,), as often as it is called."""


@final
class NgramScores(nn.Module):
    r"""Score the C labels of a text by its n-grams of up to N symbols, wherever they stand.

    .. math:: z_y = b_y + \sum_{n=1}^{N} \sum_t W_{\mathrm{row}(s_{t-n+1}, \ldots, s_t),\, y}

    Every symbol has a separate row, unless there are very many; longer n-grams share rows by a hash, as in fastText
    (Bojanowski et al. 2017). An edge, one symbol more, stands before and after a text, so that a pair tells where it
    begins and ends.

    `fit` begins as naive Bayes (Wang and Manning 2012), which is hard to beat on few texts:

    .. math::
        W_{fy} = \lambda \left(\log p(f \mid y) - \frac{1}{C} \sum_{y'} \log p(f \mid y')\right), \qquad
        p(f \mid y) \propto \frac{n_{fy} + C \pi_y}{N_y}

    with n the number of texts of label y that hold the n-gram f, N their sum over n-grams, and π the labels' shares of
    that, so that an n-gram never seen says nothing. The n-grams of a text depend on each other, and naive Bayes is far
    too sure: λ maximises the likelihood of the training texts, each left out of the counts of the n-grams in it.
    """

    def __init__(self, num_symbols: int, num_classes: int, order: int, *, buckets: int = 1 << 18):
        super().__init__()
        self.ngrams = NgramRows.of(num_symbols, num_classes, order, buckets)
        self.nothing = self.ngrams.nothing  # a row that is never added
        table = torch.zeros(self.nothing + 1, num_classes)  # drawn, it would change what other layers draw
        self.table = nn.Embedding.from_pretrained(table, freeze=False, padding_idx=self.nothing)
        self.bias = nn.Parameter(torch.zeros(num_classes))

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """z, (B, C), of symbols (B, T), no symbol where negative; anything may stand past the lengths (B,).

        An empty text has the bias alone.
        """
        rows = self.rows(x, lengths)
        return self.bias + nn.functional.embedding_bag(rows, self.table.weight, mode="sum", padding_idx=self.nothing)

    def rows(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the row of each n-gram of each text, (B, F), `nothing` for a missing one."""
        return self.ngrams.rows(x, lengths)

    @torch.no_grad()
    def fit(self, texts: LabelledTexts, prior: Tensor | None = None) -> None:
        """Begin as naive Bayes of labelled texts, read twice; the bias is the logarithm of the `prior` (C,)."""
        classes = len(self.bias)
        counts = torch.zeros_like(self.table.weight, dtype=torch.float64)
        number = 0
        for x, lengths, labels in texts():
            number += len(labels)
            once = self.rows(x, lengths).sort(1).values
            again = once[:, 1:] == once[:, :-1]
            once[:, 1:] = once[:, 1:].masked_fill(again, self.nothing)
            places = (once * classes + labels.unsqueeze(1)).view(-1)
            counts.view(-1).index_add_(0, places, counts.new_ones(()).expand(len(places)))
        counts[self.nothing] = 0
        of_label = 1 + counts.sum(0)
        added = classes * of_label / of_label.sum()
        ratios = (counts + added).log() - of_label.log()
        ratios -= ratios.mean(1, keepdim=True)
        bias = counts.new_zeros(classes) if prior is None else prior.to(counts).log()
        every, nats = -(-number // _TEXTS_FOR_SCALE), counts.new_zeros(len(_SCALES))
        for x, lengths, labels in texts():
            rows, labels = self.rows(x, lengths)[::every], labels[::every]
            evidence = nn.functional.embedding_bag(rows, ratios, mode="sum", padding_idx=self.nothing)
            own, more = counts[rows, labels.unsqueeze(1)], added[labels].unsqueeze(1)
            too_much = ((own + more).log() - ((own - 1).clamp(min=0) + more).log()).masked_fill(rows == self.nothing, 0)
            evidence.scatter_add_(1, labels.unsqueeze(1), -too_much.sum(1, keepdim=True))
            for index, scale in enumerate(_SCALES):
                nats[index] += nn.functional.cross_entropy(bias + scale * evidence, labels, reduction="sum")
        self.table.weight.copy_(_SCALES[int(nats.argmin())] * ratios)
        self.bias.copy_(bias)
