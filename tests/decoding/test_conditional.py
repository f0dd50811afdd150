"""Any cell of a table from any others, as enumeration of the joint distribution says."""

from itertools import product

import pytest
import torch

from chainrule.decoding import conditional
from chainrule.decoding._quadrature import integrate, normal_scores
from chainrule.heads import Column, GaussianMixture
from chainrule.models import MADE, TableMADE

COLUMNS = [
    Column("categorical", categories=3),
    Column("real", centre=2.0, scale=3.0, missing=True, atoms=(0.0,)),
    Column("integer", atoms=(1.0, 4.0), scale=2.0, low=0, missing=True),
    Column("categorical", categories=4),
    Column("real", scale=2.0),
    Column("integer", atoms=(0.0, 7.0), scale=60.0, low=0),
]
DISCRETE = [Column("categorical", categories=size) for size in (3, 2, 4, 2)]


def table(columns, order, seed=0, layers=2, direct=True, knots=16):
    torch.manual_seed(seed)
    model = TableMADE(columns, 24, layers, order=order, components=2, direct=direct, knots=knots).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.25 * torch.randn_like(parameter))
    return model.eval()


@pytest.fixture(scope="module")
def mixed():
    model = table(COLUMNS, [3, 1, 0, 5, 4, 2])
    return model, model.sample(4, generator=torch.Generator().manual_seed(1))


def brute(model, row, column, values, log_widths):
    """log p(row without the column), and the probability of each value."""
    rows = row.repeat(len(values), 1)
    rows[:, column] = values
    with torch.no_grad():
        logs = model.log_prob(rows) + log_widths
    return logs.logsumexp(0), logs.softmax(0)


@pytest.mark.parametrize(("layers", "direct"), [(0, True), (1, False), (2, True)])
def test_a_category_is_known_from_all_others_as_enumeration_says(layers, direct):
    model = table(DISCRETE, [2, 0, 3, 1], layers=layers, direct=direct)
    every = torch.tensor(list(product(range(3), range(2), range(4), range(2))), dtype=torch.float64)
    for column, found in enumerate(conditional(model, every, range(4))):
        for index in range(0, len(every), 7):
            values = torch.arange(DISCRETE[column].categories).double()
            evidence, shares = brute(model, every[index], column, values, torch.zeros(len(values)))
            torch.testing.assert_close(found.weights[index], shares, rtol=0, atol=1e-9)
            assert found.log_evidence[index].item() == pytest.approx(evidence.item(), abs=1e-9)
        assert found.draws == 0
        assert found.effective.isinf().all()


@pytest.mark.parametrize("column", [1, 2, 4, 5])
def test_a_number_is_known_from_all_others_as_a_fine_grid_says(mixed, column):
    model, x = mixed
    (found,) = conditional(model, x, [column])
    assert found.error.max() < 1e-5
    for row in (0, 3):
        atoms, about = torch.tensor(COLUMNS[column].atoms, dtype=torch.float64), COLUMNS[column]
        if about.kind == "real":
            grid = torch.linspace(-150, 150, 150_001, dtype=torch.float64) + 1e-7
            values, widths = torch.cat([grid, atoms]), torch.cat([torch.full_like(grid, 0.002), torch.ones_like(atoms)])
        else:
            values = torch.arange(0, 6000).double()
            widths = torch.ones_like(values)
        if about.missing:
            values, widths = (
                torch.cat([part, torch.tensor([last])]) for part, last in ((values, torch.nan), (widths, 1))
            )
        evidence, shares = brute(model, x[row], column, values, widths.log())
        there = ~values.isnan()
        # The grid's own error is of this size: its steps are a few hundredths of the narrowest component.
        assert found.log_evidence[row].item() == pytest.approx(evidence.item(), abs=2e-5)
        assert found.missing[row].item() == pytest.approx(shares[~there].sum().item(), abs=1e-5)
        mean = (shares[there] * values[there]).sum() / shares[there].sum()
        assert found.mean[row].item() == pytest.approx(mean.item(), abs=1e-4 * about.scale)
        order = values[there].argsort()
        below = shares[there][order].cumsum(0) / shares[there].sum()
        for share in (0.1, 0.5, 0.9):
            expected = values[there][order][(below < share).sum()].item()
            assert found.quantile(share)[row].item() == pytest.approx(expected, abs=0.01 * about.scale), share
        for atom in atoms:
            whole = found.weights[row][found.values[row] == atom].sum()
            assert whole.item() == pytest.approx(shares[values == atom].sum().item(), abs=1e-5)


def test_a_wide_range_of_integers_is_summed_like_a_narrow_one(mixed, monkeypatch):
    """An integral stands for the sum; where it finds few integers probable, these are tried one by one."""
    model, x = mixed
    monkeypatch.setattr("chainrule.decoding._cell_points._ENUMERATED", 100_000)
    expected = conditional(model, x[:2], [5])[0]
    assert expected.discrete.all()
    for most in (2000, 400):
        monkeypatch.setattr("chainrule.decoding._cell_points._ENUMERATED", most)
        found = conditional(model, x[:2], [5])[0]
        torch.testing.assert_close(found.log_evidence, expected.log_evidence, rtol=0, atol=1e-4)
        torch.testing.assert_close(found.mean, expected.mean, rtol=0, atol=0.01)
    assert not found.discrete.all()


@pytest.mark.parametrize("knots", [16, 1])
def test_modules_that_must_be_called_give_the_same(mixed, knots):
    model, x = table(COLUMNS, [3, 1, 0, 5, 4, 2], knots=knots), mixed[1]
    plain = conditional(model, x, range(6))
    handle = model.output.register_forward_hook(lambda module, inputs, output: output)
    try:
        for one, other in zip(plain, conditional(model, x, range(6)), strict=True):
            torch.testing.assert_close(one.weights, other.weights, rtol=0, atol=1e-12)
    finally:
        handle.remove()


def test_unknown_cells_that_come_last_have_no_effect():
    model = table(DISCRETE, [2, 0, 3, 1])
    x = torch.tensor([[1.0, 9.0, 2.0, 5.0]], dtype=torch.float64)  # columns 3 and 1 come last
    known = torch.tensor([[False, False, True, False]])
    (found,) = conditional(model, x, [0], known)
    every = torch.tensor([[a, b, 2, c] for a in range(3) for b in range(2) for c in range(2)]).double()
    shares = model.log_prob(every).detach().softmax(0).view(3, -1).sum(1)
    torch.testing.assert_close(found.weights[0], shares, rtol=0, atol=1e-9)
    assert found.draws == 0


def test_several_unknown_cells_are_averaged_over_draws_of_each_other():
    model = table(DISCRETE, [2, 0, 3, 1], seed=3)
    x = torch.tensor([[0.0, 1.0, 0.0, 1.0]] * 40, dtype=torch.float64)
    known = torch.tensor([[False, True, False, True]] * 40)
    every = torch.tensor([[a, 1, b, 1] for a in range(3) for b in range(4)]).double()
    joint = model.log_prob(every).detach().softmax(0).view(3, 4)
    found = conditional(model, x, [0, 2], known, draws=32, generator=torch.Generator().manual_seed(0))
    for one, expected in zip(found, (joint.sum(1), joint.sum(0)), strict=True):
        values = one.values.unflatten(1, (-1, 32))
        assert (values == values[..., :1]).all()  # each category once for each draw
        shares = one.weights.unflatten(1, (-1, 32)).sum(2)
        assert one.draws == 32
        assert (one.effective > 5).all()
        # 40 independent means of 32 distributions: their mean is within a few hundredths.
        torch.testing.assert_close(shares.mean(0), expected, rtol=0, atol=0.03)
    counted = conditional(model, x, [0], known, draws=1, particles=1, generator=torch.Generator().manual_seed(0))[0]
    assert (counted.effective == 1).all()


def test_a_row_with_one_gap_is_exact_beside_a_row_with_several():
    model = table(DISCRETE, [2, 0, 3, 1])
    x = torch.tensor([[0.0, 1.0, 0.0, 1.0]] * 2, dtype=torch.float64)
    known = torch.tensor([[False, True, False, True], [False, True, True, True]])
    both, alone = (conditional(model, x[rows], [0], known[rows])[0] for rows in (slice(0, 2), slice(1, 2)))
    assert both.effective.isinf().tolist() == [False, True]
    for code in range(3):
        share = both.weights[1][both.values[1] == code].sum()
        assert share.item() == pytest.approx(alone.weights[0, code].item(), abs=1e-12)


def test_quantiles_and_the_most_probable_value_of_atoms_and_numbers():
    model = TableMADE([Column("real", atoms=(5.0,), scale=2.0)], 4, 0, components=1).double()
    with torch.no_grad():
        model.output.bias.zero_()
    (found,) = conditional(model, torch.zeros(1, 1), [0])  # half at 5, half normal with a scale of 2.002
    assert found.mean.item() == pytest.approx(2.5, abs=1e-6)
    assert found.mode.item() == 5
    assert found.quantile(0.25).item() == pytest.approx(0.0, abs=1e-3)
    assert found.quantile(0.7).item() == 5
    with torch.no_grad():
        model.output.bias[0] = -9
    (found,) = conditional(model, torch.zeros(1, 1), [0])
    assert found.mode.item() == pytest.approx(0.0, abs=0.3)  # the density is flat there: 1% lower at 0.3
    assert found.quantile(0.9).item() == pytest.approx(1.2816 * 2.002, abs=0.01)


def test_the_distribution_function_inverts_quantiles_and_adds_up_atoms():
    model = TableMADE([Column("real", atoms=(5.0,), scale=2.0)], 4, 0, components=1).double()
    with torch.no_grad():
        model.output.bias.zero_()
    (found,) = conditional(model, torch.zeros(2, 1), [0], tolerance=1e-9)  # half at 5, half normal, scale 2.002
    x = torch.tensor([[-30.0, -2.0, 0.0, 4.9999, 5.0, 30.0], [30.0, 5.0, 0.0, 0.0, -2.0, 4.9999]], dtype=torch.float64)
    normal = torch.distributions.Normal(0.0, 2.002).cdf(x)
    torch.testing.assert_close(found.cdf(x), normal / 2 + 0.5 * (x >= 5), atol=2e-4, rtol=0)
    for share in (0.01, 0.2, 0.45):
        assert found.cdf(found.quantile(share).unsqueeze(1)).flatten().tolist() == pytest.approx([share] * 2)


def test_the_distribution_function_of_categories_is_their_sum():
    model = TableMADE([Column("categorical", categories=3)], 4, 0)
    (found,) = conditional(model, torch.zeros(1, 1), [0])
    x = torch.tensor([[-0.5, 0.0, 0.5, 1.0, 2.0]], dtype=found.values.dtype)
    sums = found.weights.cumsum(1)[0]
    torch.testing.assert_close(found.cdf(x)[0], torch.stack([sums[0] * 0, sums[0], sums[0], sums[1], sums[2]]))


def test_a_peak_far_from_the_distribution_is_found():
    """The mass is at a score of 9, where a normal variable has 1e-19."""

    def integrand(rows, scores):
        return scores, -scores.square() / 2 - 200 * (scores - 9.1).square()

    values, logs, error = integrate(integrand, 2, torch.device("cpu"), 1e-6)
    shares = logs.softmax(1)
    precision = 1 + 400
    assert (shares * values).sum(1)[1].item() == pytest.approx(400 * 9.1 / precision, abs=1e-5)
    exact = -0.5 * 400 / precision * 9.1**2 + 0.5 * torch.tensor(2 * torch.pi / precision).log().item()
    assert logs.logsumexp(1)[0].item() == pytest.approx(exact, abs=1e-5)
    assert error.max() < 1e-5


@pytest.mark.parametrize("normal", [True, False])
def test_scores_of_one_component_are_its_quantiles(normal):
    scores = torch.tensor([-30.0, -3.0, 0.0, 2.0, 30.0], dtype=torch.float64)
    one = torch.zeros(5, 1, dtype=torch.float64)
    found = normal_scores(scores, one, one + 2.0, one + 0.5, normal=normal)
    odds = torch.special.log_ndtr(scores) - torch.special.log_ndtr(-scores)
    torch.testing.assert_close(found, 2.0 + torch.tensor(0.5).exp() * (scores if normal else odds), check_dtype=False)


def test_scores_of_a_mixture_are_its_quantiles():
    draws = torch.Generator().manual_seed(0)
    logits, means, log_scales = torch.randn(3, 200, 4, dtype=torch.float64, generator=draws)
    scores = torch.linspace(-5, 5, 200, dtype=torch.float64)
    found = normal_scores(scores, logits, 3 * means, log_scales, normal=True)
    expected = GaussianMixture(logits, 3 * means, log_scales).icdf(torch.special.ndtr(scores))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)  # icdf counts the upper tail from below


@pytest.mark.parametrize("normal", [True, False])
def test_scores_far_in_the_tails_of_a_mixture_are_its_quantiles(normal):
    """log F(x) = log Φ(v) of the nearer tail, to the last digits; `torch.special.ndtr` is 0 from −10 on."""
    draws = torch.Generator().manual_seed(0)
    logits, means, log_scales = torch.randn(3, 400, 4, dtype=torch.float64, generator=draws)
    scores = torch.linspace(-36, 36, 400, dtype=torch.float64)
    found = normal_scores(scores, logits, 3 * means, log_scales, normal=normal)
    z = scores.sign().unsqueeze(-1) * (3 * means - found.unsqueeze(-1)) / log_scales.exp()
    logs = torch.special.log_ndtr(z) if normal else torch.nn.functional.logsigmoid(z)
    tails = (logits.log_softmax(-1) + logs).logsumexp(-1)
    torch.testing.assert_close(tails, torch.special.log_ndtr(-scores.abs()), rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"columns": [4]}, "columns: expected numbers from 0 to 3, got 4"),
        ({"known": torch.ones(1, 3).bool()}, "known"),
        ({"draws": 0}, "draws"),
        ({"tolerance": 0.0}, "tolerance"),
    ],
)
def test_what_cannot_be_predicted_is_refused(change, message):
    arguments = {"x": torch.zeros(1, 4), "columns": [0]} | change
    with pytest.raises(ValueError, match=message):
        conditional(table(DISCRETE, None), **arguments)


def test_a_model_of_other_data_is_refused():
    with pytest.raises(ValueError, match="expected a model of tables, such as TableMADE, got MADE"):
        conditional(MADE(4, []), torch.zeros(1, 4), [0])


def test_no_rows_are_predicted_as_none():
    (found,) = conditional(table(DISCRETE, None), torch.zeros(0, 4), [2])
    assert found.weights.shape == (0, 4)
