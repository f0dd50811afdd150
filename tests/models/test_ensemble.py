"""The mean of several models: exact probabilities, members that learn for themselves."""

import pytest
import torch
from noted import Noted

from chainrule.data import Batch
from chainrule.decoding import beam_search
from chainrule.heads import Bernoulli, Categorical
from chainrule.heads._computed_categorical import mean_of
from chainrule.models import Ensemble, Forecaster, PixelCNN, RecurrentLM, TransformerLM
from chainrule.models._model_mean import first_part
from chainrule.models._series_window import SeriesScaling
from chainrule.training import Objective, evaluate


def small(cell="lstm", **options):
    return RecurrentLM(5, cell, hidden_size=8, **options)


def ensemble(members=3):
    torch.manual_seed(0)
    return Ensemble([small(dropout=0.2) for _ in range(members)]).double()


def symbols(rows=3, time=7):
    return torch.randint(5, (rows, time), generator=torch.Generator().manual_seed(1))


class OfLength(RecurrentLM):
    sequence_length = 7


def test_conditionals_are_the_mean_of_probabilities():
    model, x = ensemble().eval(), symbols()
    expected = torch.stack([member(x).probs for member in model.members]).mean(0)
    torch.testing.assert_close(model(x).probs, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(model(x).probs.sum(-1), torch.ones(3, 7, dtype=torch.float64))
    terms = expected.gather(2, x.unsqueeze(2)).squeeze(2).log()
    torch.testing.assert_close(model.log_prob(x), terms.sum(1))
    of_scores = torch.stack([member(x).logits for member in model.members]).mean(0).softmax(-1)
    assert not torch.allclose(model(x).probs, of_scores)  # the mean of scores is another distribution


@pytest.mark.slow
@pytest.mark.parametrize(
    "members",
    [
        lambda: [small("gru", ngram_order=2, embedding_size=4), small("rnn")],
        lambda: [TransformerLM(5, model_size=8, num_layers=1, num_heads=2, window=3) for _ in range(2)],
        lambda: [small("gru", adaptive_softmax=True, cutoffs=[1, 3]), small("lstm")],
        lambda: [small("gru")],
    ],
    ids=["recurrences", "transformers", "adaptive softmax and softmax", "one"],
)
def test_keeps_the_contract(keeps_contract, members):
    keeps_contract(Ensemble(members()), symbols(time=9), lengths=torch.tensor([9, 2, 4]))


@pytest.mark.slow
@pytest.mark.parametrize("head", ["student", "normal"])
def test_densities_are_averaged_too(keeps_contract, head):
    model = Ensemble([Forecaster([SeriesScaling(20.0, 2.0)], hidden_size=4, lags=[1, 2], head=head) for _ in range(3)])
    for member in model.members:
        torch.nn.init.normal_(member.output.weight, std=0.3)
    model = model.double().eval()
    x, past = 20 + torch.randn(3, 5).double().cumsum(1), 20 + torch.randn(3, 4).double().cumsum(1)
    each = torch.stack([member(x, past).log_prob(x).exp() for member in model.members])
    torch.testing.assert_close(model(x, past).log_prob(x).exp(), each.mean(0), rtol=1e-12, atol=0)
    keeps_contract(model, x, past, torch.tensor([5, 2, 4]))


def test_each_member_learns_as_if_it_were_alone():
    model, x = ensemble(2), symbols()
    first, second = (member.eval() for member in model.members)  # no dropout, whose numbers would differ
    state = model.initial_state(3)
    terms, after = model.training_terms(x, state)
    own, own_after = first.training_terms(x, state[0])
    torch.testing.assert_close(terms, (own + second.training_terms(x, state[1])[0]) / 2)
    torch.testing.assert_close(after[0], own_after)
    together = torch.autograd.grad(terms.sum(), tuple(first.parameters()))
    torch.testing.assert_close(
        together, tuple(0.5 * part for part in torch.autograd.grad(own.sum(), tuple(first.parameters())))
    )
    whole = model.training_objective(x)
    torch.testing.assert_close(whole, (first.log_prob(x) + second.log_prob(x)) / 2)


def test_training_takes_the_members_terms_and_evaluation_the_likelihood():
    model, x = ensemble(2), symbols()
    for member in model.members:
        member.dropout = 0.0
    objective = Objective(model)
    alone = sum(-member.log_prob(x).sum() for member in model.members) / 2
    torch.testing.assert_close(objective.train()(x)[0].double(), alone, rtol=1e-6, atol=0)
    likelihood = -model.log_prob(x).sum()
    torch.testing.assert_close(objective.eval()(x)[0].double(), likelihood, rtol=1e-6, atol=0)
    assert likelihood < alone  # Jensen's inequality
    measured = evaluate(model.eval(), [Batch(x[:, :4]), Batch(x[:, 4:], previous=x[:, 3])])
    assert measured.nats == pytest.approx(likelihood.item(), rel=1e-6)


def test_search_finds_what_enumeration_does():
    model = ensemble(2).eval()
    every = torch.cartesian_prod(*[torch.arange(5)] * 3)
    (found,) = beam_search(model, beam_size=25, max_length=3, eos=None)
    assert found.sequences[0].tolist() == every[model.log_prob(every).argmax()].tolist()


def test_what_a_member_has_of_its_own_is_used():
    model, x = Ensemble([Noted(5, hidden_size=4), Noted(5, hidden_size=4)]).eval(), symbols()
    conditional, _ = model.prepare().step(None, model.initial_state(3))
    torch.testing.assert_close(conditional.logits, model(x).logits[:, 0])
    for member in model.members:
        assert sorted(member.calls) == ["prepare"]


def test_features_are_those_of_the_members_side_by_side():
    model, x = ensemble(2).eval(), symbols()
    torch.testing.assert_close(model.features(x)[..., 8:], model.members[1].features(x))


def test_what_looks_inside_one_model_is_given_the_first():
    model = ensemble(2)
    assert first_part(model)[0] is model.members[0]
    assert first_part(model.members[1])[0] is model.members[1]


def test_the_prefix_that_matters_is_that_of_the_member_that_reads_farthest():
    near, far = (TransformerLM(5, model_size=8, num_layers=1, num_heads=2, window=window) for window in (2, 4))
    assert Ensemble([far, near]).useful_prefix(10) == far.useful_prefix(10) == 4
    assert Ensemble([near, small()]).useful_prefix(10) is None


def test_members_must_fit_together():
    with pytest.raises(ValueError, match="at least one"):
        Ensemble([])
    with pytest.raises(ValueError, match="twice"):
        Ensemble([small()] * 2)
    with pytest.raises(ValueError, match="one length"):
        Ensemble([small(), OfLength(5, hidden_size=4)])
    with pytest.raises(ValueError, match=r"sequences \(B, T\), got PixelCNN"):
        Ensemble([small(), PixelCNN((1, 2, 2), 5, channels=4, layers=1)])
    with pytest.raises(ValueError, match=r"got \(3, 7, 5\), \(3, 7, 6\)"):
        Ensemble([small(), RecurrentLM(6, hidden_size=4)])(symbols())
    heads = [Forecaster([SeriesScaling()], hidden_size=4, head=head) for head in ("student", "normal")]
    with pytest.raises(ValueError, match=r"one class, .* got StudentTMixture.*, GaussianMixture"):
        Ensemble(heads)(torch.zeros(1, 3), torch.zeros(1, 4))
    with pytest.raises(TypeError, match="or only mixtures, got Bernoulli, Categorical"):
        mean_of([Bernoulli(torch.zeros(3)), Categorical(torch.zeros(3, 2))])
