"""Probabilities of symbols after the last few of them, from counts: interpolated Kneser-Ney smoothing."""

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Self, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from chainrule._buffers import fixed_buffer
from chainrule._ranges import check_sizes
from chainrule.kernels._cuda_graphs import being_recorded
from chainrule.kernels._transforms import values_are_known
from chainrule.layers._cells import symbols_of

Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]

_LEAST, _MOST = (0.05, 0.05, 0.05), (0.95, 1.9, 2.8)  # discounts: something is kept of each count, and taken from it
_TABLES = ("unigrams", "keys", "terms", "once")
ALONE = 1e-5  # a term and its back-off add up to one, as float32 adds, where a context has no other symbol
_AT_MOST_ONE = 1.001  # as float32 adds up shares
MOST_NGRAMS = 1 << 22
MOST_ORDER = 32


@dataclass(frozen=True)
class NgramCounts:
    """The distinct n-grams of one order k >= 2, in order of their keys; the number of an n-gram is its place."""

    # m·V + v of the n-gram that is the one of order k − 1 with number m, its context, and symbol v after it
    keys: Integers
    counts: Integers  # how often each is there
    shorter: Integers  # the number of the n-gram of order k − 1 that is left without the first symbol


def count_ngrams(text: Integers, vocab_size: int, order: int) -> Iterator[NgramCounts]:
    """Yield the n-grams of order 2, 3, ... up to `order`, or as long as there are any.

    An n-gram crosses no beginning of a line: the symbol V, which stands before one, is in its first place at most.
    A symbol has itself for its number.

    >>> pairs, triples = count_ngrams(np.array([0, 1, 0, 1, 1]), vocab_size=2, order=3)
    >>> pairs.keys.tolist(), pairs.counts.tolist()  # 01, 10 and 11
    ([1, 2, 3], [2, 1, 1])
    >>> triples.keys.tolist(), triples.shorter.tolist()  # 010, 011 and 101 are the pairs 10, 11 and 01 after a symbol
    ([0, 1, 3], [1, 2, 0])
    """
    numbers = text  # at each place, of the n-gram of the order before that ends there; -1 where none does
    inside = text[1:] != vocab_size
    for _ in range(2, order + 1):
        ends = np.flatnonzero(inside & (numbers[:-1] >= 0)) + 1
        if not len(ends):
            return
        keys, counts, firsts, places, own = _distinct(numbers[ends - 1] * vocab_size + text[ends], ends)
        yield NgramCounts(keys, counts, numbers[firsts])
        numbers = np.full(len(text), -1)
        numbers[places] = own


def _distinct(keys: Integers, places: Integers) -> tuple[Integers, Integers, Integers, Integers, Integers]:
    """Return the distinct keys with count and an index of each, and all indices with the key at each."""
    bits = int(places[-1]).bit_length()
    if int(keys.max()).bit_length() + bits < 64:  # one sort of numbers is many times as fast as one of their order
        both = np.sort(keys << bits | places)
        keys, places = both >> bits, both & (1 << bits) - 1
    else:
        order = np.argsort(keys, kind="stable")
        keys, places = keys[order], places[order]
    new = np.append(True, keys[1:] != keys[:-1])
    begins = np.flatnonzero(new)
    return keys[begins], np.diff(np.append(begins, len(keys))), places[begins], places, np.cumsum(new) - 1


@final
class KneserNey(nn.Module):
    r"""Interpolated modified Kneser-Ney smoothing: p(symbol | the last n − 1 symbols), estimated from counts.

    .. math::
        p_k(v \mid u) = \frac{c(uv) - D(c(uv))}{\sum_w c(uw)} + \gamma(u)\, p_{k-1}(v \mid u'), \qquad
        p_0(v) = 1 / V

    u is a context of k − 1 symbols, u' the same without its first one, and :math:`\gamma(u)` what the discounts
    :math:`D` took from it, so that the V probabilities add up to 1. For the highest order n,
    c counts n-grams. For a lower order it is the continuation count, the number of different symbols that precede an
    n-gram (Kneser and Ney 1995); at the beginning of a line, where no symbol precedes, it counts occurrences. There are
    three discounts an order, for counts of 1, 2 and more (Chen and Goodman 1999):

    .. math:: D_i = i - (i + 1) \frac{n_1}{n_1 + 2 n_2} \frac{n_{i+1}}{n_i}

    with :math:`n_i` n-grams of count i, held between 0.05 and 0.95, 1.9 or 2.8. A context that was never seen is
    skipped. The tables are looked up by binary search: an n-gram costs 16 bytes.

    They are not weights: they take no gradient, and are not in `state_dict`; `tables` and `from_tables` keep them.

    An n-gram has a number: a symbol itself, V the beginning of a line, and V + 1 + i the i-th of the longer ones, which
    come in order of their length. All orders share one sorted table of keys m·V + v, of symbol v after the n-gram with
    number m, so that one search finds the n-grams of every order.

    Args:
        unigrams: (V,) p_1.
        keys: (G,) of the n-grams of order 2 to n, in order.
        terms: (G,) the first term of p_k of each.
        once: (G,) whether the n-gram occurs once in the text.

    Raises:
        ValueError: the tables are invalid: a key is out of order, or a term is not a probability.

    Source: S. F. Chen and J. Goodman, An empirical study of smoothing techniques for language modeling, 1999.

    >>> ngrams = KneserNey.fit(torch.tensor([0, 1, 0, 1, 1, 0, 1]), vocab_size=2, order=3)
    >>> context = ngrams.read(torch.tensor([[0, 1]]), ngrams.initial_contexts(1))[1]
    >>> ngrams.probs(context).sum(-1)
    tensor([1.])
    """

    unigrams: Tensor
    keys: Tensor
    terms: Tensor
    once: Tensor
    backoffs: Tensor
    leaves_one_out: bool

    def __init__(self, unigrams: Tensor, keys: Tensor, terms: Tensor, once: Tensor):
        super().__init__()
        self.order = _checked_order(unigrams, keys, terms)
        if once.shape != keys.shape or once.dtype != torch.bool:
            raise ValueError(f"once: expected ({len(keys)},) truth values, got {tuple(once.shape)}, {once.dtype}")
        self.leaves_one_out = False
        self.vocab_size = len(unigrams)
        contexts = keys // self.vocab_size
        shares = keys.new_zeros(self.vocab_size + 1 + len(keys), dtype=torch.float64)
        shares.index_add_(0, contexts, terms.double())
        if float(shares.max()) > _AT_MOST_ONE:
            raise ValueError(f"terms: expected shares of a probability, got {float(shares.max()):g} after one context")
        backoffs = (1 - shares).clamp(min=0).to(terms.dtype)
        for name, table in zip((*_TABLES, "backoffs"), (unigrams, keys, terms, once, backoffs), strict=True):
            fixed_buffer(self, name, table)

    @classmethod
    def fit(
        cls,
        text: Tensor,
        vocab_size: int,
        order: int,
        *,
        lines: bool = False,
        most: int = MOST_NGRAMS,
        most_different: float = 1.0,
        dtype: torch.dtype = torch.float32,
    ) -> Self:
        """Count the n-grams of a text.

        Args:
            text: (N,) symbols in [0, V); with `lines`, V stands before each line.
            vocab_size: V.
            order: n, from 2 to 32; a smaller one where the text has no n-gram so long, or too many.
            lines: whether a line begins with a separate context.
            most: n-grams in the tables; orders that would need more are left out.
            most_different: n-grams of an order as a share of the text's symbols; where more are different, hardly any
                is there twice, and the order and those above it are left out.
            dtype: of the probabilities, float32 or float64.

        Raises:
            ValueError: a size is out of range, there is no pair of symbols in the text, or a symbol is outside.
        """
        check_sizes(vocab_size=vocab_size)
        if not 2 <= order <= MOST_ORDER:
            raise ValueError(f"order: expected 2 to {MOST_ORDER}, got {order}")
        symbols = text.long().numpy()
        highest = vocab_size if lines else vocab_size - 1
        if len(symbols) < 2 or symbols.min() < 0 or symbols.max() > highest:
            raise ValueError(f"text: expected two or more symbols in [0, {highest}]")
        levels: list[NgramCounts] = []
        for counted in count_ngrams(symbols, vocab_size, order):
            total = sum(len(level.keys) for level in (*levels, counted))
            if levels and (total > most or len(counted.keys) > most_different * len(symbols)):
                break
            levels.append(counted)
        if not levels:
            raise ValueError("text: expected a symbol after another, got lines of one")
        terms = _terms(np.bincount(levels[0].shorter, minlength=vocab_size), np.zeros(vocab_size, dtype=np.int64))
        unigrams = torch.from_numpy(terms + (1 - terms.sum()) / vocab_size)
        keys, shares, once, first = [], [], [], 0  # number of the first n-gram of the order before
        for counted, longer in zip(levels, [*levels[1:], None], strict=True):
            contexts, counts = counted.keys // vocab_size, counted.counts
            if longer is not None:
                before = np.bincount(longer.shorter, minlength=len(counts))
                counts = np.where(before == 0, counts, before)  # 0 at the beginning of a line, or of the text
            keys.append(torch.from_numpy(counted.keys + first * vocab_size))
            shares.append(torch.from_numpy(_terms(counts, contexts)).to(dtype))
            once.append(torch.from_numpy(counted.counts == 1))
            first = vocab_size + 1 + sum(map(len, keys[:-1]))
        return cls(unigrams.to(dtype), torch.cat(keys), torch.cat(shares), torch.cat(once))

    @classmethod
    def from_tables(cls, tables: Mapping[str, Tensor]) -> Self:
        """Load the model from the result of `tables`.

        Raises:
            ValueError: they are no such tables.
        """
        if tables.keys() != set(_TABLES):
            raise ValueError(f"tables: expected {', '.join(_TABLES)}, got {', '.join(sorted(tables)) or 'none'}")
        return cls(*(tables[name] for name in _TABLES))

    def tables(self) -> dict[str, Tensor]:
        """Return the tables by name, all that `from_tables` needs."""
        return {name: self.get_buffer(name) for name in _TABLES}

    def leaving_one_out(self) -> Self:
        """Return the same tables, whose `log_prob` leaves the scored occurrence itself out of the counts.

        For the symbols of the text that was counted: an n-gram that occurs once, which is the scored one, counts as
        unseen, and so does a context that has no other symbol after it. Counts above one stay as they are.
        """
        other = copy(self)
        other.leaves_one_out = True
        return other

    def initial_contexts(self, batch_size: int) -> Tensor:
        """Return the contexts before the first symbol, (B, n − 1): the beginning of a line, a context of one symbol.

        A context is the number of its n-gram, with k symbols in column k − 1; −1 marks an unseen n-gram.
        """
        contexts = torch.full((batch_size, self.order - 1), -1, device=self.keys.device)
        contexts[:, 0] = self.vocab_size
        return contexts

    def step(self, x: Tensor, contexts: Tensor) -> Tensor:
        """Return the contexts after one more symbol, (B, n − 1).

        Args:
            x: (B,) symbols; one outside [0, V) was never seen.
            contexts: (B, n − 1) before them.
        """
        x = symbols_of(x)
        longer = self._numbers(contexts[:, :-1], x.unsqueeze(1))
        return torch.cat([self._known(x).unsqueeze(1), longer], 1)

    def read(self, x: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """Return the contexts before each symbol of a chunk, (B, T, n − 1), and after the last one, (B, n − 1).

        Args:
            x: (B, T) symbols; one outside [0, V) was never seen.
            contexts: (B, n − 1) before the first of them.
        """
        x = symbols_of(x)
        columns = [torch.cat([contexts[:, :1], self._known(x)], 1)]
        for number in range(1, self.order - 1):
            after = self._numbers(columns[-1][:, :-1], x)
            columns.append(torch.cat([contexts[:, number : number + 1], after], 1))
        both = torch.stack(columns, 2)
        return both[:, :-1], both[:, -1]

    def log_prob(self, contexts: Tensor, x: Tensor, following: Tensor | None = None) -> Tensor:
        """log p_n of a symbol after each context, nats.

        Args:
            contexts: (..., n − 1).
            x: (...) symbols in [0, V).
            following: (..., n − 1) contexts after each symbol, where `read` has found them: few look-ups are left.
        """
        x = symbols_of(x)
        numbers = self._following(contexts, x, following)
        indices = numbers - self.vocab_size - 1
        terms = self.terms[indices.clamp(min=0)].masked_fill(indices < 0, 0)
        backoffs = self._backoffs(contexts)
        if self.leaves_one_out:
            own, alone = self._own(indices, terms, backoffs)
            terms, backoffs = terms.masked_fill(own, 0), backoffs.masked_fill(alone, 1)
        p = self.unigrams.index_select(0, x.flatten()).view(x.shape)  # [x] would take -1 for the last symbol
        for term, backoff in zip(terms.unbind(-1), backoffs.unbind(-1), strict=True):
            p = term + backoff * p
        return p.log()

    def probs(self, contexts: Tensor) -> Tensor:
        """p_n of every symbol after each context, (..., V).

        Args:
            contexts: (..., n − 1).
        """
        if being_recorded(contexts):  # the code below asks how many n-grams there are
            symbols = torch.arange(self.vocab_size, device=contexts.device)
            return self.log_prob(contexts.unsqueeze(-2), symbols).exp()
        rows = contexts.reshape(-1, contexts.shape[-1])
        if values_are_known(rows):  # the shorter contexts are in the longest
            rows = rows[:, : max(1, int((rows >= 0).sum(1).max()) if len(rows) else 1)]
        scales = [torch.ones_like(rows[:, 0], dtype=self.terms.dtype)]  # of the terms of an order: longer orders' γ
        for backoff in reversed(self._backoffs(rows).unbind(1)):
            scales.append(scales[-1] * backoff)
        *of_orders, of_unigrams = scales
        scale = torch.stack(of_orders[::-1], 1).view(-1)
        # The symbols after a context are neighbours in the table.
        begins, ends = (torch.searchsorted(self.keys, (rows.reshape(-1) + after) * self.vocab_size) for after in (0, 1))
        counts = ends - begins
        where = torch.arange(len(counts), device=rows.device).repeat_interleave(counts)
        places = torch.arange(len(where), device=rows.device) + (ends - counts.cumsum(0))[where]
        p = (self.unigrams * of_unigrams.unsqueeze(1)).view(-1)
        cells = where // rows.shape[1] * self.vocab_size + self.keys[places] % self.vocab_size
        terms = self.terms[places] * scale[where]
        # In one order, whatever the number of threads: a file is read back by the bits that it was written by.
        p = p.index_add(0, cells, terms) if p.device.type == "cpu" else p.index_put((cells,), terms, accumulate=True)
        return p.view(*contexts.shape[:-1], self.vocab_size)

    def other_contexts(self, contexts: Tensor, x: Tensor, following: Tensor | None = None) -> Tensor:
        """Return the contexts of `log_prob`, without those of the scored occurrence alone where it is left out.

        With them, `probs` tells what the rest of the text lets expect.
        """
        if not self.leaves_one_out:
            return contexts
        indices = self._following(contexts, symbols_of(x), following) - self.vocab_size - 1
        _, alone = self._own(indices, self.terms[indices.clamp(min=0)], self._backoffs(contexts))
        return contexts.masked_fill(alone, -1)

    def _following(self, contexts: Tensor, x: Tensor, following: Tensor | None) -> Tensor:
        """Return the numbers of the n-grams that are a context and the symbol after it."""
        if following is None:
            return self._numbers(contexts, x.unsqueeze(-1))
        # The context after a symbol is the n-gram of the context before it and the symbol.
        return torch.cat([following[..., 1:], self._numbers(contexts[..., -1:], x.unsqueeze(-1))], -1)

    def _own(self, indices: Tensor, terms: Tensor, backoffs: Tensor) -> tuple[Tensor, Tensor]:
        """Tell which n-grams are the scored occurrence itself, and which of these are all that their context has."""
        own = (indices >= 0) & self.once[indices.clamp(min=0)]
        return own, own & (terms + backoffs > 1 - ALONE)

    def _known(self, x: Tensor) -> Tensor:
        return torch.where((x >= 0) & (x < self.vocab_size), x, -1)

    def _numbers(self, contexts: Tensor, x: Tensor) -> Tensor:
        """Return the numbers of the n-grams that are a context and a symbol after it; −1 of one that was never seen."""
        wanted = torch.where((contexts >= 0) & (self._known(x) >= 0), contexts * self.vocab_size + x, -1)
        indices = torch.searchsorted(self.keys, wanted).clamp(max=len(self.keys) - 1)
        return torch.where(self.keys[indices] == wanted, indices + self.vocab_size + 1, -1)

    def _backoffs(self, contexts: Tensor) -> Tensor:
        return self.backoffs[contexts.clamp(min=0)].masked_fill(contexts < 0, 1)


def _terms(counts: Integers, contexts: Integers) -> Numbers:
    """Return the first term of p_k of each n-gram: its count less its discount, over the total count of its context."""
    of_count = np.bincount(np.minimum(counts, 5), minlength=6)[1:5].clip(1)
    share = of_count[0] / (of_count[0] + 2 * of_count[1])
    usual = [count - (count + 1) * share * of_count[count] / of_count[count - 1] for count in (1, 2, 3)]
    discounts = np.clip(usual, _LEAST, _MOST)
    discounted = counts - np.where(counts > 0, discounts[np.clip(counts, 1, 3) - 1], 0)
    together = np.bincount(contexts, counts)
    return np.asarray(discounted / together[contexts])


def _checked_order(unigrams: Tensor, keys: Tensor, terms: Tensor) -> int:
    """Return the order of the longest n-grams."""
    if not _are_shares(unigrams) or not 0.99 < float(unigrams.sum()) < 1.01:
        raise ValueError("unigrams: expected (V,) probabilities that add up to 1, float32 or float64")
    if keys.dim() != 1 or not len(keys) or keys.dtype != torch.int64 or not bool((keys[1:] > keys[:-1]).all()):
        raise ValueError("keys: expected (G,) integers in increasing order")
    if not _are_shares(terms) or len(terms) != len(keys) or terms.dtype != unigrams.dtype:
        raise ValueError(f"terms: expected ({len(keys)},) shares of a probability, {unigrams.dtype}")
    symbols = len(unigrams)
    if int(keys[0]) < 0 or not bool((keys // symbols <= torch.arange(len(keys), device=keys.device) + symbols).all()):
        raise ValueError("keys: expected n-grams after their contexts, got one before")
    order, context = 2, int(keys[-1]) // symbols
    while context > symbols and order < MOST_ORDER:
        order, context = order + 1, int(keys[context - symbols - 1]) // symbols
    if context > symbols:
        raise ValueError(f"keys: expected n-grams of at most {MOST_ORDER} symbols, got longer ones")
    return order


def _are_shares(terms: Tensor) -> bool:
    wide = terms.dim() == 1 and terms.dtype in (torch.float32, torch.float64)
    return wide and bool(((terms >= 0) & (terms <= 1)).all())
