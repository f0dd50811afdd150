"""MADE of mixed columns behind the contract, and sampled from caches without a difference in value."""

import pytest
import torch

from chainrule.heads import Column
from chainrule.models import MADE, TableMADE

NAN = float("nan")
MIXED = [
    Column("categorical", categories=3),
    Column("real", atoms=(0.0,), centre=1.0, scale=2.0),
    Column("integer", low=0, atoms=(1.0, 4.0), centre=3.0, scale=2.0),
    Column("integer", centre=3.0, scale=2.0),
    Column("real"),
    Column("categorical", categories=2),
]
TABLES = {
    "categories": [Column("categorical", categories=3)] * 4,
    "reals": [Column("real", centre=1.0, scale=2.0)] * 4,
    "counts": [Column("integer", low=0, centre=3.0, scale=2.0)] * 4,
    "mixed": MIXED,
}
SHAPES = {
    "no hidden layer": {"num_layers": 0},
    "one hidden layer, direct": {"hidden_size": 12, "num_layers": 1},
    "two hidden layers": {"hidden_size": 12, "direct": False},
    "too few units to connect every pair": {"hidden_size": 2, "num_layers": 1, "direct": False},
}
GAPS = [Column("integer", missing=True, atoms=(2.0,)), Column("real", missing=True), *MIXED]


def made(columns, shape="one hidden layer, direct", **options):
    torch.manual_seed(0)
    order = torch.randperm(len(columns))
    model = TableMADE(columns, order=order, components=3, **({"dropout": 0.0} | SHAPES[shape] | options))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3 if parameter.dim() < 2 else parameter.shape[1] ** -0.5)
    return model


def rows(model, n, seed=0):
    return model.sample(n, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("table", TABLES)
def test_keeps_the_contract(keeps_contract, table):
    model = made(TABLES[table])
    keeps_contract(model, rows(model, 3))


@pytest.mark.parametrize("shape", ["no hidden layer", "too few units to connect every pair"])
def test_keeps_the_contract_in_other_shapes(keeps_contract, shape):
    model = made(MIXED, shape)
    keeps_contract(model, rows(model, 3))


@pytest.mark.parametrize("shape", SHAPES)
def test_steps_are_the_pass_with_missing_values_too(shape):
    model = made(GAPS, shape).double().eval()
    x = rows(model, 40)
    x[::3, 0], x[1::3, 1] = NAN, NAN
    sequence, state, x_prev, terms = model.to_sequence(x), model.initial_state(len(x)), None, []
    for t in range(x.shape[1]):
        conditional, state = model.step(x_prev, state)
        x_prev = sequence[:, t]
        terms.append(conditional.log_prob(x_prev))
    expected = model(x).log_prob(x)
    assert bool(expected.isfinite().all())
    torch.testing.assert_close(model.from_sequence(torch.stack(terms, 1)), expected, rtol=0, atol=1e-11)


def test_a_sample_is_the_one_that_full_recomputation_draws():
    model = made(GAPS).double()
    generator, x = torch.Generator().manual_seed(5), torch.zeros(7, len(GAPS), dtype=torch.float64)
    for column in model.order:
        outputs = model(x)
        group = next(n for n, places in enumerate(model.layout.places) if column in places)
        own = outputs.parts[group].outputs[:, model.layout.places[group].index(column)]
        x[:, column] = model.layout.column(column, own).sample(generator=generator)
    torch.testing.assert_close(rows(model, 7, seed=5), x, rtol=0, atol=1e-9, equal_nan=True)


def test_known_columns_are_completed():
    model = made(MIXED)
    known = model.to_sequence(rows(model, 3))[:, :4]
    whole = model.sample(3, prefix=known, generator=torch.Generator().manual_seed(1))
    assert torch.equal(model.to_sequence(whole)[:, :4], known)


def test_the_first_columns_alone_have_the_sum_of_their_terms():
    model = made(GAPS).double()
    x = rows(model, 5)
    x[:, 0] = NAN
    terms = model.to_sequence(model(x).log_prob(x))
    torch.testing.assert_close(model.log_prob(x, lengths=torch.full((5,), 3)), terms[:, :3].sum(1))


def test_what_stands_later_in_the_order_is_not_read_even_where_it_is_no_number():
    model = made(GAPS).double()
    x = rows(model, 5)
    broken = x.clone()
    broken[:, list(model.order[4:])] = torch.tensor([torch.inf, -1e300, NAN, 7.5]).double()
    before, after = (model.to_sequence(model(rows).log_prob(x))[:, :5] for rows in (x, broken))
    assert torch.equal(before, after)


def test_binary_categories_are_the_binary_table():
    """Two logits for each column, of which the difference is the one of MADE."""
    table, binary = (
        TableMADE([Column("categorical", categories=2)] * 4, num_layers=0).double(),
        MADE(4, []).double(),
    )
    with torch.no_grad():
        for parameter in table.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(0))
        weight, bias = (table.output.weight * table.output.mask).view(4, 2, 4, 2), table.output.bias.view(4, 2)
        weight, bias = weight[:, 1] - weight[:, 0], bias[:, 1] - bias[:, 0]
        binary.output.weight.copy_(weight[..., 1] - weight[..., 0])
        binary.output.bias.copy_(bias + weight[..., 0].sum(1))
    x = torch.randint(2, (9, 4), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(table.log_prob(x), binary.log_prob(x))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"columns": []}, "columns"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"num_layers": -1}, "num_layers"),
        ({"components": 0}, "components"),
        ({"dropout": 1.0}, "dropout"),
        ({"order": [0, 0, 1, 2, 3, 4]}, "order"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, named):
    with pytest.raises(ValueError, match=f"^{named}"):
        TableMADE(**({"columns": MIXED, "hidden_size": 4} | arguments))


def test_rows_of_another_width_and_a_context_are_refused():
    model = made(MIXED)
    with pytest.raises(ValueError, match="D = 6"):
        model(torch.zeros(2, 5))
    with pytest.raises(ValueError, match="context"):
        model(torch.zeros(2, 6), torch.zeros(2, 1))
    whole = model.unroll(model.to_sequence(rows(model, 1)), model.initial_state(1))[1]
    with pytest.raises(ValueError, match="nothing follows"):
        model.step(torch.zeros(1), whole)
