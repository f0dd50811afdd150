"""Amplitudes to levels and back, and clips in batches."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.data import LinearLevels, MuLawLevels, Tokens
from chainrule_app.readers.sounds.levels import make_levels
from chainrule_app.readers.sounds.prepare import clip_batches, clip_evaluation

LENGTHS = [3, 17, 5, 40, 8, 8, 1, 23, 30, 12]


@pytest.fixture
def tokens():
    """Clip k holds 100k + 1, 100k + 2, ...; its last sample is 0, as Tokens wants an end."""
    return Tokens([*(value for k, n in enumerate(LENGTHS) for value in [*range(100 * k + 1, 100 * k + n), 0])], eos=0)


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


KINDS = [MuLawLevels(256), MuLawLevels(255), MuLawLevels(2), LinearLevels(256), LinearLevels(65536), MuLawLevels(65536)]


@pytest.mark.parametrize("levels", KINDS, ids=lambda kind: f"{kind.law}-{kind.levels}")
def test_every_level_comes_back(levels):
    codes = np.arange(levels.levels)
    assert np.array_equal(levels.encode(levels.decode(codes)), codes)
    assert np.all(np.diff(levels.decode(codes)) > 0)
    assert levels.decode(codes).dtype == np.float32
    assert np.abs(levels.decode(codes)).max() <= 1


def test_sixteen_bits_are_those_of_the_file():
    samples = np.array([-32768, -1, 0, 1, 32767])
    levels = LinearLevels(65536)
    assert levels.encode(samples / 32768).tolist() == (samples + 32768).tolist()
    assert np.array_equal(levels.decode(samples + 32768) * 32768, samples)


def test_the_mu_law_is_that_of_its_equation():
    x = np.array([-1.0, -0.3, 0.0, 1e-4, 0.02, 1.0])
    y = np.sign(x) * np.log(1 + 255 * np.abs(x)) / np.log(256)
    assert MuLawLevels(256).encode(x).tolist() == ((y + 1) / 2 * 255 + 0.5).astype(int).tolist()


@given(st.floats(-1, 1), st.sampled_from(KINDS))
def test_a_level_is_the_nearest_of_its_law(x, levels):
    code = int(levels.encode(x))
    assert 0 <= code < levels.levels
    low, high = levels.decode([max(code - 1, 0), min(code + 1, levels.levels - 1)])
    assert low - 1e-6 <= x <= high + 1e-6 or code in (0, levels.levels - 1)


@given(st.lists(st.floats(-2, 2), min_size=2, max_size=9))
def test_levels_rise_with_the_amplitude_and_hold_what_is_beyond_full_scale(amplitudes):
    for levels in KINDS:
        codes = levels.encode(sorted(amplitudes))
        assert np.all(np.diff(codes) >= 0)
        assert levels.encode([-9.0, 9.0]).tolist() == [0, levels.levels - 1]


def test_silence_is_in_the_middle():
    assert [levels.silence for levels in KINDS] == [128, 127, 1, 128, 32768, 32768]


@pytest.mark.parametrize(
    ("law", "levels", "message"),
    [
        ("mu", 1, "levels: expected at least 2, got 1"),
        ("linear", 100, "levels: expected a power of two"),
        ("linear", 1 << 17, "levels: expected a power of two from 2 to 65536, got 131072"),
        ("a", 256, "law: expected one of mu, linear, got 'a'"),
    ],
)
def test_wrong_levels_are_named(law, levels, message):
    with pytest.raises(ValueError, match=message):
        make_levels(law, levels)
