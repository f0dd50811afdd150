"""A classifier of sequences: a normalised answer for each row, from its real elements alone."""

import math

import pytest
import torch
from torch import Tensor

from chainrule.models import SequenceClassifier, SequenceRegressor

POOLINGS = ["last", "mean", "max", "attention"]


def symbols() -> dict[str, Tensor]:
    inputs = torch.randint(7, (5, 6), generator=torch.Generator().manual_seed(0))
    return {"inputs": inputs, "lengths": torch.tensor([6, 3, 0, 1, 6])}


def bags() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randint(7, (5, 6, 4), generator=generator)
    inputs[:, :, 2:][torch.rand(5, 6, 2, generator=generator) < 0.5] = -1
    return {"inputs": inputs, "lengths": torch.tensor([6, 3, 0, 1, 6])}


def frames() -> dict[str, Tensor]:
    inputs = torch.randn(5, 6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    return {"inputs": inputs, "lengths": torch.tensor([6, 3, 0, 1, 6])}


CONTEXTS = {"symbols": symbols, "bags": bags, "frames": frames}


def make(kind: str, **options) -> SequenceClassifier:
    torch.manual_seed(0)
    sizes = {"feature_size": 3} if kind == "frames" else {"vocab_size": 7, "embedding_size": 4}
    return SequenceClassifier(3, **sizes, **({"hidden_size": 5} | options)).double().eval()


WAYS = [("last", "lstm", True), ("attention", "gru", False), ("attention+mean+max+last", "rnn", True)]


@pytest.mark.parametrize(
    ("kind", "pooling", "cell", "bidirectional"),
    [  # each kind of context, and each way to read it; all pairs in `make test-all`
        pytest.param(kind, *way, marks=[pytest.mark.slow] if row != column else [])
        for row, kind in enumerate(CONTEXTS)
        for column, way in enumerate(WAYS)
    ],
)
def test_keeps_the_contract(keeps_contract, kind: str, pooling: str, cell: str, bidirectional: bool) -> None:
    model = make(kind, pooling=pooling, cell=cell, bidirectional=bidirectional, num_layers=2)
    report = keeps_contract(model, torch.arange(5) % 3, CONTEXTS[kind]())
    assert all(result.applies for result in report.results)


@pytest.mark.parametrize(("kind", "junk"), [("symbols", 10**6), ("bags", -5)])
def test_padding_may_hold_no_symbol(kind: str, junk: int) -> None:
    model, context = make(kind, pooling="attention+mean+max+last"), CONTEXTS[kind]()
    past = torch.arange(6) >= context["lengths"].unsqueeze(1)
    spoilt = context | {"inputs": context["inputs"].clone()}
    spoilt["inputs"][past] = junk
    assert torch.equal(model(spoilt).logits, model(context).logits)
    assert torch.equal(model.attend(spoilt), model.attend(context))


def test_every_real_element_can_change_the_answer() -> None:
    for kind in CONTEXTS:
        model, context = make(kind), CONTEXTS[kind]()
        before = model(context).logits
        for step in range(3):  # of the row of length 3
            other = context["inputs"].clone()
            other[1, step] = other[1, step] + 1 if kind == "frames" else (other[1, step].clamp(min=0) + 1) % 7
            after = model(context | {"inputs": other}).logits
            assert not torch.allclose(after[1], before[1])
            assert torch.equal(after[[0, 2, 3, 4]], before[[0, 2, 3, 4]])


def test_an_empty_sequence_is_answered_with_the_prior() -> None:
    prior = [0.5, 0.3, 0.2]
    for pooling in POOLINGS:
        model = make("bags", prior=prior, pooling=pooling)
        torch.nn.init.normal_(model.output.bias)
        probs = model(bags()).probs
        torch.testing.assert_close(probs[2], torch.tensor(prior, dtype=torch.float64), rtol=0, atol=1e-7)
        assert not torch.allclose(probs[1], probs[2])
        for shape in ((2, 0), (2, 0, 1), (2, 0, 3)):
            empty = {"inputs": torch.zeros(shape, dtype=torch.long), "lengths": torch.zeros(2, dtype=torch.long)}
            torch.testing.assert_close(model(empty).probs[0], torch.tensor(prior).double(), rtol=0, atol=1e-7)


def test_a_bag_is_its_symbol_and_the_mean_square_root_of_its_parts() -> None:
    model = make("bags")
    assert model.embedding is not None
    table = model.embedding.weight
    features = model._features(torch.tensor([[[4, 1, 2, -1, 3], [5, -1, -1, -1, -1]]]))
    torch.testing.assert_close(features[0, 0], table[4] + (table[1] + table[2] + table[3]) / 3**0.5)
    torch.testing.assert_close(features[0, 1], table[5])
    lone = torch.tensor([[[4], [5]]])
    torch.testing.assert_close(model(lone).logits, model(lone[:, :, 0]).logits)


def test_symbols_are_left_out_in_training_only_and_their_embedding_is_nothing() -> None:
    model = make("symbols", symbol_dropout=0.5)
    full = {"inputs": symbols()["inputs"]}
    assert torch.equal(model(full).logits, model(full).logits)
    model.train()
    torch.manual_seed(0)
    features = model._features(torch.zeros(100, 100, dtype=torch.long))
    gone = (features == 0).all(2).double().mean()
    assert abs(gone - 0.5) < 0.02  # of 10,000: three standard deviations and more
    assert model.embedding is not None
    assert (model.embedding.weight[-1] == 0).all()


def test_the_row_of_nothing_is_never_trained() -> None:
    for kind in ("symbols", "bags"):
        model = make(kind, symbol_dropout=0.5).train()
        torch.manual_seed(0)
        model.log_prob(torch.zeros(5, dtype=torch.long), CONTEXTS[kind]()).sum().backward()
        assert model.embedding is not None
        assert model.embedding.weight.grad is not None
        assert (model.embedding.weight.grad[-1] == 0).all()


def test_the_start_from_counts_is_the_log_ratio_of_naive_bayes() -> None:
    model = SequenceClassifier(2, vocab_size=3, embedding_size=5, hidden_size=2).double()
    assert model.embedding is not None
    before = model.embedding.weight.detach().clone()
    model.start_from_counts(torch.tensor([[0, 4], [1, 1], [3, 0]]), scale=0.5)
    good, bad = torch.tensor([5.0, 2.0, 1.0]) / 8, torch.tensor([1.0, 2.0, 4.0]) / 7
    expected = 0.5 * (good / bad).log().double()
    torch.testing.assert_close(model.embedding.weight[:3, :2], torch.stack([-expected, expected], 1), atol=1e-6, rtol=0)
    assert torch.equal(model.embedding.weight[:, 2:], before[:, 2:])
    assert (model.embedding.weight[3] == 0).all()
    with pytest.raises(ValueError, match=r"counts: expected shape \(V, C\) = \(3, 2\), got \(2, 2\)"):
        model.start_from_counts(torch.zeros(2, 2))
    with pytest.raises(ValueError, match="two features for each label"):
        make("frames").start_from_counts(torch.zeros(7, 3))


def test_attention_weights_sum_to_one_over_real_elements() -> None:
    model, context = make("symbols"), symbols()
    weights = model.attend(context)
    torch.testing.assert_close(weights.sum(1), torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0], dtype=torch.float64))
    assert (weights[1, 3:] == 0).all()
    with pytest.raises(ValueError, match="pooling: expected a model with attention, got one with mean"):
        make("symbols", pooling="mean").attend(context)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "expected one of them, of symbols or of frames, got neither"),
        ({"vocab_size": 3, "feature_size": 3}, "got both"),
        ({"vocab_size": 3, "hidden_size": 0}, "hidden_size: expected an integer >= 1, got 0"),
        ({"vocab_size": 3, "dropout": 1.0}, r"dropout: expected a number in \[0, 1\), got 1.0"),
        ({"vocab_size": 3, "cell": "elman"}, "cell: expected one of lstm, gru, rnn, transformer, got 'elman'"),
        ({"vocab_size": 3, "pooling": "mean+mean"}, "pooling: expected one or more of last, mean, max, attention"),
        ({"vocab_size": 3, "pooling": "median"}, "pooling: expected one or more"),
        ({"vocab_size": 3, "prior": [0.5, 0.2]}, "prior: expected 2 positive probabilities that sum to 1"),
    ],
)
def test_arguments_are_checked(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SequenceClassifier(2, **options)


def test_contexts_are_checked() -> None:
    with pytest.raises(ValueError, match="context: expected the sequences"):
        make("symbols").log_prob(torch.zeros(2, dtype=torch.long))
    with pytest.raises(ValueError, match=r"context: expected integers \(B, T\)"):
        make("symbols")(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"context: expected features \(B, T, 3\)"):
        make("frames")(torch.zeros(2, 3, 4))
    with pytest.raises(ValueError, match="lengths: expected None"):
        make("symbols").log_prob(torch.zeros(5, dtype=torch.long), symbols(), torch.ones(5, dtype=torch.long))


@pytest.mark.parametrize("kind", ["symbols", "bags"])
def test_the_answer_with_ngrams_is_the_mean_of_both_classifiers(kind: str) -> None:
    model, context = make(kind, ngram_order=2), CONTEXTS[kind]()
    assert model.ngrams is not None
    torch.nn.init.normal_(model.ngrams.table.weight.data[:-1])
    labels = torch.tensor([0, 1, 2, 0, 1])
    inputs = context["inputs"] if kind == "symbols" else context["inputs"][:, :, 0]
    counted = model.ngrams(inputs, context["lengths"]).softmax(1)
    ngrams, model.ngrams = model.ngrams, None
    network = model(context).probs
    model.ngrams = ngrams
    torch.testing.assert_close(model(context).probs[3:], ((network + counted) / 2)[3:])
    torch.testing.assert_close(model(context).probs[2], model.log_prior.double().exp())  # an empty row: the prior
    each = torch.stack([probs.gather(1, labels.unsqueeze(1)).squeeze(1).log() for probs in (network, counted)])
    real = context["lengths"] > 0
    torch.testing.assert_close(model.training_objective(labels, context)[real], each.mean(0)[real])
    torch.testing.assert_close(model.log_prob(labels, context)[real], each.exp().mean(0).log()[real])


def test_ngrams_of_frames_are_refused_and_may_be_of_fewer_symbols() -> None:
    with pytest.raises(ValueError, match="ngram_order: expected 0 of frames"):
        make("frames", ngram_order=2)
    ngrams = make("bags", ngram_order=1, ngram_symbols=5).ngrams
    assert ngrams is not None
    assert len(ngrams.table.weight) == 6


def test_no_elements_without_lengths_are_empty_sequences() -> None:
    model = make("symbols")
    torch.nn.init.ones_(model.output.bias[:1])
    told = model({"inputs": torch.zeros(2, 0, dtype=torch.long), "lengths": torch.zeros(2, dtype=torch.long)})
    assert torch.equal(model(torch.zeros(2, 0, dtype=torch.long)).logits, told.logits)


@pytest.mark.parametrize("shape", [(5, 1), (1,), ()])
@pytest.mark.parametrize("ngram_order", [0, 2])
def test_labels_are_one_for_each_row(ngram_order: int, shape: tuple[int, ...]) -> None:
    model = make("symbols", ngram_order=ngram_order)
    for method in (model.log_prob, model.training_objective):
        with pytest.raises(ValueError, match=r"x: expected labels \(B,\) = \(5,\), one for each row, got"):
            method(torch.ones(shape, dtype=torch.long), symbols())


def test_its_log_likelihood_is_the_squared_error():
    model, x, y = SequenceRegressor(2, num_outputs=3, hidden_size=4), torch.randn(5, 6, 2), torch.randn(5, 3)
    error = (y - model(x).mean).square().sum(1)
    torch.testing.assert_close(model.log_prob(y, x), -error - 1.5 * math.log(math.pi))


def test_single_answers_need_no_axis_of_their_own():
    model, x, y = SequenceRegressor(2, hidden_size=4), torch.randn(5, 6, 2), torch.randn(5, 1)
    assert torch.equal(model.log_prob(y.squeeze(1), x), model.log_prob(y, x))


def test_it_learns_a_sum_over_time():
    model = SequenceRegressor(1, hidden_size=16, cell="gru")
    random = torch.Generator().manual_seed(0)
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(150):
        x = torch.rand(32, 6, 1, generator=random)
        optimiser.zero_grad()
        (-model.log_prob(x.sum(1), x).mean()).backward()
        optimiser.step()
    x = torch.rand(200, 6, 1, generator=random)
    error = (model(x).mean - x.sum(1)).square().mean().sqrt().item()
    assert error < 0.25  # their standard deviation is 0.71


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda model: model(torch.zeros(3, 6, 1)), "context"),
        (lambda model: model(None), "context"),
        (lambda model: model.log_prob(torch.zeros(1, 3), torch.zeros(3, 6, 2)), "x"),
        (lambda model: model.log_prob(torch.zeros(3), torch.zeros(3, 6, 2), torch.ones(3)), "lengths"),
        (lambda model: SequenceRegressor(2, num_outputs=0), "num_outputs"),
        (lambda model: SequenceRegressor(0), "input_size"),
    ],
)
def test_what_cannot_be_is_named(call, named):
    with pytest.raises(ValueError, match=f"^{named}"):
        call(SequenceRegressor(2, hidden_size=4))
