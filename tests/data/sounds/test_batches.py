"""Clips in batches."""

from collections import Counter

import numpy as np
import pytest
from memory_tokens import MemoryTokens

from chainrule.data import clip_batches, clip_evaluation

LENGTHS = [3, 17, 5, 40, 8, 8, 1, 23, 30, 12]


@pytest.fixture
def tokens():
    """Clip k holds 100k + 1, 100k + 2, ...; its last sample is 0, as MemoryTokens wants an end."""
    return MemoryTokens(
        [*(value for k, n in enumerate(LENGTHS) for value in [*range(100 * k + 1, 100 * k + n), 0])], eos=0
    )


def rows(batch):
    return [tuple(row[:length].tolist()) for row, length in zip(batch.x, batch.lengths.tolist(), strict=True)]


def pieces(longest):
    return Counter(
        tuple(clip[start : start + longest])
        for k, n in enumerate(LENGTHS)
        for clip in [[*range(100 * k + 1, 100 * k + n), 0]]
        for start in range(0, n, longest)
    )


@pytest.mark.parametrize("longest", [10, 100])
def test_an_epoch_reads_every_piece_once_but_what_fills_no_batch(tokens, longest):
    batches = clip_batches(tokens, 3, longest)
    count = pieces(longest).total()
    assert batches.steps_per_epoch == count // 3
    for epoch in (0, 1):
        first = epoch * batches.steps_per_epoch
        read = Counter(row for step in range(batches.steps_per_epoch) for row in rows(batches.at(first + step)))
        assert read.total() == count // 3 * 3
        assert not read - pieces(longest)


def test_evaluation_reads_every_piece_once(tokens):
    read = Counter(row for batch in clip_evaluation(tokens, 4, 10) for row in rows(batch))
    assert read == pieces(10)


def test_labels_go_with_their_clips(tokens):
    labels = np.arange(len(LENGTHS))
    batches = clip_batches(tokens, 2, 10, labels)
    for batch in (*map(batches.at, range(batches.steps_per_epoch)), *clip_evaluation(tokens, 3, 10, labels)):
        for row, label in zip(rows(batch), batch.context.tolist(), strict=True):
            assert {value // 100 for value in row if value} <= {label}


def test_fewer_clips_than_a_batch_are_a_batch(tokens):
    assert clip_batches(tokens, 64, 100).at(0).x.shape == (len(LENGTHS), max(LENGTHS))
    with pytest.raises(ValueError, match="clips: expected at least 16, one for each process, got 10"):
        clip_batches(tokens, 16, 100, shard=(0, 16))
    with pytest.raises(ValueError, match="chunk_length: expected at least 1"):
        clip_batches(tokens, 2, 0)
