"""A symbol is held to repeat an n-gram exactly where the sequence with it holds one twice."""

import torch
from decoded_models import holds_an_ngram_twice
from hypothesis import given
from hypothesis import strategies as st

from chainrule.decoding._beam_search import repeats_ngram


@given(st.integers(0, 2**31), st.integers(0, 9), st.integers(1, 4))
def test_it_agrees_with_counting(seed, time, n):
    sequences = torch.randint(3, (6, time), generator=torch.Generator().manual_seed(seed))
    repeats = repeats_ngram(sequences, n, 3)
    for sequence, row in zip(sequences.tolist(), repeats.tolist(), strict=True):
        if holds_an_ngram_twice(sequence, n):
            continue  # already repeated: the last n-gram alone is in question
        assert row == [holds_an_ngram_twice([*sequence, symbol], n) for symbol in range(3)]
