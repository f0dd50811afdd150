"""The functions of compiled loops over all of float32, by the functions of float64."""

import numpy as np
import pytest

pytest.importorskip("numba")
from numba import njit

from chainrule.kernels import _compiled_math

EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 88.72283, 88.72284, -87.3, -103.9, -104.5, 0.625, -0.625, 1e-40, -3e38]


def exact(name: str, x: np.ndarray) -> np.ndarray:
    if name == "sigmoid":
        small = np.exp(-np.abs(x))
        return np.where(x < 0, small, 1) / (1 + small)
    return getattr(np, name)(x)


def mapped(name: str, x: np.ndarray) -> np.ndarray:
    function = getattr(_compiled_math, name)

    @njit(error_model="numpy")
    def fill(x, y):
        for place in range(len(x)):
            y[place] = function(x[place])

    y = np.empty_like(x)
    fill(x, y)
    return y


@pytest.mark.parametrize(("name", "most"), [("exp", 1.1), ("sigmoid", 2.5), ("tanh", 1.5)])
def test_float32_is_within_a_few_units_of_the_last_place_over_its_whole_range(name, most):
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 21, dtype=np.uint32)
    with np.errstate(all="ignore"):
        x = np.concatenate([bits.view(np.float32), np.linspace(-110, 110, 1 << 20), EDGES]).astype(np.float32)
        wanted = exact(name, x.astype(np.float64))
        rounded = wanted.astype(np.float32)
        got = mapped(name, x)
    ordinary = np.isfinite(rounded)
    np.testing.assert_array_equal(got[~ordinary], rounded[~ordinary])  # NaN and infinities, each where it should be
    units = np.abs(got[ordinary] - wanted[ordinary]) / np.spacing(np.abs(rounded[ordinary]))
    assert units.max() < most


@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh"])
def test_float64_is_that_of_the_mathematical_library(name):
    x = np.concatenate([np.linspace(-700, 700, 10_001), np.random.default_rng(0).normal(size=1000)])
    np.testing.assert_allclose(mapped(name, x), exact(name, x), rtol=5e-16, atol=0)
