"""Whole samples of a MADE by a compiled loop: the symbols, noise and errors of the draws of single columns."""

import itertools

import pytest
import torch
from scipy.stats import chisquare

from chainrule.kernels import _made_columns
from chainrule.kernels._made_columns import BLOCK, Columns
from chainrule.models import MADE

pytest.importorskip("numba")
COLUMNS = 2 * BLOCK + 7
MODELS = {
    "no hidden layer": {"hidden_sizes": []},
    "one hidden layer": {"hidden_sizes": [200]},
    "fewer units than columns": {"hidden_sizes": [40]},
    "two hidden layers, direct": {"hidden_sizes": [150, 60], "direct": True},
    "three hidden layers": {"hidden_sizes": [90, 200, 140]},
    "labels": {"hidden_sizes": [150], "context_size": 4},
    "features": {"hidden_sizes": [60, 150], "context_size": 4, "direct": True},
}


def made(name, columns=COLUMNS):
    """A model in some order with shuffled degrees and strong weights."""
    torch.manual_seed(1)
    model = MADE(columns, order=torch.randperm(columns), **MODELS[name]).resampled(torch.Generator().manual_seed(2))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3 if parameter.dim() < 2 else 2 * parameter.shape[1] ** -0.5)
    return model.double().eval()


def condition(name, rows):
    generator = torch.Generator().manual_seed(4)
    if name == "labels":
        return torch.randint(4, (rows,), generator=generator)
    return torch.randn(rows, 4, generator=generator).double() if name == "features" else None


def drawn(model, n, many, monkeypatch, **options):
    """A sample that the loop draws from `many` columns on, and the generator's state at the end."""
    monkeypatch.setattr(_made_columns, "MANY", many)
    generator = torch.Generator().manual_seed(3)
    return model.sample(n, generator=generator, **options).tolist(), generator.get_state().tolist()


def loop_ran(model, monkeypatch, **options) -> bool:
    """Whether the loop draws a sample."""
    rows, calls = Columns.rows, []
    monkeypatch.setattr(Columns, "rows", lambda *a: calls.append(a) or rows(*a))
    drawn(model, 2, 1, monkeypatch, **options)
    return bool(calls)


@pytest.mark.parametrize("n", [1, 5, 260])
@pytest.mark.parametrize("name", MODELS)
def test_a_sample_is_the_same_from_the_same_noise(name, n, monkeypatch):
    model, options = made(name), {"context": condition(name, n)}
    assert drawn(model, n, 1, monkeypatch, **options) == drawn(model, n, 10**6, monkeypatch, **options)
    assert loop_ran(model, monkeypatch, context=condition(name, 2))


@pytest.mark.parametrize("known", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, COLUMNS - 1, COLUMNS])
def test_known_columns_are_read_and_kept(known, monkeypatch):
    model = made("two hidden layers, direct")
    prefix = torch.randint(2, (5, known), generator=torch.Generator().manual_seed(5))
    got, wanted = (drawn(model, 5, many, monkeypatch, prefix=prefix) for many in (1, 10**6))
    assert got == wanted
    assert model.to_sequence(torch.tensor(got[0]))[:, :known].tolist() == prefix.tolist()


def test_without_a_generator_the_global_one_is_used_as_before(monkeypatch):
    model, samples = made("one hidden layer"), []
    for many in (1, 10**6):
        monkeypatch.setattr(_made_columns, "MANY", many)
        torch.manual_seed(9)
        samples.append((model.sample(3).tolist(), torch.rand(1).item()))
    assert samples[0] == samples[1]


def test_another_default_device_changes_nothing(monkeypatch):
    model = made("one hidden layer")
    wanted = drawn(model, 4, 1, monkeypatch)
    with torch.device("meta"):
        assert loop_ran(model, monkeypatch)
        assert drawn(model, 4, 1, monkeypatch) == wanted


def test_draws_in_float32_have_the_probabilities_of_the_model(monkeypatch):
    monkeypatch.setattr(_made_columns, "MANY", 1)
    torch.manual_seed(0)
    model = MADE(4, [9, 7], [2, 0, 3, 1], direct=True)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    every = torch.tensor(list(itertools.product([0, 1], repeat=4)))
    rows = model.sample(20_000, generator=torch.Generator().manual_seed(0)).long()
    counts = (rows * torch.tensor([8, 4, 2, 1])).sum(1).bincount(minlength=16)
    expected = model.log_prob(every).double().softmax(0).detach()
    assert expected.min() > 1e-3
    assert chisquare(counts, expected * len(rows)).pvalue > 1e-4


@pytest.mark.parametrize("name", ["no hidden layer", "two hidden layers, direct", "three hidden layers"])
def test_log_probabilities_in_float32_are_those_of_the_pass(name, monkeypatch):
    from chainrule.kernels import _compiled_made

    monkeypatch.setattr(_made_columns, "MANY", 1)
    model, draw_block, logits = made(name).float(), _compiled_made.draw_block, []

    def watched(*arguments):
        wrong = draw_block(*arguments)
        logits.append(torch.from_numpy(arguments[5]))
        return wrong

    monkeypatch.setattr(_compiled_made, "draw_block", watched)
    x = model.sample(7, generator=torch.Generator().manual_seed(0))
    expected = model.to_sequence(model(x).logits).detach()
    got = torch.cat(logits).t()
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    value = model.to_sequence(x)
    own, wanted = (torch.distributions.Bernoulli(logits=part).log_prob(value) for part in (got, expected))
    torch.testing.assert_close(own, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layer", ["hidden", "output"])
def test_weights_of_no_distribution_raise(layer, monkeypatch):
    monkeypatch.setattr(_made_columns, "MANY", 1)
    model = made("one hidden layer")
    (model.hidden[0] if layer == "hidden" else model.output).bias.data[30] = float("nan")
    with pytest.raises(ValueError, match="NaN or infinite"):
        model.sample(3)


@pytest.mark.parametrize(
    "options", [{"temperature": 0.5}, {"temperature": 0}, {"top_k": 1}, {"top_p": 0.7}, {"eos": 1}]
)
def test_filters_and_ends_are_obeyed_by_single_columns(options, monkeypatch):
    model = made("one hidden layer")
    assert not loop_ran(model, monkeypatch, **options)
    assert drawn(model, 3, 1, monkeypatch, **options) == drawn(model, 3, 10**6, monkeypatch, **options)


def test_single_columns_are_drawn_where_the_loop_may_not(without_loops, monkeypatch):
    model = made("one hidden layer").float()
    assert loop_ran(model, monkeypatch)
    with without_loops(model, model.hidden[0]):
        assert not loop_ran(model, monkeypatch)


def test_few_columns_do_not_load_numba(monkeypatch):
    monkeypatch.setattr(_made_columns, "compiled_loops", lambda like: pytest.fail("compiled"))
    many = _made_columns.MANY
    model = MADE(many, [4])
    model.sample(1, prefix=torch.zeros(1))
    with pytest.raises(pytest.fail.Exception):
        model.sample(1)
