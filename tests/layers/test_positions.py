"""Positions: the written equations, and what they promise of distances and of chunks."""

import math

import pytest
import torch

from chainrule.layers import LearnedPositions, SinusoidalPositions
from chainrule.layers._positions import distance_slopes, rotate, rotations, sinusoids


def test_sinusoids_are_those_of_the_equation():
    table = sinusoids(torch.arange(5), 6)
    for p in range(5):
        for i in range(3):
            angle = p / 10_000 ** (2 * i / 6)
            assert table[p, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-15)
            assert table[p, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-15)


def test_the_product_of_rotated_vectors_depends_on_their_distance_alone():
    query, key = torch.randn(2, 8, dtype=torch.float64)

    def product(p, s):
        return rotate(query, rotations(torch.tensor(p), 8, query)) @ rotate(key, rotations(torch.tensor(s), 8, key))

    torch.testing.assert_close(product(7, 3), product(100_007, 100_003), rtol=0, atol=1e-9)  # angles of 1e5 radians
    assert (product(7, 3) - product(8, 3)).abs() > 1e-3
    torch.testing.assert_close(product(5, 5), query @ key, rtol=0, atol=1e-12)


def test_slopes_fall_by_a_constant_factor_to_a_256th():
    slopes = distance_slopes(8)
    assert slopes[0] == 0.5
    assert slopes[-1] == 2**-8
    torch.testing.assert_close(slopes[1:] / slopes[:-1], torch.full((7,), 0.5, dtype=torch.float64))


@pytest.mark.parametrize("layer", [SinusoidalPositions(6), LearnedPositions(20, 6)], ids=["sinusoidal", "learned"])
def test_positions_go_on_where_each_row_ended(layer):
    layer = layer.double()
    x, lengths = torch.randn(2, 8, 6, dtype=torch.float64), torch.tensor([3, 1])
    whole, count = layer(x)
    assert count.tolist() == [8, 8]
    first, state = layer(x[:, :3], None, lengths)
    assert not first[1, 1:].any()
    torch.testing.assert_close(layer(x[:1, 3:], state[:1])[0], whole[:1, 3:], rtol=0, atol=0)
    torch.testing.assert_close(layer(x[1:, 1:], state[1:])[0], whole[1:, 1:], rtol=0, atol=0)
    y, after = layer.step(torch.stack([x[0, 3], x[1, 1]]), state)
    torch.testing.assert_close(y, torch.stack([whole[0, 3], whole[1, 1]]), rtol=0, atol=0)
    assert after.tolist() == [4, 2]


def test_learned_positions_end_where_the_table_does():
    layer = LearnedPositions(3, 2)
    _, state = layer(torch.zeros(1, 3, 2))
    with pytest.raises(ValueError, match="learned positions end after 3 elements, got 4"):
        layer.step(torch.zeros(1, 2), state)


def test_sinusoids_need_pairs():
    with pytest.raises(ValueError, match="even number of features, got 3"):
        SinusoidalPositions(3)


def test_padding_needs_no_learned_position():
    layer, x = LearnedPositions(4, model_size=2), torch.zeros(2, 3, 2)
    y, count = layer(x, torch.tensor([3, 0]), torch.tensor([0, 3]))
    assert torch.equal(y[1], layer.weight[:3])
    assert not y[0].any()
    assert count.tolist() == [3, 3]
    longer, _ = layer(torch.zeros(2, 5, 2), lengths=torch.tensor([4, 1]))
    assert torch.equal(longer[0, :4], layer.weight)
    with pytest.raises(ValueError, match="learned positions end after 4 elements, got 5"):
        layer(x, torch.tensor([3, 0]), torch.tensor([2, 3]))


@pytest.mark.parametrize("layer", [SinusoidalPositions(8), LearnedPositions(4, 8)])
def test_features_of_another_width_are_refused(layer):
    for call in (lambda: layer(torch.zeros(2, 3, 1)), lambda: layer.step(torch.zeros(2, 1), layer.initial_state(2))):
        with pytest.raises(ValueError, match="x: expected features"):
            call()
