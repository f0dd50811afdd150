"""A model that learns while it reads: each element is scored before it is learnt; the model itself stays as it is."""

import copy

import pytest
import torch

from chainrule.models import NgramLM, RecurrentLM, TransformerLM
from chainrule.state import detach
from chainrule.training import DynamicEvaluator


def lstm():
    torch.manual_seed(0)
    return RecurrentLM(vocab_size=6, hidden_size=8, embedding_size=4, dropout=0.5, ngram_order=2, tie_weights=False)


def transformer():
    torch.manual_seed(0)
    return TransformerLM(vocab_size=6, model_size=8, num_layers=1, num_heads=2, context_length=32, dropout=0.5)


MODELS = pytest.mark.parametrize("make", [lstm, transformer])


@MODELS
def test_a_later_element_changes_no_earlier_score(make):
    model = make()
    x = torch.randint(6, (2, 60), generator=torch.Generator().manual_seed(1))
    before = DynamicEvaluator(model, rate=0.01, chunk_length=8).read(x)
    for place in (3, 16, 42, 59):
        changed = x.clone()
        changed[:, place] = (x[:, place] + 1) % 6
        after = DynamicEvaluator(model, rate=0.01, chunk_length=8).read(changed)
        assert torch.equal(after[:, :place], before[:, :place])
        assert not torch.equal(after[:, place], before[:, place])


@MODELS
def test_what_was_scored_is_learnt(make):
    x = torch.tensor([[0, 1, 2, 3, 4, 5] * 40])
    nats = DynamicEvaluator(make(), rate=0.01, chunk_length=8).read(x)
    assert nats[:, -60:].mean() < 0.8 * nats[:, :60].mean()


@MODELS
def test_rate_zero_is_plain_scoring(make):
    model = make().eval()
    x = torch.randint(6, (3, 50), generator=torch.Generator().manual_seed(2))
    nats = DynamicEvaluator(model, rate=0, chunk_length=16).read(x)
    assert nats.sum(1) == pytest.approx(-model.log_prob(x).detach(), rel=1e-6)


@MODELS
def test_the_model_stays_as_it_is(make):
    model = make()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    DynamicEvaluator(model, rate=0.1, chunk_length=8).read(torch.randint(6, (1, 40)))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training
    assert all(weight.grad is None for weight in model.parameters())


def test_where_a_text_is_cut_between_chunks_changes_nothing():
    x = torch.randint(6, (1, 48), generator=torch.Generator().manual_seed(3))
    evaluator = DynamicEvaluator(lstm(), rate=0.01, chunk_length=8)
    parts = [evaluator.read(part) for part in (x[:, :16], x[:, 16:])]
    assert torch.equal(torch.cat(parts, 1), DynamicEvaluator(lstm(), rate=0.01, chunk_length=8).read(x))


def test_a_step_is_the_written_equation():
    model = RecurrentLM(vocab_size=4, hidden_size=3)
    x, rate = torch.tensor([[0, 1, 3, 2, 2, 1]]), 0.02
    evaluator = DynamicEvaluator(model, rate=rate, decay=0.25, chunk_length=3)
    evaluator.read(x)

    twin = copy.deepcopy(model)
    weights, trained = list(twin.parameters()), [weight.detach() for weight in model.parameters()]
    squares, state, previous = [0.0] * len(weights), model.initial_state(1), None
    for i, chunk in enumerate(x.split(3, 1), 1):
        conditionals, state = twin.unroll(chunk, state, previous)
        gradients = torch.autograd.grad(-conditionals.log_prob(chunk).sum() / 3, weights)
        squares = [v + (g**2 - v) / i for v, g in zip(squares, gradients, strict=True)]
        with torch.no_grad():
            for weight, start, g, v in zip(weights, trained, gradients, squares, strict=True):
                weight += 0.25 * (start - weight) - rate * i / 20 * g / (v.sqrt() + 1e-5)
        state, previous = detach(state), chunk[:, -1]
    for learnt, expected, start in zip(evaluator._model.parameters(), weights, trained, strict=True):
        torch.testing.assert_close(learnt, expected, rtol=1e-4, atol=1e-6)
        assert not torch.equal(learnt, start)


@MODELS
def test_padding_may_hold_anything(make):
    """Of several rows read together: -1 is no symbol, and was refused."""
    x, lengths = torch.randint(6, (3, 9), generator=torch.Generator().manual_seed(1)), torch.tensor([9, 4, 0])
    real = torch.arange(9) < lengths[:, None]
    found = [DynamicEvaluator(make(), rate=0.01).read_rows(x.where(real, fill), lengths) for fill in (0, -1, 5)]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    assert not found[1][~real].any()
    with pytest.raises(ValueError, match="lengths"):
        DynamicEvaluator(make()).read_rows(x, torch.tensor([9, 4]))


@pytest.mark.parametrize("wrong", [{"rate": -1.0}, {"rate": float("nan")}, {"decay": 1.5}, {"chunk_length": 0}])
def test_arguments_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        DynamicEvaluator(lstm(), **wrong)


def test_a_model_that_diverges_is_said_to():
    with pytest.raises(ValueError, match="rate: expected a smaller number, got 1e\\+38"):
        DynamicEvaluator(lstm(), rate=1e38, chunk_length=4).read(torch.randint(6, (1, 80)))


def test_sequences_without_elements_and_models_without_weights():
    x = torch.zeros(2, 0, dtype=torch.long)
    assert DynamicEvaluator(RecurrentLM(3, hidden_size=4)).read(x).shape == (2, 0)
    with pytest.raises(ValueError, match="model: expected weights to learn, got NgramLM"):
        DynamicEvaluator(NgramLM.fit(torch.randint(4, (60,)), 4, 3))
