"""Linear scores of hashed features, fitted in seconds: of the labels of a text, and of the tags of words."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import final

import torch
from torch import Tensor, nn

from chainrule._buffers import fixed_buffer
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


_MOST_TAG_WEIGHTS = 1 << 23  # of rows by tags
_SUFFIX, _PREFIX, _SHAPE = 5, 4, 6  # characters at most
_LEARNING_RATE, _LAST = 0.1, 0.01  # the last as a share of it
_TOGETHER = 256  # words of a step
_MULTIPLIER, _MIXER = 1_000_003, -0x61C8_8646_80B5_83EB  # a prime; 2⁶⁴ over the golden ratio, less 2⁶⁴
_EDGE = 0x5851_F42D_4C95_7F2D  # the code of the word outside of a sentence: no other has it but by chance
_KINDS = 4  # of characters; all others share one more kind

TaggedWords = Callable[[int], tuple[Tensor, Tensor | None, Tensor]]
"""Makes the batch of a step: characters (B, T, C), lengths (B,) and tags (B, T)."""


@final
class TemplateScores(nn.Module):
    r"""Score the tags of each word from the word, its neighbours and their forms, as a log-linear tagger does.

    .. math:: z_{ty} = \sum_f \theta_{\mathrm{row}(f, x, t),\, y}, \qquad
        p(y_t \mid x) = \mathrm{softmax}(z_t)

    f are templates (Ratnaparkhi 1996), all of words in lower case but for the first: the word as it is written, the
    word, the two before and the two after it, pairs of neighbours, affixes of up to five characters, affixes together
    with the neighbours' affixes, and shapes, such as `Xxxxx` of `Paris`. What a template reads becomes a row of one
    table by a hash (Weinberger et al. 2009), so that no list of features is kept.

    `fit` trains the table alone by AdaGrad (Duchi et al. 2011), in a few passes without a matrix product: 200,000
    words take seconds. The table requires no gradient, so that a model with it leaves it as it is.
    """

    lower: Tensor
    kinds: Tensor

    def __init__(self, characters: Sequence[str], num_tags: int, *, buckets: int = 1 << 19):
        super().__init__()
        check_sizes(num_tags=num_tags, buckets=buckets)
        self.nothing = min(buckets, max(_MOST_TAG_WEIGHTS // num_tags, 1))
        numbers = {character: number for number, character in enumerate(characters, 1)}
        if len(numbers) < len(characters):
            raise ValueError(f"characters: expected each once, got {len(characters) - len(numbers)} again")
        lower = [0, *(numbers.get(character.lower(), number) for character, number in numbers.items())]
        kinds = [0, *(_kind(character, number) for character, number in numbers.items())]
        fixed_buffer(self, "lower", partial(torch.tensor, lower))
        fixed_buffer(self, "kinds", partial(torch.tensor, kinds))
        table = torch.zeros(self.nothing + 1, num_tags)  # the last row stands for no feature
        self.table = nn.Parameter(table, requires_grad=False)

    def forward(self, characters: Tensor, lengths: Tensor | None = None) -> Tensor:
        """z, (B, T, K), of the characters of each word, (B, T, C); past a row's length (B,) it says nothing."""
        rows = self.rows(characters, lengths)
        scores = nn.functional.embedding_bag(rows.flatten(0, 1), self.table, mode="sum", padding_idx=self.nothing)
        return scores.view(*rows.shape[:2], self.table.shape[1])

    @torch.no_grad()
    def fit(self, batches: TaggedWords, steps: int) -> None:
        """Train the table from zero, over `steps` in which the learning rate falls; `batches` is called for each."""
        self.table.zero_()
        squares = torch.zeros_like(self.table)
        for step in range(steps):
            characters, lengths, tags = batches(step)
            rate = _LEARNING_RATE * max(1 - step / steps, _LAST)
            rows = self.rows(characters, lengths)
            real = (rows != self.nothing).any(2)
            for some, right in zip(rows[real].split(_TOGETHER), tags[real].split(_TOGETHER), strict=True):
                scores = nn.functional.embedding_bag(some, self.table, mode="sum", padding_idx=self.nothing)
                slope = scores.softmax(1) - nn.functional.one_hot(right, scores.shape[1])
                flat = some.view(-1)
                each = slope.unsqueeze(1).expand(-1, some.shape[1], -1).reshape(len(flat), -1)
                squares.index_add_(0, flat, each.square())
                self.table.index_add_(0, flat, -rate * each / squares[flat].sqrt().clamp(min=1e-8))
        self.table[self.nothing] = 0

    def rows(self, characters: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the row of each template for each word, (B, T, F); `nothing` for a missing one."""
        characters = nn.functional.pad(symbols_of(characters), (0, 1))  # a word has one place at least
        batch, time, _ = characters.shape
        lengths = characters.new_full((batch,), time) if lengths is None else lengths.to(characters.device)
        real = torch.arange(time, device=characters.device) < lengths.unsqueeze(1)
        characters = characters.masked_fill(~real.unsqueeze(2), 0)
        check_vocabulary(characters, len(self.lower), "characters")
        lower, sizes = self.lower[characters], (characters != 0).sum(2)
        endings, beginnings = _affixes(lower, sizes, _SUFFIX, end=True), _affixes(lower, sizes, _PREFIX, end=False)
        shape = _code(self.kinds[characters[:, :, :_SHAPE]])

        def beside(code: Tensor, by: int) -> Tensor:
            """Codes of the words `by` places further on; the edge code outside the sentence."""
            edge = code.new_full((batch, abs(by)), _EDGE)
            code = code.masked_fill(~real, _EDGE)
            return torch.cat([code, edge], 1)[:, by:] if by > 0 else torch.cat([edge, code], 1)[:, :time]

        word = _code(lower)
        before, after, last, next_ = beside(word, -1), beside(word, 1), beside(word, -2), beside(word, 2)
        two, three = endings[1], endings[2]
        before3, after3, before2, after2 = beside(three, -1), beside(three, 1), beside(two, -1), beside(two, 1)
        templates: list[list[Tensor]] = [
            [_code(characters)], [word], [before], [after], [last], [next_], [before, word], [word, after],
            [before, after], [last, before], [after, next_], [shape], [beside(shape, -1), shape],
            [shape, beside(shape, 1)], [beside(torch.zeros_like(word), -1), shape], [before3], [after3],
            [before3, three], [three, after3], [before2, two, after2], [before, shape],
        ]  # fmt: skip
        parts = [self._row(columns, number) for number, columns in enumerate(templates)]
        for order, code in enumerate(endings, 1):
            parts.append(self._row([code], 100 + order).masked_fill(sizes < order, self.nothing))
        for order, code in enumerate(beginnings, 1):
            parts.append(self._row([code], 200 + order).masked_fill(sizes < order, self.nothing))
        return torch.stack(parts, 2).masked_fill(~real.unsqueeze(2), self.nothing)

    def _row(self, columns: list[Tensor], template: int) -> Tensor:
        return hashed_rows([*columns, torch.full_like(columns[0], template)], self.nothing)


def _kind(character: str, number: int) -> int:
    if character.isupper():
        return 1
    if character.islower():
        return 2
    return 3 if character.isdigit() else _KINDS + number


def _code(symbols: Tensor) -> Tensor:
    """Return a number of each row of symbols, (..., C), which ends where zeros begin; it wraps around."""
    code = symbols.new_zeros(symbols.shape[:-1])
    for symbol in symbols.unbind(-1):
        code = torch.where(symbol != 0, code * _MULTIPLIER + symbol, code)
    return _mixed(code)


def _affixes(symbols: Tensor, sizes: Tensor, longest: int, *, end: bool) -> list[Tensor]:
    """Numbers of the first or last 1, 2, ... symbols of each word."""
    codes, code = [], symbols.new_zeros(symbols.shape[:-1])
    for offset in range(longest):
        at = sizes - 1 - offset if end else torch.full_like(sizes, offset)
        inside = (at >= 0) & (at < sizes)
        symbol = symbols.gather(-1, at.clamp(0, symbols.shape[-1] - 1).unsqueeze(-1)).squeeze(-1)
        code = code * _MULTIPLIER + symbol.where(inside, 0)
        codes.append(_mixed(code))
    return codes


def _mixed(code: Tensor) -> Tensor:
    """Spread codes over 64 bits: columns are joined by multiples of a prime, as symbols are, and would meet."""
    code = (code ^ (code >> 32)) * _MIXER
    return code ^ (code >> 32)
