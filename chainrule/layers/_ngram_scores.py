"""Scores of labels that add up over the n-grams of a text: a linear classifier that begins as naive Bayes."""

from collections.abc import Callable, Iterable
from typing import final

import torch
from torch import Tensor, nn

from chainrule._ranges import check_sizes
from chainrule.layers._cells import check_vocabulary, symbols_of
from chainrule.layers._ngram_embedding import hashed_rows

# Of the ratios, 1 to 1/256. The device is named because a model may be imported while the default one is meta.
_SCALES = torch.logspace(0, -8, 33, base=2, dtype=torch.float64, device="cpu").tolist()
_MOST_WEIGHTS = 1 << 21  # of rows by labels
_TEXTS_FOR_SCALE = 20_000

LabelledTexts = Callable[[], Iterable[tuple[Tensor, Tensor | None, Tensor]]]
"""Makes batches of texts, symbols (B, T) and their lengths (B,), with their labels (B,), as often as it is called."""


@final
class NgramScores(nn.Module):
    r"""Score the labels of a text by its n-grams of up to N symbols, wherever they stand.

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
        check_sizes(num_symbols=num_symbols, num_classes=num_classes, order=order, buckets=buckets)
        self.num_symbols, self.order = num_symbols, order
        most = max(_MOST_WEIGHTS // num_classes, 1)
        self.singles = min(num_symbols, most)  # rows of single symbols, which share them too where they are very many
        self.buckets = min(buckets, most) if order > 1 else 0
        self.nothing = self.singles + self.buckets  # a row that is never added
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
