"""Masks are those of the equations, for any order and any degrees."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chainrule.layers import made_degrees, made_masks, raster_orders

shapes = st.tuples(
    st.integers(1, 7), st.lists(st.integers(1, 9), max_size=3), st.integers(0, 2**30), st.sampled_from([0, 1])
)


def drawn(shape):
    size, hidden_sizes, seed, lowest = shape
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(size, generator=generator)
    return order, made_degrees(order, hidden_sizes, lowest=lowest, generator=generator)


def test_without_a_hidden_layer_each_column_reads_those_before_it():
    (mask,) = made_masks(made_degrees(torch.arange(3), []))
    assert mask.int().tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]


def test_an_order_permutes_the_mask():
    (mask,) = made_masks(made_degrees(torch.tensor([2, 0, 1]), []))
    assert mask.int().tolist() == [[0, 0, 1], [1, 0, 1], [0, 0, 0]]


def test_hidden_units_read_equal_degrees_and_outputs_strictly_lower_ones():
    hidden, output = made_masks([torch.tensor([1, 2, 3]), torch.tensor([1, 2])])
    assert hidden.int().tolist() == [[1, 0, 0], [1, 1, 0]]
    assert output.int().tolist() == [[0, 0], [1, 0], [1, 1]]


@given(shapes)
def test_a_path_leads_only_from_earlier_columns(shape):
    order, degrees = drawn(shape)
    reach = torch.eye(len(order))
    for mask in made_masks(degrees):
        reach = mask.float() @ reach
    assert not reach[order][:, order].triu().any()


@given(shapes)
def test_each_pair_of_columns_is_connected_where_there_are_units_for_every_degree(shape):
    order, degrees = drawn(shape)
    if any(len(part) < len(order) - shape[3] for part in degrees[1:]):
        return
    reach = torch.eye(len(order))
    for mask in made_masks(degrees):
        reach = mask.float() @ reach
    assert reach[order][:, order].tril(-1).bool().equal(torch.ones(len(order), len(order)).tril(-1).bool())


@given(shapes)
def test_degrees_stay_in_range_and_are_spread_evenly(shape):
    order, (columns, *hidden) = drawn(shape)
    size, lowest = len(order), min(shape[3], len(order) - 1)
    assert columns[order].tolist() == list(range(1, size + 1))
    for part in hidden:
        assert lowest <= int(part.min()) <= int(part.max()) <= max(size - 1, lowest)
        counts = torch.bincount(part, minlength=size)[lowest:]
        assert int(counts.max() - counts.min()) <= 1


def test_a_generator_shuffles_degrees_and_a_seed_fixes_them():
    order = torch.arange(6)
    first, again, other = (
        made_degrees(order, [40], generator=torch.Generator().manual_seed(seed))[1] for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(first.sort().values, made_degrees(order, [40])[1])


@pytest.mark.parametrize("wrong", ["a strict hidden mask", "an output that is not strict"])
def test_a_wrong_comparison_would_show(wrong):
    degrees = made_degrees(torch.arange(4), [9])
    if wrong == "a strict hidden mask":
        masks = [degrees[1].unsqueeze(1) > degrees[0], degrees[0].unsqueeze(1) > degrees[1]]
    else:
        masks = [degrees[1].unsqueeze(1) >= degrees[0], degrees[0].unsqueeze(1) >= degrees[1]]
    reach = masks[1].float() @ masks[0].float()
    wanted = torch.ones(4, 4).tril(-1)
    pairs = itertools.product(range(4), repeat=2)
    assert any(bool(reach[t, s]) != bool(wanted[t, s]) for t, s in pairs)


@given(st.integers(2, 6), st.integers(2, 6))
def test_raster_orders_are_the_eight_ways_to_read_an_image_line_by_line(height, width):
    orders = raster_orders(height, width)
    assert len({tuple(order) for order in orders.tolist()}) == 8
    assert torch.equal(orders.sort(1).values, torch.arange(height * width).expand(8, -1))
    assert {int(order[0]) for order in orders} == {0, width - 1, (height - 1) * width, height * width - 1}
    for order, line in zip(orders, [width, height] * 4, strict=True):
        i, j = order // width, order % width
        moves = (i.diff().abs() + j.diff().abs()).tolist()
        assert all(move == 1 for place, move in enumerate(moves, start=1) if place % line)
