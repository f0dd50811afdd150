"""RNN-MADE behind the contract, frames drawn jointly."""

from itertools import product

import pytest
import torch

from chainrule.models import MADE, RNNMADE
from chainrule.models._rnn_made import MADEConditional

VARIANTS = {
    "lstm": {"made_hidden": [8]},
    "gru, two layers": {"cell": "gru", "num_layers": 2, "made_hidden": [6, 6], "dropout": 0.3},
    "rnn, a chain of logistic regressions": {"cell": "rnn", "made_hidden": [], "direct": False},
}


def frames(*shape, seed=0):
    return torch.randint(2, shape, generator=torch.Generator().manual_seed(seed)).float()


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_keeps_the_contract(keeps_contract, variant):
    model = RNNMADE(num_features=3, hidden_size=8, **VARIANTS[variant])
    keeps_contract(model, frames(3, 5, 3), lengths=torch.tensor([5, 2, 4]))


def test_keeps_the_contract_with_frames_too_wide_to_list(keeps_contract):
    keeps_contract(RNNMADE(num_features=14, hidden_size=8, made_hidden=[14]), frames(2, 2, 14))


def test_a_temperature_filters_each_note_given_those_before_it():
    model = RNNMADE(num_features=2, hidden_size=4, made_hidden=[4]).double()
    frames = torch.tensor(list(product((0.0, 1.0), repeat=2))).view(-1, 1, 2)
    whole = model(frames)
    cool = whole.filtered(temperature=0.5)
    assert cool.log_prob(frames).exp().sum().item() == pytest.approx(1, abs=1e-12)
    logits = model.made(frames[:, 0], whole.h[:, 0]).logits
    expected = torch.distributions.Bernoulli(logits=2 * logits.double()).log_prob(frames[:, 0].double()).sum(1)
    torch.testing.assert_close(cool.log_prob(frames)[:, 0], expected, rtol=0, atol=1e-12)
    greedy = whole.filtered(temperature=0.0).sample()
    again = model.sample(4, length=1, temperature=0.0)
    assert (greedy == greedy[0]).all()
    torch.testing.assert_close(again, greedy)
    with pytest.raises(ValueError, match="temperature"):
        whole.filtered(temperature=-1.0)
    with pytest.raises(ValueError, match="give all filters at once"):  # else the temperature would be lost
        cool.filtered(top_p=0.9)


def test_notes_of_a_frame_are_not_independent_of_each_other():
    model = RNNMADE(num_features=2, hidden_size=4, made_hidden=[], direct=False).double()
    with torch.no_grad():
        model.made.output.weight[1, 0] = 5.0
    frame = model(torch.zeros(1, 1, 2))
    p = {
        values: frame.log_prob(torch.tensor(values).view(1, 1, 2)).exp().item() for values in product((0, 1), repeat=2)
    }
    assert p[1, 1] * p[0, 0] > 100 * p[1, 0] * p[0, 1]  # e^5 times


def test_frames_may_be_bytes_or_booleans():
    model = RNNMADE(num_features=3, hidden_size=4, made_hidden=[4])
    x = frames(2, 4, 3)
    assert torch.equal(model.log_prob(x.byte()), model.log_prob(x))
    assert torch.equal(model.log_prob(x.bool()), model.log_prob(x))


def test_a_conditional_broadcasts_values_against_its_batch():
    made = MADE(3, [4], context_size=2)
    conditional = MADEConditional(made, torch.randn(2, 5, 2))
    every = conditional.enumerate_support()
    assert every.shape == (8, 2, 5, 3)
    torch.testing.assert_close(conditional.log_prob(every).exp().sum(0), torch.ones(2, 5))
    assert conditional.sample((4,)).shape == (4, 2, 5, 3)
    assert conditional.expand((7, 2, 5)).log_prob(every[0]).shape == (7, 2, 5)
    for cool in (conditional, conditional.filtered(temperature=0.5)):
        of_features = cool.feature_log_prob(every)
        torch.testing.assert_close(of_features.sum(-1), cool.log_prob(every))
        torch.testing.assert_close(of_features[0::4, ..., 0], of_features[1::4, ..., 0])  # x_3 is not read


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model(torch.zeros(2, 5, 4)), "D = 3"),
        (lambda model: model(torch.zeros(2, 3)), "D = 3"),
        (lambda model: model(torch.full((2, 4, 3), 0.5)).log_prob(torch.full((2, 4, 3), 0.5)), "expected 0 and 1"),
        (lambda model: model(torch.zeros(1, 2, 3), torch.zeros(1, 2)), "context"),
        (lambda model: model.step(torch.zeros(2, 3), model.initial_state(1)), "x_prev"),
        (lambda model: model(torch.zeros(1, 2, 3)).log_prob(torch.zeros(4)), "value"),
        (lambda model: RNNMADE(3, hidden_size=0), "context_size"),
        (lambda model: RNNMADE(3, cell="cnn"), "cell"),
        (lambda model: RNNMADE(3, dropout=1.0), "dropout"),
    ],
)
def test_what_cannot_be_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(RNNMADE(num_features=3, hidden_size=4, made_hidden=[4]))
