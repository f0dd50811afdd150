"""The live prefixes of a beam search, all rows in one flat list, and their best extensions."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Extensions:
    """The best extensions of a beam by one symbol, row by row, best first: of each its parent and new symbol."""

    rows: Tensor  # (E,) ascending
    parents: Tensor  # (E,) number of the prefix in the beam
    symbols: Tensor  # (E,)
    log_probs: Tensor  # (E,)


@dataclass(frozen=True)
class Beam:
    """N live prefixes of R rows, row by row, best first; rows may have different numbers of them.

    Args:
        rows: (N,) the row of each, ascending in [0, R).
        sequences: (N, T) symbols so far.
        log_probs: (N,) nats. In float64, so that sums over many steps keep the order of their terms.
    """

    rows: Tensor
    sequences: Tensor
    log_probs: Tensor

    def extensions(self, row_count: int, values: Tensor, symbols: Tensor, beam_size: int) -> Extensions:
        """The `beam_size` most probable extensions of each row's prefixes, or all where fewer are possible.

        Of equally probable ones, those of the better prefix come first, then those of the lower symbol.

        Args:
            row_count: R.
            values: (N, K) log p of the best symbols after each prefix, best first; -inf for one that is not possible.
                The K best extensions of a row are among the K best of each of its prefixes.
            symbols: (N, K) which symbols these are.
            beam_size: K; there are fewer columns where there are fewer symbols.

        Raises:
            ValueError: a log-probability is NaN.
        """
        if values[:, 0].isnan().any():  # NaN comes first
            raise ValueError(
                f"model: its conditional of element {self.sequences.shape[1] + 1} holds NaN: "
                "look for weights or a context that are not finite"
            )
        counts = self.rows.bincount(minlength=row_count)
        first = counts.cumsum(0) - counts
        rank = torch.arange(len(self.rows), device=first.device) - first[self.rows]
        width, branches = int(counts.max()), values.shape[1]
        table = self.log_probs.new_full((row_count, width, branches), -torch.inf)
        table[self.rows, rank] = self.log_probs.unsqueeze(1) + values
        best = table.flatten(1).sort(stable=True, dim=1, descending=True)
        rows, place = (best.values[:, :beam_size] > -torch.inf).nonzero(as_tuple=True)
        chosen = best.indices[rows, place]
        parents = first[rows] + chosen // branches
        return Extensions(rows, parents, symbols[parents, chosen % branches], best.values[rows, place])

    def sequences_of(self, extensions: Extensions) -> Tensor:
        """(E, T+1)."""
        return torch.cat([self.sequences[extensions.parents], extensions.symbols.unsqueeze(1)], 1)


def repeats_ngram(sequences: Tensor, n: int, vocab_size: int) -> Tensor:
    """True at [i, v] where symbol v after sequence i would complete an n-gram that the sequence already holds (Paulus
    et al. 2018).

    Args:
        sequences: (N, T) symbols in [0, V).
        n: length of an n-gram; 1 allows each symbol once.
        vocab_size: V.

    Returns:
        (N, V) booleans.

    >>> repeats_ngram(torch.tensor([[0, 1, 2, 0]]), 2, 3)
    tensor([[False,  True, False]])
    """
    count, time = sequences.shape
    repeats = torch.zeros(count, vocab_size, dtype=torch.bool, device=sequences.device)
    if time < n:
        return repeats
    ngrams = sequences.unfold(1, n, 1)  # (N, T-n+1, n)
    beginning = sequences[:, time - n + 1 :].unsqueeze(1)
    same = (ngrams[..., :-1] == beginning).all(2)
    row, place = same.nonzero(as_tuple=True)
    repeats[row, ngrams[row, place, -1]] = True
    return repeats
