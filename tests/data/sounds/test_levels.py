"""Amplitudes to levels and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.data import LinearLevels, MuLawLevels
from chainrule.data._sounds import make_levels

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
