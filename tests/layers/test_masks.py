"""For any order and degrees the masks equal the equations."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chainrule.layers import _masked_linear, made_degrees, made_masks
from chainrule.layers._masked_linear import MaskedLinear
from chainrule.models import MADE

shapes = st.tuples(
    st.integers(1, 7), st.lists(st.integers(1, 9), max_size=3), st.integers(0, 2**30), st.sampled_from([0, 1])
)


def drawn(shape):
    size, hidden_sizes, seed, lowest = shape
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(size, generator=generator)
    return order, made_degrees(order, hidden_sizes, lowest=lowest, generator=generator)


@pytest.mark.parametrize(
    ("order", "expected"),
    [([0, 1, 2], [[0, 0, 0], [1, 0, 0], [1, 1, 0]]), ([2, 0, 1], [[0, 0, 1], [1, 0, 1], [0, 0, 0]])],
)
def test_without_a_hidden_layer_each_column_reads_those_before_it(order, expected):
    (mask,) = made_masks(made_degrees(torch.tensor(order), []))
    assert mask.int().tolist() == expected


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
    orders = MADE.raster_orders(height, width)
    assert len({tuple(order) for order in orders.tolist()}) == 8
    assert torch.equal(orders.sort(1).values, torch.arange(height * width).expand(8, -1))
    assert {int(order[0]) for order in orders} == {0, width - 1, (height - 1) * width, height * width - 1}
    for order, line in zip(orders, [width, height] * 4, strict=True):
        i, j = order // width, order % width
        moves = (i.diff().abs() + j.diff().abs()).tolist()
        assert all(move == 1 for place, move in enumerate(moves, start=1) if place % line)


MASK = torch.tensor([[False, False, False], [True, False, True]])


def test_it_is_a_dense_layer_with_the_masked_weights_at_zero():
    layer, x = MaskedLinear(MASK), torch.randn(4, 3)
    torch.nn.init.normal_(layer.bias)
    expected = torch.nn.functional.linear(x, layer.weight.masked_fill(~MASK, 0), layer.bias)
    assert torch.equal(layer(x), expected)


def test_outputs_have_gradients_only_where_the_mask_lets_them_through():
    layer = MaskedLinear(MASK)
    jacobian = torch.autograd.functional.jacobian(layer, torch.randn(3))
    assert torch.equal(jacobian != 0, MASK)


def test_masked_weights_receive_no_gradient():
    layer = MaskedLinear(MASK)
    layer(torch.randn(4, 3)).sum().backward()
    assert torch.equal(layer.weight.grad != 0, MASK)


def test_units_of_few_inputs_start_as_strong_as_units_of_many():
    layer = MaskedLinear(torch.ones(400, 400, dtype=torch.bool).tril(-1), bias=False)
    spread = layer(torch.randn(500, 400)).detach().std(0)
    assert spread[0] == 0
    assert 0.35 < float(spread[20:60].mean()) < 0.8  # uniform weights in ±n^-1/2 give 3^-1/2 = 0.58
    assert 0.35 < float(spread[-40:].mean()) < 0.8


def test_the_state_dict_holds_no_mask_and_a_bias_only_where_there_is_one():
    assert set(MaskedLinear(MASK).state_dict()) == {"weight", "bias"}
    assert set(MaskedLinear(MASK, bias=False).state_dict()) == {"weight"}


@pytest.mark.parametrize("bias", [True, False])
def test_many_rows_are_mapped_as_few_are(bias):
    torch.manual_seed(0)
    layer, x = MaskedLinear(torch.rand(19, 7) < 0.5, bias=bias), torch.randn(_masked_linear._MANY, 7)
    with torch.no_grad():
        assert _masked_linear._slow_on_processors(x, layer.weight)
        torch.testing.assert_close(layer(x), torch.cat([layer(part) for part in x.split(64)]))
