import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.training import Evaluation
from chainrule.training._evaluate import per_element, perplexity

nats = st.floats(0, 1e6)
counts = st.integers(1, 10**9)


@given(nats, counts)
def test_bits_are_nats_over_ln_2(total: float, elements: int) -> None:
    evaluation = Evaluation(total, elements)
    assert evaluation.bits_per_element * math.log(2) == pytest.approx(total / elements)


@given(st.integers(2, 10**6), st.integers(1, 1000))
def test_perplexity_of_a_uniform_choice_is_the_number_of_symbols(symbols: int, elements: int) -> None:
    assert Evaluation(elements * math.log(symbols), elements).perplexity == pytest.approx(symbols)


def test_a_perplexity_beyond_the_largest_double_is_infinite() -> None:
    assert perplexity(1e6, 1) == math.inf


def test_nothing_has_no_average() -> None:
    with pytest.raises(ValueError, match="elements: expected at least 1"):
        per_element(0.0, 0)
