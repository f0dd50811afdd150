"""Words by their spelling: features from characters and affixes, and scores of tags from templates."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import final

import torch
from torch import Tensor, nn

from chainrule._buffers import fixed_buffer
from chainrule._ranges import check_shares, check_sizes
from chainrule.kernels._transforms import values_are_known
from chainrule.layers._cells import check_vocabulary, symbols_of
from chainrule.layers._ngrams import hashed_rows
from chainrule.layers._row_encoders import Bidirectional

CHARACTER_ENCODERS = ("lstm", "cnn")
_WIDTH = 3  # characters that a filter of the CNN sees


@final
class CharacterEncoder(nn.Module):
    r"""Features of words from their characters, by a bidirectional LSTM or a convolution.

    .. math::
        \mathrm{lstm:}\quad [\overrightarrow{h}_K, \overleftarrow{h}_1] \qquad\qquad
        \mathrm{cnn:}\quad \max_{k} \left( b + \sum_{j=-1}^{1} W_j\, e_{k+j} \right)

    with :math:`e_k` the embedding of the k-th of K characters, 0 outside the word: Ling et al. 2015 and Lample et al.
    2016; dos Santos and Zadrozny 2014 and Ma and Hovy 2016. A batch of text repeats its words: each different word is
    read once, and its features are copied to each of its places.

    Args:
        num_characters: V; characters are integers in [1, V], and 0 pads.
        embedding_size: width of the embedding of a character.
        output_size: N, features of a word; for "lstm" half of them from each direction.
        kind: "lstm" or "cnn".
        dropout: probability of zeroing in training, on the embeddings.

    >>> encoder = CharacterEncoder(num_characters=26, output_size=8)
    >>> encoder(torch.tensor([[[3, 1, 20], [0, 0, 0]], [[1, 0, 0], [3, 1, 20]]])).shape  # cat, nothing; a, cat
    torch.Size([2, 2, 8])
    """

    def __init__(
        self,
        num_characters: int,
        embedding_size: int = 32,
        output_size: int = 100,
        kind: str = "lstm",
        dropout: float = 0.0,
    ):
        super().__init__()
        check_sizes(num_characters=num_characters, embedding_size=embedding_size, output_size=output_size)
        if kind not in CHARACTER_ENCODERS:
            raise ValueError(f"kind: expected one of {', '.join(CHARACTER_ENCODERS)}, got {kind!r}")
        check_shares(dropout=dropout)
        if kind == "lstm" and output_size % 2:
            raise ValueError(f"output_size: expected an even number, half for each direction, got {output_size}")
        self.num_characters, self.output_size, self.dropout = num_characters, output_size, dropout
        self.embedding = nn.Embedding(num_characters + 1, embedding_size, padding_idx=0)
        self.recurrent = Bidirectional("lstm", embedding_size, output_size // 2) if kind == "lstm" else None
        self.convolution = (
            nn.Conv1d(embedding_size, output_size, _WIDTH, padding=_WIDTH // 2) if kind == "cnn" else None
        )

    def forward(self, characters: Tensor) -> Tensor:
        """Read words.

        Args:
            characters: (..., K) integers: 1 to V, then 0 past each word's end.

        Returns:
            (..., N); zeros for a word without characters.
        """
        if characters.dim() < 1 or characters.is_floating_point():
            raise ValueError(
                f"characters: expected integers (..., K), got {characters.dtype} of {tuple(characters.shape)}"
            )
        if not characters.shape[-1]:
            return self.embedding.weight.new_zeros(*characters.shape[:-1], self.output_size)
        rows = characters.long().reshape(-1, characters.shape[-1])
        if values_are_known(rows):
            words, index = torch.unique(rows, dim=0, return_inverse=True)
            encoded = self._read(words).index_select(0, index)
        else:
            encoded = self._read(rows)
        return encoded.view(*characters.shape[:-1], self.output_size)

    def _read(self, words: Tensor) -> Tensor:
        """(U, K) words -> (U, N), zeros for the word without characters."""
        lengths = (words != 0).sum(1)
        # Reading the word without characters as one letter long spares a case, and its row is zeroed.
        return self._encode(words, lengths).masked_fill((lengths == 0).unsqueeze(1), 0)

    def _encode(self, words: Tensor, lengths: Tensor) -> Tensor:
        """(U, K) words of one letter or more -> (U, N)."""
        embedded = nn.functional.dropout(self.embedding(words), self.dropout, self.training)
        if self.recurrent is not None:
            h, _ = self.recurrent(embedded, lengths)[1]
            last: Tensor = h[-1]
            return last
        assert self.convolution is not None
        features = self.convolution(embedded.transpose(1, 2))  # (U, N, K)
        outside = torch.arange(words.shape[1], device=words.device) >= lengths.unsqueeze(1)
        highest: Tensor = features.masked_fill(outside.unsqueeze(1), -torch.inf).amax(2)
        return highest


_INITIAL_STD = 0.1
_BUCKETS = 2**14


@final
class AffixEmbedding(nn.Module):
    r"""Add up embeddings of the prefixes and suffixes of a word, up to N characters, hashed into one table.

    .. math:: e(w) = \sum_{n=1}^{N} E[\mathrm{bucket}(w_1 \ldots w_n)] + E[\mathrm{bucket}(w_{K-n+1} \ldots w_K)]

    Affixes are the features of unknown words in Ratnaparkhi (1996); rows are shared by a hash, as in fastText
    (Bojanowski et al. 2017). A word shorter than n characters has itself as its affix of n characters. No product is
    needed, where a recurrent layer or a convolution over the characters costs as much as the tagger itself. In training
    `dropout` leaves out the whole e(w) of a word.
    """

    def __init__(
        self,
        num_characters: int,
        output_size: int = 64,
        longest: int = 4,
        buckets: int = 2**15,
        dropout: float = 0.0,
    ):
        super().__init__()
        check_shares(dropout=dropout)
        check_sizes(num_characters=num_characters, output_size=output_size, longest=longest, buckets=buckets)
        self.num_characters, self.output_size, self.longest = num_characters, output_size, longest
        self.dropout = dropout
        self.table = nn.Embedding(buckets, output_size)
        nn.init.normal_(self.table.weight, std=_INITIAL_STD)

    def forward(self, characters: Tensor) -> Tensor:
        """Read words, (..., K) integers, 0 past each word's end, to (..., N); zeros for a word without characters."""
        if not characters.shape[-1]:
            return self.table.weight.new_zeros(*characters.shape[:-1], self.output_size)
        lengths = (characters != 0).sum(-1, keepdim=True)
        rows = []
        for order in range(1, self.longest + 1):
            taken = torch.arange(order, device=characters.device)
            for kind, places in enumerate((taken.expand(*lengths.shape[:-1], order), lengths - 1 - taken)):
                inside = (places >= 0) & (places < lengths)
                letters = characters.gather(-1, places.clamp(0, characters.shape[-1] - 1)).where(inside, 0)
                columns = [*letters.unbind(-1), torch.full_like(letters[..., 0], 2 * order + kind)]
                rows.append(hashed_rows(columns, self.table.num_embeddings))
        # One look-up of all: the gradient of each is as large as the table.
        words = nn.functional.embedding_bag(torch.stack(rows, -1).flatten(0, -2), self.table.weight, mode="sum")
        scale = nn.functional.dropout((lengths != 0).to(words.dtype), self.dropout, self.training)
        return words.view(*characters.shape[:-1], self.output_size) * scale


@final
class WordForm(nn.Module):
    r"""Features of a word from all of its characters, and from its affixes, left out in training with p = `dropout`.

    .. math:: e(w) = [\mathrm{cnn}(w),\ m\, \mathrm{affixes}(w)], \qquad
        m = \tfrac{1}{1 - p} \text{ with probability } 1 - p \text{, else } 0 \text{; after training } m = 1

    Affixes are learned faster, but the model also overfits to them: they identify most words of the training data.
    Leaving them out at random forces the convolution to predict alone, so that both kinds of features are learned.
    """

    def __init__(self, num_characters: int, output_size: int = 128, dropout: float = 0.5):
        super().__init__()
        half = output_size // 2
        self.characters = CharacterEncoder(num_characters, output_size=output_size - half, kind="cnn")
        self.affixes = AffixEmbedding(num_characters, half, buckets=_BUCKETS, dropout=dropout)

    def forward(self, characters: Tensor) -> Tensor:
        """Read words, (..., K) integers, 0 past each word's end, to (..., N); zeros for a word without characters."""
        return torch.cat([self.characters(characters), self.affixes(characters)], -1)


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
