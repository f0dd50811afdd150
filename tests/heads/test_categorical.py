"""Categorical is torch's, drawn from an explicit generator and cut for sampling as brute force would."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chainrule.heads import Bernoulli, Categorical
from chainrule.models import RecurrentLM

LOGITS = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
scores = st.lists(st.integers(-400, 400), min_size=1, max_size=6).map(lambda values: torch.tensor(values).double() / 64)


@pytest.mark.parametrize("name", ["logits", "probs", "mode", "mean", "variance", "param_shape", "batch_shape"])
def test_its_attributes_are_those_of_torch(name):
    ours, theirs = (getattr(kind(logits=LOGITS), name) for kind in (Categorical, torch.distributions.Categorical))
    if isinstance(theirs, torch.Tensor):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12, equal_nan=True)
    else:
        assert ours == theirs


def test_log_prob_and_entropy_and_their_gradients_are_those_of_torch():
    value = torch.randint(5, (2, 3))
    for method in (lambda kind: kind.log_prob(value), lambda kind: kind.entropy()):
        results = []
        for kind in (Categorical, torch.distributions.Categorical):
            logits = LOGITS.clone().requires_grad_()
            result = method(kind(logits=logits))
            (gradient,) = torch.autograd.grad((result * torch.arange(6.0).view(2, 3)).sum(), logits)
            results.append((result, gradient))
        torch.testing.assert_close(*(values for values, _ in results), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(*(gradient for _, gradient in results), rtol=1e-12, atol=1e-12)


def test_impossible_symbols_have_probability_zero_and_are_not_drawn():
    die = Categorical(torch.tensor([0.0, -torch.inf, 1.0]))
    assert die.log_prob(torch.tensor(1)) == -torch.inf
    assert 1 not in die.sample((1000,))
    assert all(die.sample() != 1 for _ in range(200))


def test_scores_far_from_zero_are_no_trouble():
    die = Categorical(torch.tensor([1e30, 1e30, -1e30]))
    torch.testing.assert_close(die.log_prob(torch.tensor([0, 1])), torch.full((2,), -math.log(2)))


@pytest.mark.parametrize("shape", [(), (20_000,)])
def test_draws_have_the_frequencies_of_log_prob(shape):
    row = torch.tensor([0.1, 2.0, -1.0, 0.5])
    die = Categorical(row if shape else row.expand(20_000, 4))
    counts = torch.bincount(die.sample(shape, generator=torch.Generator().manual_seed(0)), minlength=4).double()
    expected = 20_000 * row.softmax(0).double()
    assert ((counts - expected) ** 2 / expected).sum() < 24  # chi-square, 3 degrees: exceeded once in 40,000


def test_rows_of_a_batch_are_drawn_independently_and_each_from_its_own_scores():
    die = Categorical(torch.tensor([[50.0, 0.0], [0.0, 50.0], [0.0, 0.0]]))
    drawn = die.sample((500,))
    assert (drawn[:, 0] == 0).all()
    assert (drawn[:, 1] == 1).all()
    assert 150 < drawn[:, 2].sum() < 350


@given(scores, st.floats(0.1, 5))
def test_temperature_raises_probabilities_to_a_power(row, temperature):
    power = row.softmax(0) ** (1 / temperature)
    torch.testing.assert_close(Categorical(row).filtered(temperature).probs, power / power.sum())


@given(scores)
def test_temperature_zero_keeps_the_first_of_the_most_probable(row):
    assert Categorical(row).filtered(0.0).probs.tolist() == [float(i == int(row.argmax())) for i in range(len(row))]


@given(scores, st.integers(1, 8))
def test_top_k_keeps_the_k_most_probable(row, k):
    probs = Categorical(row).filtered(top_k=k).probs
    kept = probs > 0
    assert int(kept.sum()) == min(k, len(row))
    if not kept.all():
        assert row[kept].min() >= row[~kept].max()
    expected = row.softmax(0) * kept
    torch.testing.assert_close(probs, expected / expected.sum())


@given(scores, st.floats(0.01, 0.99))
def test_top_p_keeps_the_smallest_set_that_reaches_p(row, p):
    probs = row.softmax(0)
    kept = Categorical(row).filtered(top_p=p).probs > 0
    reached = [
        (len(chosen), -float(probs[list(chosen)].sum()))
        for size in range(1, len(row) + 1)
        for chosen in itertools.combinations(range(len(row)), size)
        if float(probs[list(chosen)].sum()) >= p - 1e-12
    ]
    size, mass = min(reached)
    assert abs(int(kept.sum()) - size) <= (1 if abs(-mass - p) < 1e-9 else 0)  # a sum that equals p but for rounding
    assert float(probs[kept].sum()) >= p - 1e-12
    if not kept.all():
        assert probs[kept].min() >= probs[~kept].max() - 1e-15


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 8))
def test_of_equals_the_filters_keep_the_first(row, k):
    """topk keeps any of several equals: top_k=1 was another symbol than temperature=0."""
    row = torch.tensor(row).float()
    greedy = Categorical(row).filtered(0.0).probs
    assert torch.equal(Categorical(row).filtered(top_k=1).probs, greedy)
    assert torch.equal(Categorical(row).filtered(top_p=1e-9).probs, greedy)
    kept = Categorical(row).filtered(top_k=k).probs.nonzero().squeeze(1).tolist()
    assert kept == sorted(sorted(range(len(row)), key=lambda v: (-row[v], v))[:k])


@pytest.mark.parametrize(
    "filters",
    [{"temperature": 0}, {"top_k": 1}, {"top_p": 1e-9}, {"temperature": 9e9, "top_k": 1}],
)
def test_scores_that_become_equal_when_normalised_keep_their_order(filters):
    row = torch.tensor([1e-9, 2e-9, 9e-9, 9e-9, -1.0]).repeat(2, 1)
    assert row.log_softmax(1)[0, :4].unique().numel() == 1
    assert Categorical(row).filtered(**filters).probs.argmax(1).tolist() == [2, 2]
    assert int((Categorical(row).filtered(**filters).probs > 0).sum()) == 2
    assert Categorical(row).filtered(temperature=1e-12).probs.tolist() == [[0, 0, 0.5, 0.5, 0]] * 2


def test_filters_apply_one_after_the_other():
    row = torch.tensor([3.0, 2.0, 1.0, 0.0])
    both = Categorical(row).filtered(0.5, 3, 0.95)
    assert torch.equal(both.logits, Categorical(row).filtered(0.5).filtered(top_k=3).filtered(top_p=0.95).logits)
    assert (both.probs > 0).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -1.0}, "temperature: expected a number >= 0"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"temperature": 10**400}, "temperature"),  # a float cannot hold it
        ({"top_k": 0}, "top_k: expected an integer >= 1, got 0"),
        ({"top_p": 0.0}, r"top_p: expected a number in \(0, 1\], got 0.0"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_p": math.nan}, "top_p"),
    ],
)
def test_filters_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Categorical(LOGITS).filtered(**arguments)


@pytest.mark.parametrize("logits", [torch.tensor(1.0), torch.zeros(2, 0)])
def test_scores_of_no_symbol_are_refused(logits):
    with pytest.raises(ValueError, match="logits: expected shape"):
        Categorical(logits)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("symbol", [-100, -1, 5, 2**62])
def test_no_symbol_outside_the_support_has_a_probability(symbol, wide, monkeypatch):
    """Cross-entropy leaves out the target -100: its probability was 1."""
    monkeypatch.setattr("chainrule.heads._categorical.WIDE", 0 if wide else 2**20)
    with pytest.raises(ValueError, match=rf"value: expected symbols in \[0, 5\), got {symbol}: mask padding"):
        Categorical(LOGITS).log_prob(torch.full((2, 3), symbol))


@pytest.mark.parametrize("wide", [False, True])
def test_a_fraction_is_no_symbol_and_a_whole_number_is(wide, monkeypatch):
    """0.5 was truncated to 0: the likelihood of a waveform in [-1, 1] was that of silence."""
    monkeypatch.setattr("chainrule.heads._categorical.WIDE", 0 if wide else 2**20)
    value = torch.randint(5, (2, 3))
    torch.testing.assert_close(Categorical(LOGITS).log_prob(value.float()), Categorical(LOGITS).log_prob(value))
    with pytest.raises(ValueError, match=r"value: expected integers in \[0, 5\), got 0\.5: quantise"):
        Categorical(LOGITS).log_prob(torch.full((2, 3), 0.5))
    for other in (torch.nan, -torch.inf, torch.inf, -0.5, 4.5):
        with pytest.raises(ValueError, match=r"value: expected (integers|symbols) in \[0, 5\), got"):
            Categorical(LOGITS).log_prob(torch.full((2, 3), other))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1e-30, 1e-39, 1e-40, 1e-45, 1e-300, 5e-324])
def test_a_temperature_next_to_zero_is_greedy(temperature, dtype):
    """Below the smallest float32 everything became -inf / -inf, and the least likely symbol was drawn."""
    scores = torch.tensor([[0.1, 0.7, -torch.inf, 0.2], [-3.0, -9.0, -2.0, -4.0]]).to(dtype)
    assert Categorical(scores).filtered(temperature).probs.tolist() == [[0, 1, 0, 0], [0, 0, 1, 0]]
    assert Categorical(scores).filtered(temperature, top_k=2, top_p=0.9).sample().tolist() == [1, 2]


@pytest.mark.parametrize("temperature", [1e39, 1e300, 10**30, 10**300])  # tensors take no integers beyond 64 bits
def test_a_temperature_beyond_float32_is_uniform_over_what_is_possible(temperature):
    probs = Categorical(torch.tensor([0.0, 5.0, -torch.inf])).filtered(temperature).probs
    assert probs.tolist() == [0.5, 0.5, 0.0]


def test_no_draws_have_their_shape():
    assert Categorical(torch.zeros(2, 3)).sample((0,)).shape == (0, 2)


@pytest.mark.parametrize(
    "make", [lambda: Categorical(torch.tensor([0.2, 0.3, 0.5]).log()), lambda: Bernoulli(torch.tensor([-3.0, 2.0]))]
)
def test_the_smallest_top_p_keeps_the_likeliest_symbol(make):
    head = make()
    kept = head.filtered(top_p=1e-300)
    torch.testing.assert_close(kept.probs, head.filtered(temperature=0.0).probs)


def test_symbols_of_a_narrow_type_are_those_of_a_wide_one():
    """In uint8 the number of symbols, 300, was 44: most of them were refused."""
    head = Categorical(torch.randn(2, 300))
    symbols = torch.tensor([200, 45])
    assert torch.equal(head.log_prob(symbols.to(torch.uint8)), head.log_prob(symbols))
    adaptive = RecurrentLM(300, hidden_size=4, cutoffs=[10, 20])
    assert torch.equal(adaptive.log_prob(symbols[None].to(torch.uint8)), adaptive.log_prob(symbols[None]))


def test_rows_with_generators_of_their_own_are_drawn_as_alone():
    logits = torch.randn(5, 300)

    def seeded():
        return [torch.Generator().manual_seed(seed) for seed in (3, 1, 4, 1, 5)]

    together = Categorical(logits).sample_rows(seeded())
    rows = zip(logits, seeded(), strict=True)
    assert together.tolist() == [Categorical(row).sample(generator=own).item() for row, own in rows]
    with pytest.raises(ValueError):
        Categorical(logits).sample_rows(seeded()[:2])
