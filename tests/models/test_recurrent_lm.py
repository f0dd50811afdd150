"""RecurrentLM behind the contract."""

import pytest
import torch

from chainrule.models import RecurrentLM

VARIANTS = {
    "lstm": {"cell": "lstm"},
    "lstm, embedded, two layers": {"cell": "lstm", "embedding_size": 3, "num_layers": 2, "dropout": 0.3},
    "lstm, tied": {"cell": "lstm", "tie_weights": True},
    "lstm, n-grams": {
        "cell": "lstm",
        "embedding_size": 3,
        "ngram_order": 3,
        "embedding_dropout": 0.2,
        "ngram_dropout": 0.3,
    },
    "gru, hashed n-grams": {"cell": "gru", "embedding_size": 3, "ngram_order": 4, "ngram_buckets": 7},
    "gru": {"cell": "gru", "num_layers": 2},
    "gru, reset before": {"cell": "gru", "reset_after": False},
    "rnn": {"cell": "rnn", "embedding_size": 4},
    "rnn, sigmoid": {"cell": "rnn", "nonlinearity": "sigmoid"},
    "lstm, adaptive": {"cell": "lstm", "cutoffs": (2,)},
    "gru, adaptive, embedded": {"cell": "gru", "embedding_size": 3, "cutoffs": (2,)},
    "lstm, adaptive, tied, two layers": {"tie_weights": True, "num_layers": 2, "dropout": 0.3, "cutoffs": (2,)},
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_keeps_the_contract(keeps_contract, variant):
    model = RecurrentLM(vocab_size=4, hidden_size=8, **VARIANTS[variant])
    keeps_contract(model, torch.randint(4, (3, 6)), lengths=torch.tensor([6, 2, 4]))


@pytest.mark.slow
@pytest.mark.parametrize("tie_weights", [False, True])
def test_an_adaptive_softmax_of_three_clusters_keeps_the_contract(keeps_contract, tie_weights):
    model = RecurrentLM(vocab_size=6, hidden_size=8, tie_weights=tie_weights, cutoffs=(2, 4))
    keeps_contract(model, torch.randint(6, (3, 4)), lengths=torch.tensor([4, 2, 3]))


def test_tied_weights_share_one_matrix():
    model = RecurrentLM(vocab_size=4, hidden_size=8, tie_weights=True)
    assert "weight_ho" not in model.state_dict()
    assert model.embedding is not None
    model(torch.tensor([[1, 1]])).log_prob(torch.tensor([[2, 2]])).sum().backward()
    assert model.embedding.weight.grad[2].abs().sum() > 0  # symbol 2 is an output here, never an input


def test_an_adaptive_softmax_with_tied_weights_has_no_other_table_and_is_loaded_by_name(tmp_path):
    options = {"vocab_size": 30, "hidden_size": 16, "cutoffs": (6, 14), "tie_weights": True}
    model, x = RecurrentLM(**options), torch.randint(30, (2, 7))
    assert {name: tuple(weight.shape) for name, weight in model.state_dict().items() if "recurrent" not in name} == {
        "adaptive.head_weight": (8, 16),
        "adaptive.head_bias": (8,),
        "adaptive.input_weight": (1, 16),
        "adaptive.projections.0": (4, 16),
        "adaptive.projections.1": (1, 16),
        "adaptive.tail_weights.0": (8, 4),
        "adaptive.tail_weights.1": (16, 1),
        "adaptive.tail_biases.0": (8,),
        "adaptive.tail_biases.1": (16,),
    }
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    other = RecurrentLM(**options)
    assert not torch.equal(other.log_prob(x), model.log_prob(x))
    other.load_state_dict(torch.load(tmp_path / "weights.pt"))
    assert torch.equal(other.log_prob(x), model.log_prob(x))
    sampled = [one.sample(4, length=9, generator=torch.Generator().manual_seed(0)) for one in (model, other)]
    assert torch.equal(*sampled)


def test_a_stepper_gives_what_step_gives():
    for options in VARIANTS.values():
        model = RecurrentLM(vocab_size=4, hidden_size=8, **options).double().eval()
        for rows in (1, 3):
            stepper, x = model.prepare().step, None
            state = fast_state = model.initial_state(rows)
            for _ in range(4):
                with torch.no_grad():
                    expected, state = model.step(x, state)
                    got, fast_state = stepper(x, fast_state)
                torch.testing.assert_close(got.logits, expected.logits, rtol=0, atol=1e-12)
                x = torch.randint(4, (rows,))
            continued, _ = model.unroll(x[:, None], fast_state, x)  # its state goes on in the other form
            again, _ = model.step(x, state)
            torch.testing.assert_close(continued.logits[:, 0], again.logits, rtol=0, atol=1e-12)


def test_a_stepper_leaves_the_state_it_was_given_alone():
    model = RecurrentLM(vocab_size=4, hidden_size=8, num_layers=2).eval()
    stepper, state = model.prepare().step, model.initial_state(1)
    kept = [part.clone() for part in state]
    with torch.no_grad():
        first, _ = stepper(None, state)
        scores = first.logits.clone()
        again, _ = stepper(None, state)
    assert all(torch.equal(part, before) for part, before in zip(state, kept, strict=True))
    assert torch.equal(again.logits, scores)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cell": "cnn"}, "cell: expected one of lstm, gru, rnn"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"dropout": 1.0}, "dropout"),
        ({"embedding_size": 0}, "embedding_size"),
        ({"tie_weights": True, "embedding_size": 3}, "tie_weights"),
        ({"ngram_order": 0}, "ngram_order"),
        ({"ngram_order": 2}, "ngram_order: 2 needs an embedding"),
        ({"embedding_dropout": 1.0}, "embedding_dropout"),
        ({"ngram_dropout": -0.1}, "ngram_dropout"),
        ({"cutoffs": (4,)}, "cutoffs: expected ascending integers from 1 to 3"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        RecurrentLM(vocab_size=4, **{"hidden_size": 8, **options})


def test_a_context_is_refused():
    with pytest.raises(ValueError, match="context"):
        RecurrentLM(vocab_size=4, hidden_size=8)(torch.zeros(1, 2, dtype=torch.long), torch.zeros(1, 2))


def test_padding_is_not_looked_up_in_an_embedding():
    model, x = RecurrentLM(4, embedding_size=3, hidden_size=5, ngram_order=2), torch.tensor([[1, 2, 3], [0, -1, 9]])
    logits = model(x, lengths=torch.tensor([3, 1])).logits
    torch.testing.assert_close(logits[1, :1], model(x[1:, :1]).logits[0])
