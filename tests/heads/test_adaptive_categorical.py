"""AdaptiveCategorical is a categorical distribution: its clusters change the cost, and nothing else."""

import pytest
import torch

from chainrule._base import AutoregressiveModel
from chainrule.heads import Categorical
from chainrule.heads._categorical import CACHE, picked_log_softmax
from chainrule.heads._computed_categorical import AdaptiveCategorical
from chainrule.models import RecurrentLM

EXACT = {"rtol": 1e-12, "atol": 1e-12}
WIDTHS, SIZES, M = (3, 2), (4, 3), 5  # two clusters after a shortlist of 3: V = 10
STARTS, V = (3, 7), 10


def weights():
    generator = torch.Generator().manual_seed(0)

    def leaf(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    tails = [(leaf(d, M), leaf(n, d), leaf(n)) for d, n in zip(WIDTHS, SIZES, strict=True)]
    return leaf(2, 6, M), (leaf(5, M), leaf(5)), tails


def dense(features, head, tails):
    """log p of every symbol as a product of two probabilities, written down without the class: (..., V)."""
    first = (features @ head[0].t() + head[1]).exp()
    first = first / first.sum(-1, keepdim=True)
    parts = [first[..., :3]]
    for k, (projection, weight, bias) in enumerate(tails):
        inside = (features @ projection.t() @ weight.t() + bias).exp()
        parts.append(first[..., 3 + k, None] * inside / inside.sum(-1, keepdim=True))
    return torch.cat(parts, -1).log()


VALUE = torch.tensor([[0, 9, 3, 6, 2, 7], [5, 5, 1, 8, 4, 0]])


def test_all_probabilities_are_those_of_the_equation_and_add_up_to_one():
    parts = weights()
    distribution = AdaptiveCategorical(*parts)
    expected = dense(*parts)
    torch.testing.assert_close(distribution.logits, expected, **EXACT)
    torch.testing.assert_close(distribution.probs, expected.exp(), **EXACT)
    torch.testing.assert_close(distribution.probs.sum(-1), torch.ones(2, 6).double(), **EXACT)
    torch.testing.assert_close(distribution.entropy(), -(expected.exp() * expected).sum(-1), **EXACT)
    assert distribution.param_shape == (2, 6, V)


@pytest.mark.parametrize(
    "value",
    [VALUE, torch.full_like(VALUE, 1), torch.full_like(VALUE, 5), torch.full_like(VALUE, 9), VALUE % 7],
    ids=["all clusters", "shortlist alone", "first cluster alone", "last cluster alone", "last cluster empty"],
)
def test_log_prob_and_all_its_gradients_are_those_of_the_dense_form(value):
    results = []
    for log_probs in (
        lambda *parts: AdaptiveCategorical(*parts).log_prob(value),
        lambda *parts: dense(*parts).gather(-1, value.unsqueeze(-1)).squeeze(-1),
    ):
        features, head, tails = weights()
        log_prob = log_probs(features, head, tails)
        leaves = [features, *head, *(part for tail in tails for part in tail)]
        (log_prob * torch.arange(1.0, 13.0).view(2, 6)).sum().backward()
        assert all(leaf.grad is not None for leaf in leaves)  # of an empty cluster too: zero, not missing
        results.append([log_prob, *(leaf.grad for leaf in leaves)])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, **EXACT)


def test_a_symbol_outside_the_vocabulary_is_an_error():
    for symbol in (V, -1, -100):
        with pytest.raises(ValueError, match=rf"value: expected symbols in \[0, {V}\), got {symbol}"):
            AdaptiveCategorical(*weights()).log_prob(torch.full((2, 6), symbol))


def chi_square(drawn, log_probs):
    expected = drawn.numel() * log_probs.exp()
    return float(((torch.bincount(drawn.flatten(), minlength=V) - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("shape", [(), (20_000,)])
def test_draws_of_each_row_have_the_frequencies_of_log_prob(shape):
    features, head, tails = (part.detach() if isinstance(part, torch.Tensor) else part for part in weights())
    rows = 0.5 * features[:, 0]
    two = AdaptiveCategorical(rows if shape else rows.expand(20_000, 2, M), head, tails)
    drawn = two.sample(shape, generator=torch.Generator().manual_seed(0))
    assert drawn.shape == (20_000, 2)
    for number, row in enumerate(rows):
        log_probs = dense(row, head, tails).detach()
        assert chi_square(drawn[:, number], log_probs) < 40  # 9 degrees of freedom: exceeded once in 100,000
        # The same draws speak against the distribution with the members of a cluster in another order.
        swapped = log_probs.index_select(0, torch.tensor([0, 1, 2, 6, 5, 4, 3, 7, 8, 9]))
        assert chi_square(drawn[:, number], swapped) > 100


def test_filters_act_on_the_distribution_over_all_symbols():
    distribution, plain = AdaptiveCategorical(*weights()), Categorical(dense(*weights()))
    for asked in ({"temperature": 0.5}, {"top_k": 4}, {"top_p": 0.7}, {"temperature": 0.0}, {"top_k": 9, "top_p": 0.9}):
        # Filtered-out symbols are -inf on both sides.
        torch.testing.assert_close(distribution.filtered(**asked).logits, plain.filtered(**asked).logits, **EXACT)
        filtered = [one.filtered(**asked) for one in (distribution, plain)]
        drawn = [one.sample(generator=torch.Generator().manual_seed(3)) for one in filtered]
        assert torch.equal(*drawn)


def test_a_step_of_one_row_is_drawn_without_scores_of_other_clusters(monkeypatch):
    features, head, tails = weights()
    monkeypatch.setattr(AdaptiveCategorical, "logits", property(lambda self: pytest.fail("all V scores were computed")))
    assert AdaptiveCategorical(features, head, tails).filtered().sample().shape == (2, 6)
    AdaptiveCategorical(features, head, tails).log_prob(VALUE)


def test_steps_put_side_by_side_and_expanded_rows_keep_their_probabilities():
    features, head, tails = weights()
    expected = dense(features, head, tails)
    steps = [AdaptiveCategorical(features[:, t], head, tails) for t in range(6)]
    joined = AdaptiveCategorical.stacked(steps)
    torch.testing.assert_close(joined.log_prob(VALUE), expected.gather(-1, VALUE[..., None])[..., 0], **EXACT)
    other = AdaptiveCategorical(features[:, 5], tuple(part.clone() for part in head), tails)  # weights of another layer
    joined = AdaptiveCategorical.stacked([*steps[:5], other])
    torch.testing.assert_close(joined.log_prob(VALUE), expected.gather(-1, VALUE[..., None])[..., 0], **EXACT)
    expanded = AdaptiveCategorical(features[0, 0], head, tails).expand((3,))
    torch.testing.assert_close(expanded.logits, expected[0, 0].expand(3, V), **EXACT)


def test_half_precision_is_summed_in_float32():
    features, head, tails = weights()
    with torch.autocast("cpu", torch.bfloat16):
        half = AdaptiveCategorical(
            features.detach().float(), [part.float() for part in head], [[p.float() for p in tail] for tail in tails]
        )
        log_prob = half.log_prob(VALUE)
        assert log_prob.dtype == half.logits.dtype == torch.float32
    expected = dense(features, head, tails).gather(-1, VALUE[..., None])[..., 0]
    torch.testing.assert_close(log_prob.double(), expected, rtol=0, atol=0.1)  # eight bits of products
    torch.testing.assert_close(half.probs.sum(-1), torch.ones(2, 6), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda features, head, tails: (features[..., 1:], head, tails), r"features: expected shape \(\.\.\., 5\)"),
        (lambda features, head, tails: (features, (head[0], head[1][1:]), tails), "head: expected weights"),
        (lambda features, head, tails: (features, (head[0][:2], head[1][:2]), tails), "head: .* K = 2"),
        (
            lambda features, head, tails: (features, head, [tails[0], (*tails[1][:2], tails[0][2])]),
            "tails: .* cluster 2",
        ),
    ],
)
def test_shapes_that_do_not_agree_are_named_in_one_line(change, message):
    with pytest.raises(ValueError, match=message) as caught:
        AdaptiveCategorical(*change(*weights()))
    assert "\n" not in str(caught.value)


def test_steps_of_a_model_are_put_side_by_side_as_one_head():
    model = RecurrentLM(6, hidden_size=4, cutoffs=[2])
    found, _ = AutoregressiveModel.unroll(model, torch.zeros(1, 4, dtype=torch.long), model.initial_state(1))
    assert isinstance(found, AdaptiveCategorical)


@pytest.mark.parametrize("shape", [(1, 5), (7, 3), (3, CACHE // 2 + 1), (2, CACHE + 3), (0, 4)])
def test_values_and_gradients_are_those_of_cross_entropy(shape):
    scores = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    value, weight = torch.randint(shape[1], shape[:1]), torch.randn(shape[0], dtype=torch.float64)
    results = []
    for picked in (picked_log_softmax, lambda s, v: -torch.nn.functional.cross_entropy(s, v, reduction="none")):
        scores.grad = None
        output = picked(scores, value)
        (output * weight).sum().backward()
        results.append((output.detach(), scores.grad.clone()))
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain, rtol=0, atol=1e-12)


def test_half_precision_scores_are_summed_in_float32():
    scores = torch.randn(4, 1000).bfloat16().requires_grad_()
    value = torch.randint(1000, (4,))
    output = picked_log_softmax(scores, value)
    assert output.dtype == torch.float32
    torch.testing.assert_close(output, scores.detach().float().log_softmax(1).gather(1, value[:, None])[:, 0])
    output.sum().backward()
    assert scores.grad.dtype == torch.bfloat16
    expected = torch.nn.functional.one_hot(value, 1000) - scores.detach().float().softmax(1)
    torch.testing.assert_close(scores.grad.float(), expected, rtol=1e-2, atol=1e-6)  # 8 bits of mantissa


def test_impossible_symbols_stay_impossible():
    scores = torch.full((2, 3), -torch.inf)
    scores[:, 0] = 1.0
    assert picked_log_softmax(scores, torch.tensor([0, 2])).tolist() == [0.0, -torch.inf]


def test_a_wide_categorical_takes_it_and_changes_no_value(monkeypatch):
    scores, value = torch.randn(2, 3, 50), torch.randint(50, (2, 3))
    plain = Categorical(scores).log_prob(value)
    calls = []
    monkeypatch.setattr("chainrule.heads._categorical.WIDE", 10)
    monkeypatch.setattr(
        "chainrule.heads._categorical.picked_log_softmax",
        lambda *arguments: calls.append(1) or picked_log_softmax(*arguments),
    )
    torch.testing.assert_close(Categorical(scores).log_prob(value), plain, rtol=0, atol=1e-6)
    assert calls


def test_a_narrow_categorical_of_half_precision_scores_is_exact_in_float32_too():
    scores, value = torch.randn(2, 50).bfloat16(), torch.tensor([3, 7])
    expected = scores.float().log_softmax(-1).gather(1, value[:, None])[:, 0]
    assert torch.equal(Categorical(scores).log_prob(value), expected)
