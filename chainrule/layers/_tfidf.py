"""Logistic regression of the words, word n-grams and parts of words of a text, with TF-IDF weights."""

from collections.abc import Iterable
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor, nn

from chainrule.layers._ngrams import LabelledTexts, NgramRows, hashed_rows, most_rows
from chainrule.layers._packing import real_steps

_STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)  # scikit-learn's C
_MOST_ENTRIES = 1 << 24  # features of all texts that are fitted: of more, every second text, third, ...
_STEPS = 100


@final
class TfidfScores(nn.Module):
    r"""Score the C labels of a text by a linear function of its TF-IDF features, which is fitted without noise.

    .. math::
        z = b + W^\top v, \qquad v_f \propto (1 + \log n_f) \left(1 + \log \frac{1 + N}{1 + N_f}\right)

    with :math:`n_f` how often feature f occurs in the text, :math:`N_f` in how many of the N training texts it occurs.
    Features are the n-grams of the symbols, as `NgramScores` reads them, and, in a second block, the parts of the
    symbols where the texts are bags; each block of v has length 1. What no training text holds is left out.

    W minimises the log loss of the training texts with a penalty of :math:`\lVert W \rVert^2 / 2s`, by L-BFGS; of a few
    strengths s the one with the least loss of the held-out texts is taken. There is one minimum, so that nothing
    depends on a seed. W is a buffer: training by gradients leaves it as it is.

    Args:
        num_symbols: V, parts included.
        num_classes: C.
        order: longest n-grams.
        elements: the first of the V symbols, which are no parts.
        several: whether a text may have several labels: each is a logistic regression of its own.

    Source: T. Joachims, Text categorization with support vector machines, 1998, for such features; R.-E. Fan et al.,
    LIBLINEAR, 2008, for their regression.
    """

    weight: Tensor
    idf: Tensor
    bias: Tensor

    def __init__(
        self, num_symbols: int, num_classes: int, order: int, *, elements: int, several: bool = False,
        buckets: int = 1 << 18,
    ):  # fmt: skip
        super().__init__()
        self.ngrams = NgramRows.of(elements, num_classes, order, buckets)
        self.elements, self.several = elements, several
        self.parts = min(num_symbols - elements, most_rows(num_classes))
        self.hashed = self.parts < num_symbols - elements
        self.nothing = self.ngrams.nothing + self.parts
        self.register_buffer("weight", torch.zeros(self.nothing + 1, num_classes))
        self.register_buffer("idf", torch.zeros(self.nothing + 1))
        self.register_buffer("bias", torch.zeros(num_classes))

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """z, (B, C), of symbols (B, T) or bags (B, T, K); -1 is no symbol. An empty text has the bias alone."""
        rows, values = self.features(x, lengths)
        return self.bias + nn.functional.embedding_bag(rows, self.weight, mode="sum", per_sample_weights=values)

    def features(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the different features of each text, (B, F), `nothing` for a missing one, and their values v."""
        blocks = [self._weighted(*_counted(block, self.nothing)) for block in self._blocks(x, lengths)]
        rows, values = zip(*blocks, strict=True)
        return torch.cat(rows, 1), torch.cat(values, 1)

    def _blocks(self, x: Tensor, lengths: Tensor | None) -> list[Tensor]:
        """Return the features of each text with their repetitions: its n-grams, and the parts of its symbols."""
        found = self.ngrams.rows(x if x.dim() == 2 else x[:, :, 0], lengths)
        blocks = [found.masked_fill(found == self.ngrams.nothing, self.nothing)]
        if x.dim() == 3 and self.parts and x.shape[2] > 1:
            real = real_steps(x, lengths)
            parts = x[:, :, 1:] if real is None else x[:, :, 1:].masked_fill(~real.unsqueeze(2), -1)
            parts = parts.flatten(1)
            numbers = parts - self.elements
            numbers = hashed_rows([numbers], self.parts) if self.hashed else numbers
            blocks.append((numbers + self.ngrams.nothing).where(parts >= 0, self.nothing))
        return blocks

    def _weighted(self, rows: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        values = (1 + counts.to(self.idf).clamp(min=1).log()) * self.idf[rows]
        return rows, values / values.norm(dim=1, keepdim=True).clamp(min=torch.finfo(values.dtype).tiny)

    @torch.no_grad()
    def fit(self, texts: LabelledTexts, held_out: LabelledTexts) -> None:
        """Count the training texts, read twice, and minimise their loss; labels are (B,), or (B, C) of 0 and 1."""
        found, number = torch.zeros_like(self.idf, dtype=torch.int64), 0
        for x, lengths, _ in texts():
            for block in self._blocks(x, lengths):
                found += _counted(block, self.nothing)[0].flatten().bincount(minlength=len(found))
            number += len(x)
        found[self.nothing] = 0
        idf = 1 + torch.log((1 + number) / (1 + found.double()))
        self.idf.copy_(idf.masked_fill(found == 0, 0))
        every = max(1, -(-int(found.sum()) // _MOST_ENTRIES))
        learnt = self._matrix(texts(), every)
        self._minimise(learnt, self._matrix(held_out(), every))

    def _matrix(self, batches: "Iterable[tuple[Tensor, Tensor | None, Tensor]]", every: int) -> "_Texts":
        """Return every n-th text as its features."""
        rows, values, sizes, answers = [], [], [], []
        for x, lengths, labels in batches:
            columns, weights = self.features(x[::every], None if lengths is None else lengths[::every])
            real = weights > 0
            rows.append(columns[real])
            values.append(weights[real])
            sizes.append(real.sum(1))
            answers.append(labels[::every] if self.several else nn.functional.one_hot(labels[::every], len(self.bias)))
        starts = torch.cat(sizes).cumsum(0) - torch.cat(sizes)
        return _Texts(torch.cat(rows), torch.cat(values), starts, torch.cat(answers).to(self.bias))

    def _minimise(self, learnt: "_Texts", held_out: "_Texts", strengths: tuple[float, ...] = _STRENGTHS) -> None:
        used, columns = learnt.rows.unique(return_inverse=True)
        learnt = learnt._replace(rows=columns)
        across, number = learnt.transposed(len(used)), len(learnt.labels)
        weight, bias = self.weight.new_zeros(len(used), len(self.bias)), torch.zeros_like(self.bias)
        shares = learnt.labels.mean(0).clamp(1e-6, 1 - 1e-6)
        bias.copy_(shares.logit() if self.several else shares.log())
        least = float("inf")
        for strength in strengths:
            penalty = 1 / (strength * number)

            def loss(penalty: float = penalty) -> float:
                value, slope = self._loss(learnt.product(weight) + bias, learnt.labels)
                weight.grad = across.product(slope).add_(weight, alpha=penalty)
                bias.grad = slope.sum(0)
                return float(value + penalty / 2 * weight.square().sum())

            optimiser = torch.optim.LBFGS([weight, bias], max_iter=_STEPS, line_search_fn="strong_wolfe")
            optimiser.step(cast(Any, loss))  # torch wants a closure of a tensor; L-BFGS takes its float
            before = self.weight.clone()
            self.weight.zero_()[used] = weight
            nats = float(self._loss(held_out.product(self.weight) + bias, held_out.labels)[0])
            if nats >= least:
                self.weight.copy_(before)
                return
            least = nats
            self.bias.copy_(bias)

    def _loss(self, scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean log loss of some texts, and its slope by the scores."""
        if self.several:
            total = nn.functional.binary_cross_entropy_with_logits(scores, labels, reduction="sum")
            return total / len(labels), (scores.sigmoid() - labels) / len(labels)
        log_probs = scores.log_softmax(1)
        return -(labels * log_probs).sum() / len(labels), (log_probs.exp() - labels) / len(labels)


class _Texts(NamedTuple):
    """A sparse matrix of texts by features, with the labels of the texts."""

    rows: Tensor  # (E,) the feature of each entry, text by text
    values: Tensor  # (E,)
    starts: Tensor  # (N,) the first entry of each text
    labels: Tensor  # (N, C) 0 or 1

    def product(self, weight: Tensor) -> Tensor:
        """Multiply by a matrix of features by labels."""
        return nn.functional.embedding_bag(
            self.rows, weight, self.starts, mode="sum", per_sample_weights=self.values.to(weight)
        )

    def transposed(self, features: int) -> "_Texts":
        """Return the matrix of features by texts."""
        sizes = torch.diff(self.starts, append=self.starts.new_tensor([len(self.rows)]))
        texts = torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes)
        order = self.rows.argsort(stable=True)
        counts = self.rows.bincount(minlength=features)
        return _Texts(texts[order], self.values[order], counts.cumsum(0) - counts, self.labels)


def _counted(rows: Tensor, nothing: int) -> tuple[Tensor, Tensor]:
    """Return the different numbers of each row, (B, F), `nothing` where there are fewer, and how often they occur."""
    rows = rows.sort(1).values
    is_new = torch.ones_like(rows, dtype=torch.bool)
    is_new[:, 1:] = rows[:, 1:] != rows[:, :-1]
    place = is_new.cumsum(1) - 1
    width = int(place.max()) + 1 if rows.numel() else 0
    empty = rows.new_full((len(rows), width), nothing)
    return empty.scatter(1, place, rows), torch.zeros_like(empty).scatter_add(1, place, torch.ones_like(rows))
