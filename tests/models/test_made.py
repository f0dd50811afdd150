"""MADE behind the contract, in any order, and sampled at the cost of a pass without a difference in value."""

import itertools
from itertools import islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule import Executor
from chainrule.heads import Bernoulli
from chainrule.kernels._made_columns import BLOCK
from chainrule.models import MADE

ORDER = [3, 0, 5, 1, 4, 2]
VARIANTS = {
    "no hidden layer": {"hidden_sizes": []},
    "one hidden layer": {"hidden_sizes": [12]},
    "two hidden layers": {"hidden_sizes": [12, 10]},
    "direct, dropout": {"hidden_sizes": [12], "direct": True, "dropout": 0.3},
    "permuted": {"hidden_sizes": [12], "order": ORDER},
    "permuted, no hidden layer": {"hidden_sizes": [], "order": ORDER},
    "permuted, two hidden layers, direct": {"hidden_sizes": [12, 10], "order": ORDER, "direct": True},
    "too few units to connect every pair": {"hidden_sizes": [3], "order": ORDER},
}
WIDE = {
    "no hidden layer": {"hidden_sizes": []},
    "one hidden layer": {"hidden_sizes": [200]},
    "fewer units than columns": {"hidden_sizes": [40]},
    "two hidden layers, direct": {"hidden_sizes": [150, 60], "direct": True},
    "labels": {"hidden_sizes": [150], "context_size": 4},
    "features, two hidden layers": {"hidden_sizes": [60, 150], "context_size": 4, "direct": True},
}
CONTEXTS = {"labels": torch.tensor([0, 2, 1, 3, 2]), "features, two hidden layers": torch.randn(5, 4)}


def binary(rows, columns, seed=0):
    return torch.randint(2, (rows, columns), generator=torch.Generator().manual_seed(seed))


def wide(name, dtype=torch.float64, columns=2 * BLOCK + 7):
    """A model of several blocks of columns in some order, with shuffled degrees and strong weights; its context."""
    torch.manual_seed(1)
    order = torch.randperm(columns)
    model = MADE(columns, order=order, **WIDE[name]).resampled(torch.Generator().manual_seed(2))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3 if parameter.dim() < 2 else 2 * parameter.shape[1] ** -0.5)
    context = CONTEXTS.get(name)
    return model.to(dtype).eval(), context.to(dtype) if context is not None and context.is_floating_point() else context


def stepped(model, step, x, context):
    sequence, state, x_prev, logits = model.to_sequence(x), model.initial_state(len(x), context), None, []
    for t in range(x.shape[1]):
        conditional, state = step(x_prev, state)
        logits.append(conditional.logits)
        x_prev = sequence[:, t]
    return model.from_sequence(torch.stack(logits, 1))


def recomputed(model, n, context=None, seed=0, **sharpened):
    """A sample by one whole pass for each column."""
    generator, x = torch.Generator().manual_seed(seed), torch.zeros(n, model.num_features)
    for column in model.order.tolist():
        logits = model(x, context).logits[:, column]
        x[:, column] = Bernoulli(logits).filtered(**sharpened).sample(generator=generator).to(x)
    return x


@pytest.mark.parametrize("variant", VARIANTS)
def test_keeps_the_contract(keeps_contract, variant):
    report = keeps_contract(MADE(6, **VARIANTS[variant]), binary(3, 6))
    assert [result.name for result in report.results if not result.applies] == ["padding_invariance"]


@pytest.mark.parametrize("context", [torch.randn(3, 4), torch.tensor([0, 3, 1])], ids=["features", "labels"])
@pytest.mark.parametrize("hidden_sizes", [[], [12], [12, 10]])
def test_keeps_the_contract_with_a_condition(keeps_contract, context, hidden_sizes):
    model = MADE(5, hidden_sizes, [2, 0, 4, 1, 3], context_size=4)
    keeps_contract(model, binary(3, 5), context)


def test_keeps_the_contract_under_drawn_masks(keeps_contract):
    model = MADE(6, [9, 9], direct=True).resampled(torch.Generator().manual_seed(4))
    keeps_contract(model, binary(3, 6))


@pytest.mark.parametrize("hidden_sizes", [[], [3], [3, 2]])
def test_a_single_column_is_a_marginal(hidden_sizes):
    model, every = MADE(1, hidden_sizes).double(), torch.tensor([[0], [1]])
    assert float(model.log_prob(every).exp().sum().detach()) == pytest.approx(1, abs=1e-12)
    torch.testing.assert_close(model.step(None, model.initial_state(2))[0].logits, model(every).logits[:, 0])
    assert model.sample(3).shape == (3, 1)


@given(st.permutations(range(5)), st.lists(st.integers(1, 8), max_size=2), st.booleans(), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_probabilities_of_all_rows_add_up_to_one(order, hidden_sizes, shuffle, seed):
    model = MADE(5, hidden_sizes, order, direct=bool(hidden_sizes)).double()
    model = model.resampled(torch.Generator().manual_seed(seed), None if shuffle else model.order)
    every = torch.tensor(list(itertools.product([0, 1], repeat=5)))
    assert float(model.log_prob(every).exp().sum().detach()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", WIDE)
def test_steps_are_the_pass_across_blocks_of_columns(name):
    model, context = wide(name)
    x = binary(5, model.num_features)
    expected = model(x, context).logits
    for step in (model.step, model.prepare().step):
        torch.testing.assert_close(stepped(model, step, x, context), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("sharpened", [{}, {"temperature": 0.5}, {"temperature": 0.0}])
def test_a_sample_is_the_one_that_full_recomputation_draws(name, sharpened):
    model, context = wide(name)
    drawn = model.sample(5, context, generator=torch.Generator().manual_seed(0), **sharpened)
    assert torch.equal(drawn.float(), recomputed(model, 5, context, **sharpened))


def test_a_sample_by_plain_steps_is_the_same(monkeypatch):
    model, _ = wide("two hidden layers, direct")
    expected = model.sample(5, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(type(model.prepare()), "draws", Executor.draws)
    assert torch.equal(model.sample(5, generator=torch.Generator().manual_seed(0)), expected)


@pytest.mark.parametrize("name", WIDE)
def test_in_float32_steps_stay_within_rounding_of_the_pass(name):
    model, context = wide(name, torch.float32)
    x = binary(5, model.num_features)
    expected = model(x, context).logits
    # Logits are sums of some hundred terms of size 1: their order moves them by a few units of 1e-6.
    torch.testing.assert_close(stepped(model, model.prepare().step, x, context), expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("known", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 7])
def test_known_columns_are_completed_in_the_models_order(known):
    model, _ = wide("two hidden layers, direct")
    x = binary(4, model.num_features, seed=5).double()
    prefix = model.to_sequence(x)[:, :known]
    whole = model.sample(4, prefix=prefix, temperature=0.0)
    assert torch.equal(model.to_sequence(whole)[:, :known], prefix)
    greedy = (model(whole).logits > 0).double()
    assert torch.equal(model.to_sequence(whole)[:, known:], model.to_sequence(greedy)[:, known:])


def test_a_stream_ends_with_the_row_and_leaves_gradients_alone():
    model, _ = wide("one hidden layer")
    model.train()
    stream = model.stream(2, generator=torch.Generator().manual_seed(0))
    drawn = torch.stack(list(islice(stream, 1000)), 1)
    assert torch.equal(model.from_sequence(drawn), model.sample(2, generator=torch.Generator().manual_seed(0)))
    assert torch.is_grad_enabled()
    assert not drawn.requires_grad
    stream = MADE(6, [12]).stream(2)  # whose weights need not be sorted: they are views of parameters
    assert [next(stream).requires_grad for _ in range(3)] == [False] * 3


@pytest.mark.kernel
def test_steps_and_samples_are_computed_under_autocast_as_without_it():
    model, _ = wide("one hidden layer")
    model = model.float()
    expected = model.sample(3, generator=torch.Generator().manual_seed(0))
    plain, _ = model.step(None, model.initial_state(3))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(model.sample(3, generator=torch.Generator().manual_seed(0)), expected)
        conditional, _ = model.step(None, model.initial_state(3))
    assert torch.equal(conditional.logits, plain.logits)


def test_a_step_past_the_last_column_is_refused():
    model = MADE(2, [4])
    state = model.initial_state(1)
    for x_prev in (None, torch.zeros(1)):
        _, state = model.step(x_prev, state)
    with pytest.raises(ValueError, match="nothing follows"):
        model.step(torch.zeros(1), state)


@pytest.mark.kernel
def test_steps_compute_each_unit_once(monkeypatch):
    model, _ = wide("one hidden layer")
    shapes, product = [], torch.addmm
    monkeypatch.setattr(
        torch, "addmm", lambda bias, a, b: (shapes.append((len(a), b.shape[1])), product(bias, a, b))[1]
    )
    stepped(model, model.prepare().step, binary(5, model.num_features), None)
    assert sum(units for rows, units in shapes if rows == 5) == 200  # at each step, for 5 rows of x
    blocks = [units for units, rows in shapes if rows == 5]  # when a block begins: its units, and its columns
    assert sum(blocks) == 200 + model.num_features


def test_lengths_give_the_marginal_of_the_first_columns_in_the_order():
    model = MADE(4, [9], [2, 0, 3, 1]).double()
    x = binary(1, 4)
    others = torch.tensor(list(itertools.product([0, 1], repeat=2)))
    every = x.repeat(4, 1)
    every[:, [3, 1]] = others
    expected = model.log_prob(every).logsumexp(0)
    garbage = x.clone()
    garbage[:, [3, 1]] = 77
    got = model.log_prob(garbage, lengths=torch.tensor([2]))
    torch.testing.assert_close(got[0], expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(model(garbage, lengths=torch.tensor([2])).logits[0, 2], model(x).logits[0, 2])


def test_resampled_masks_share_the_weights_and_leave_the_model_as_it_was():
    model = MADE(6, [12], direct=True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    other = model.resampled(torch.Generator().manual_seed(0))
    assert all(left is right for left, right in zip(model.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not torch.equal(other.order, model.order)
    assert torch.equal(model.resampled(torch.Generator().manual_seed(0), model.order).order, model.order)
    (-other.log_prob(binary(3, 6)).mean()).backward()
    assert model.output.weight.grad is not None


def test_loading_brings_the_masks_that_belong_to_the_weights(keeps_contract):
    model = MADE(6, [12, 8], direct=True).resampled(torch.Generator().manual_seed(0)).double()
    other = MADE(6, [12, 8], ORDER, direct=True).double()
    other.load_state_dict(model.state_dict())
    x = binary(4, 6)
    assert torch.equal(model(x).logits, other(x).logits)
    keeps_contract(other, x)


def test_booleans_integers_and_floats_are_one_x():
    model, x = MADE(6, [12]), binary(4, 6)
    assert torch.equal(model.log_prob(x), model.log_prob(x.bool()))
    assert torch.equal(model.log_prob(x), model.log_prob(x.to(torch.uint8)))
    assert torch.equal(model.log_prob(x), model.log_prob(x.double()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_features": 0}, "num_features: expected an integer >= 1, got 0"),
        ({"hidden_sizes": [4, 0]}, "hidden_sizes: expected an integer >= 1, got 0"),
        ({"order": [0, 1, 1]}, r"order: expected a permutation of 0 to 2, got \[0, 1, 1\]"),
        ({"order": [0, 1]}, "order: expected a permutation"),
        ({"hidden_sizes": [], "direct": True}, "direct: without a hidden layer"),
        ({"context_size": 0}, "context_size"),
        ({"dropout": 1.0}, r"dropout: expected a number in \[0, 1\), got 1.0"),
    ],
)
def test_wrong_options_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        MADE(**{"num_features": 3, "hidden_sizes": [4], **arguments})


X = torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("context_size", "x", "context", "message"),
    [
        (None, torch.zeros(2, 4), None, r"x: expected shape \(B, D\) with D = 3, got \(2, 4\)"),
        (None, torch.full((2, 3), 2), None, "x: expected 0 and 1, got 2"),
        (None, torch.full((2, 3), torch.nan), None, "x: expected 0 and 1, got nan"),
        (None, X, torch.zeros(2), "context: this model is not conditioned"),
        (4, X, None, "context: expected .* got None"),
        (4, X, torch.tensor([0, 4]), r"context: expected \(B,\) labels from 0 to 3, got 0 to 4"),
        (4, X, torch.tensor([0, -1]), "labels from 0 to 3, got -1 to 0"),
        (4, X, torch.zeros(2, 5), r"context: expected shape \(B, 4\), got \(2, 5\)"),
        (4, X, torch.zeros(3, 4), "context: expected 2 rows"),
    ],
)
def test_wrong_input_and_contexts_are_named(context_size, x, context, message):
    with pytest.raises(ValueError, match=message):
        MADE(3, [4], context_size=context_size).log_prob(x, context)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.with_masks(torch.arange(3), [torch.ones(3)]), "one for each unit"),
        (lambda model: model.with_masks(torch.arange(3), [torch.full((4,), 3)]), "integers from 0 to 2"),
        (lambda model: model.sample(2, prefix=torch.tensor([2.0])), "prefix: expected 0 and 1"),
        (lambda model: model.sample(2, prefix=torch.tensor([float("nan")])), "prefix: expected 0 and 1"),
        (lambda model: model.sample(2, prefix=torch.tensor([1.0, 0.5])), "prefix: expected 0 and 1"),
    ],
)
def test_degrees_and_prefixes_that_do_not_fit_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(MADE(3, [4]))


def test_labels_in_eight_bits_are_those_of_wide_ones():
    """In 8 bits 256 is 0, so that no label was below the number of them."""
    model, x = MADE(3, [4], context_size=256), torch.ones(2, 3)
    labels = torch.tensor([255, 0], dtype=torch.uint8)
    torch.testing.assert_close(model.log_prob(x, labels), model.log_prob(x, labels.long()))
