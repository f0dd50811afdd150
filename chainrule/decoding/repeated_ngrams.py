"""The symbols that would repeat an n-gram of the prefix."""

import torch
from torch import Tensor


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
