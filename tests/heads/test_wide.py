"""The likelihood over a wide vocabulary against the plain one."""

import pytest
import torch

from chainrule.heads import Categorical
from chainrule.heads._categorical import CACHE, picked_log_softmax


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
