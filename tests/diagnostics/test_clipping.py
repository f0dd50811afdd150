import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule_app.pages.clipping import clipping


def steps(*norms: float, first: int = 1) -> list[dict]:
    return [{"event": "step", "step": first + place, "gradient_norm": norm} for place, norm in enumerate(norms)]


def test_share_and_factor_are_those_of_the_steps_above_the_limit():
    found = clipping(steps(0.5, 1.0, 2.0, 4.0), 1.0)
    assert (found.steps, found.share) == (4, 0.5)
    assert found.factor == pytest.approx((1 / 2 + 1 / 4) / 2)


def test_a_norm_at_the_limit_is_left_as_it_is():
    found = clipping(steps(1.0, 1.0), 1.0)
    assert (found.share, found.factor) == (0.0, 1.0)
    assert "nothing was clipped" in found.sentence()


def test_other_records_are_not_steps():
    others = [{"event": "validation", "step": 9}, {"event": "watch", "step": 9}, {"event": "warning", "step": 9}]
    assert clipping(others, 1.0) is None
    assert clipping([*others, *steps(3.0)], 1.0).logged_norms == [3.0]


def test_without_a_limit_nothing_was_to_be_clipped():
    found = clipping(steps(5.0), None)
    assert found.share == 0
    assert found.sentence().startswith("Nothing was to be clipped")


def test_the_sentence_says_when_some_steps_are_not_logged():
    assert "of the 2 steps of training had" in clipping(steps(1.0, 3.0), 2.0).sentence()
    partly = clipping(steps(1.0, 3.0, first=9), 2.0)
    assert "2 steps of training that are logged (10 were made)" in partly.sentence()


@given(st.lists(st.floats(1e-6, 1e6), min_size=1), st.floats(1e-3, 1e3))
def test_a_factor_shortens_and_never_lengthens(norms, limit):
    found = clipping(steps(*norms), limit)
    assert 0 <= found.share <= 1
    assert 0 < found.factor <= 1
    assert (found.share == 0) == (max(norms) <= limit)
