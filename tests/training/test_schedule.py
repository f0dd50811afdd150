import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.training import learning_rate

fractions = st.floats(0, 1)
warmups = st.floats(0, 0.9)


@given(fractions, fractions, warmups)
def test_the_rate_rises_in_the_warm_up_and_falls_after_it(a: float, b: float, warmup: float) -> None:
    early, late = sorted((a, b))
    first, second = learning_rate(early, 1.0, warmup), learning_rate(late, 1.0, warmup)
    if late <= warmup:
        assert first <= second
    if early >= warmup:
        assert first >= second


@given(warmups)
def test_the_rate_peaks_where_the_warm_up_ends_and_ends_at_a_hundredth(warmup: float) -> None:
    assert learning_rate(warmup, 3.0, warmup) == pytest.approx(3.0)
    assert learning_rate(1.0, 3.0, warmup) == pytest.approx(0.03)


@given(fractions, warmups.filter(lambda warmup: warmup > 0))
def test_the_rate_never_exceeds_the_peak(progress: float, warmup: float) -> None:
    assert 0 <= learning_rate(progress, 1.0, warmup) <= 1.0


def test_the_cosine_is_half_way_down_in_the_middle() -> None:
    assert learning_rate(0.6, 1.0, 0.2) == pytest.approx(0.505)
