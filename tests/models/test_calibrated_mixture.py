"""A network averaged with a fitted model: exact probabilities, its own training, and a share that is fitted."""

import copy

import pytest
import torch
from noted import Noted

from chainrule.coding import model_digest
from chainrule.data import Batch
from chainrule.decoding import beam_search
from chainrule.diagnostics import gradient_profile
from chainrule.heads import Categorical
from chainrule.heads._computed_categorical import LookedUpCategorical
from chainrule.layers import KneserNey
from chainrule.models import (
    MADE,
    CalibratedMixture,
    Ensemble,
    Forecaster,
    LinearForecaster,
    NgramLM,
    RecurrentLM,
    TransformerLM,
)
from chainrule.models._model_mean import first_part
from chainrule.models._series_window import SeriesScaling
from chainrule.training import Objective, evaluate


def text(size=600):
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(5, (size,), generator=generator)
    return torch.where(noise > 1, torch.arange(size) % 5, noise)


def counts(**options):
    return KneserNey.fit(text(), 5, 3, dtype=torch.float64, **options)


def mixture(network=None, seed=0, **options):
    torch.manual_seed(seed)
    return CalibratedMixture(network or RecurrentLM(5, hidden_size=8, dropout=0.2), NgramLM(counts(**options))).double()


def test_conditionals_are_the_weighted_mean_of_probabilities():
    model, x = mixture().eval(), text(24).view(3, 8)
    model.share.fill_(0.3)
    ngrams = model.companion.ngrams
    contexts, _ = ngrams.read(x, ngrams.initial_contexts(3))
    expected = 0.7 * model.network(x).probs + 0.3 * ngrams.probs(contexts)
    torch.testing.assert_close(model(x).probs, expected, rtol=1e-12, atol=0)
    terms = expected.gather(2, x.unsqueeze(2)).squeeze(2).log()
    torch.testing.assert_close(model.log_prob(x), terms.sum(1))
    assert not torch.allclose(model(x).probs, 0.3 * model.network(x).probs + 0.7 * ngrams.probs(contexts))


@pytest.mark.slow
@pytest.mark.parametrize(
    "network",
    [
        lambda: RecurrentLM(5, "gru", hidden_size=8, ngram_order=2, embedding_size=4),
        lambda: TransformerLM(5, model_size=8, num_layers=2, num_heads=2, window=2),
        lambda: Ensemble([RecurrentLM(5, hidden_size=4), RecurrentLM(5, hidden_size=6)]),
        lambda: RecurrentLM(5, hidden_size=8, embedding_size=4, adaptive_softmax=True),
    ],
)
def test_contract(keeps_contract, network):
    keeps_contract(mixture(network()), text(18).view(3, 6), lengths=torch.tensor([6, 2, 4]))


def test_training_is_that_of_the_network():
    model, x = mixture().train(), text(32).view(4, 8)
    model.network.eval()  # without dropout, which draws
    state = model.initial_state(4)
    terms, after = model.training_terms(x, state)
    alone, _ = model.network.training_terms(x, model.network.initial_state(4))
    assert torch.equal(terms, alone)
    assert torch.equal(after[1], state[1])
    lengths = torch.tensor([8, 3, 1, 2])
    assert torch.equal(
        model.training_objective(x, lengths=lengths), model.network.training_objective(x, lengths=lengths)
    )
    loss, _ = Objective(model)(x)
    loss.backward()
    assert all(weight.grad is not None for weight in model.parameters())


def held_out(rows=4, time=150):
    return text(2 * rows * time).view(2, rows, time)


@pytest.mark.parametrize("whole", [False, True])
def test_share_is_the_likeliest(whole):
    model, chunks = mixture(), held_out()
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(40):  # until it knows a part of what the counts know
        optimiser.zero_grad()
        Objective(model)(text(200).view(4, 50))[0].backward()
        optimiser.step()
    if whole:
        lengths = torch.tensor([150, 20, 1, 9])
        chunks[:, :, 149] = 99  # padding, but for the first row
        chunks[:, 0, 149] = 0
        batches = [Batch(chunk, lengths=lengths) for chunk in chunks]
    else:
        batches = [Batch(chunks[0]), Batch(chunks[1], previous=chunks[0][:, -1])]
    model.calibrate(batches)
    fitted = float(model.share)

    def nats(share):
        model.share.fill_(share)
        return evaluate(model, batches).nats

    best = nats(fitted)
    assert 0.01 < fitted < 0.99
    assert all(nats(share) > best for share in (fitted - 0.05, fitted + 0.05, 0.4))


def test_a_network_that_is_far_from_the_truth_leaves_all_to_the_counts():
    model = mixture()
    with torch.no_grad():
        model.network.bias_ho[0] = -2000
    model.calibrate([Batch(held_out()[0])])
    assert model.share > 0.5
    assert model.training


def test_share_says_which_is_of_no_use():
    """A network that knows nothing yet leaves all to the counts, and counts of another text leave all to it."""
    model = mixture()
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    model.calibrate([Batch(held_out()[0])])
    assert model.share > 0.9
    random = torch.randint(5, (4, 600), generator=torch.Generator().manual_seed(1))
    other = mixture()
    with torch.no_grad():
        for weight in other.parameters():
            weight.zero_()
    other.calibrate([Batch(random)])
    assert other.share < 0.1


def test_counts_are_a_part_of_the_digest_of_a_model():
    network = RecurrentLM(5, hidden_size=4)
    one, same = (CalibratedMixture(network, NgramLM.fit(text(), 5, 3)) for _ in range(2))
    other = CalibratedMixture(network, NgramLM.fit(text()[:500], 5, 3))
    assert model_digest(one) == model_digest(same) != model_digest(other)


def test_tables_have_the_type_of_the_model():
    model = CalibratedMixture(RecurrentLM(5, hidden_size=4), NgramLM.fit(text(), 5, 3))
    twin = copy.deepcopy(model).double()
    assert (twin.companion.ngrams.terms.dtype, model.companion.ngrams.terms.dtype) == (torch.float64, torch.float32)
    assert twin.companion.ngrams.keys.dtype == torch.int64
    x = text(12).view(2, 6)
    assert model(x).probs.dtype == torch.float32
    torch.testing.assert_close(model(x).probs.double(), twin(x).probs, rtol=1e-5, atol=1e-6)


def test_share_is_a_part_of_the_weights():
    model, other = mixture(), mixture(seed=1)
    model.share.fill_(0.2)
    other.load_state_dict(model.state_dict())
    assert other.share == 0.2
    assert not any("keys" in name for name in model.state_dict())


def test_search_and_samples():
    model = mixture().eval()
    (best,) = beam_search(model, beam_size=3, eos=None, max_length=4)
    torch.testing.assert_close(best.log_probs, model.log_prob(best.sequences[0][None]))
    drawn = model.sample(2000, length=3, generator=torch.Generator().manual_seed(0))
    seen = torch.bincount(drawn[:, 0], minlength=5) / 2000
    torch.testing.assert_close(seen.double(), model(drawn[:1]).probs[0, 0], atol=0.04, rtol=0)


def test_inside_is_the_network():
    model = mixture().eval()
    assert first_part(model)[0] is model.network
    both = Ensemble([RecurrentLM(5, hidden_size=4).double() for _ in range(2)])
    assert first_part(mixture(both))[0] is both.members[0]
    x = text(20).view(2, 10)
    state = model.unroll(x, model.initial_state(2))[1]
    for found, expected in zip(
        gradient_profile(model, x, state=state, x_prev=x[:, -1]),
        gradient_profile(model.network, x, state=state[0], x_prev=x[:, -1]),
        strict=True,
    ):
        assert torch.equal(found, expected)


def test_what_is_refused():
    for parts in ((MADE(6, [4]), NgramLM(counts())), (NgramLM(counts()), MADE(6, [4]))):
        with pytest.raises(ValueError, match="sequences"):
            CalibratedMixture(*parts)
    with pytest.raises(ValueError, match="context"):
        mixture()(text(6).view(2, 3), context=torch.zeros(2))
    whole = NgramLM(counts())
    whole.sequence_length = 6
    with pytest.raises(ValueError, match=r"^companion: expected one length"):
        CalibratedMixture(RecurrentLM(5, hidden_size=4), whole)
    different = CalibratedMixture(Forecaster([SeriesScaling()], hidden_size=4), NgramLM(counts()))
    heads = Forecaster([SeriesScaling()], hidden_size=4), LinearForecaster([SeriesScaling()], head="normal")
    with pytest.raises(ValueError, match="one class"):
        CalibratedMixture(*heads)(torch.zeros(1, 2), torch.zeros(1, 3))
    parts = different.network(torch.zeros(1, 2), torch.zeros(1, 3)), different.companion(torch.ones(1, 2).long())
    with pytest.raises(TypeError, match="categorical"):
        different._mean(parts)


def series(head="student"):
    torch.manual_seed(0)
    values = 20 + torch.randn(200, 2, dtype=torch.float64).cumsum(0)
    scalings = [SeriesScaling.fit(column, 1) for column in values.unbind(1)]
    options = {"head": head, "lags": [1, 2, 5]}
    linear = LinearForecaster(scalings, **options).fit(values, torch.zeros(200, 0))
    return CalibratedMixture(Forecaster(scalings, hidden_size=8, dropout=0.0, **options), linear).double(), values


@pytest.mark.slow
@pytest.mark.parametrize("head", ["student", "normal"])
def test_densities_are_averaged_too(keeps_contract, head):
    model, values = series(head)
    model.eval().share.fill_(0.3)
    x, context = values[100:106].t(), {"past": values[90:100].t(), "series": torch.tensor([0, 1])}
    parts = [part(x, context).log_prob(x).exp() for part in (model.network, model.companion)]
    torch.testing.assert_close(model(x, context).log_prob(x).exp(), 0.7 * parts[0] + 0.3 * parts[1])
    keeps_contract(model, x, context, torch.tensor([6, 3]))


def test_share_of_densities_is_the_likeliest():
    model, values = series()
    context = {"past": values[:150].t(), "series": torch.tensor([0, 1])}
    model.companion.coefficients[1, -1] = 1.5  # wrong about the second series
    rows = Batch(values[150:].t(), context=context)
    model.calibrate([rows])
    fitted = float(model.share)

    def nats(share):
        model.share.fill_(share)
        return -model.eval().log_prob(rows.x, context).sum().item()

    best = nats(fitted)
    assert 0.05 < fitted < 0.999
    assert all(nats(share) > best for share in (fitted - 0.03, min(fitted + 0.03, 0.9999)))


def test_as_much_is_read_as_was_asked_for():
    model, read = mixture(), []

    def batches():
        for chunk in held_out():
            read.append(chunk.numel())
            yield Batch(chunk)

    model.calibrated_on = 600
    model.calibrate(batches())
    assert read == [600]
    model.calibrated_on = 601
    model.calibrate(batches())
    assert read == [600, 600, 600]


def test_head():
    ngrams = counts()
    contexts = ngrams.read(text(12).view(3, 4), ngrams.initial_contexts(3))[0]
    head = LookedUpCategorical(contexts, ngrams)
    table = Categorical(head.logits)
    x = text(12).view(3, 4)
    torch.testing.assert_close(head.log_prob(x), table.log_prob(x))
    torch.testing.assert_close(head.log_prob(torch.tensor(2)), table.log_prob(torch.tensor(2)))
    with pytest.raises(ValueError, match=r"in \[0, 5"):
        head.log_prob(x + 5)
    steps = [LookedUpCategorical(contexts[:, t], ngrams) for t in range(4)]
    joined = LookedUpCategorical.stacked(steps)
    assert isinstance(joined, LookedUpCategorical)
    torch.testing.assert_close(joined.probs, head.probs)
    assert repr(head) == "LookedUpCategorical(batch_shape=(3, 4), V=5)"
    drawn = head.sample((2000,), generator=torch.Generator().manual_seed(0))
    seen = torch.nn.functional.one_hot(drawn, 5).double().mean(0)
    torch.testing.assert_close(seen, head.probs, atol=0.05, rtol=0)


def test_what_a_network_does_better_than_step_by_step_is_asked_of_it():
    model, x = mixture(Noted(5, hidden_size=4)).eval(), text(20).view(2, 10)
    conditional, _ = model.prepare().step(None, model.initial_state(2))
    torch.testing.assert_close(conditional.probs, model(x).probs[:, 0])
    assert sorted(model.network.calls) == ["prepare"]


def test_a_prefix_matters_as_far_as_the_counts_see():
    near = TransformerLM(5, model_size=8, num_layers=1, num_heads=2, window=1)
    far = TransformerLM(5, model_size=8, num_layers=1, num_heads=2, window=30)
    assert near.useful_prefix(1) < 3 < far.useful_prefix(1)
    for network, expected in ((near, 3), (far, far.useful_prefix(1)), (RecurrentLM(5, hidden_size=4), None)):
        model = CalibratedMixture(network, NgramLM.fit(text(), 5, 4))
        assert model.useful_prefix(1) == expected
    seen = CalibratedMixture(near, NgramLM.fit(text(), 5, 4)).visible_past(8)
    assert seen[7].nonzero().flatten().tolist() == [4, 5, 6]


def test_a_prefix_that_positions_leave_no_room_for_is_not_read():
    network = TransformerLM(5, model_size=8, num_layers=1, num_heads=2, position="learned", context_length=8)
    model = CalibratedMixture(network, NgramLM.fit(text(), 5, 5))
    assert [model.useful_prefix(drawn) for drawn in (1, 4, 5, 7)] == [7, 4, 3, 1]
    model.sample(1, length=8, prefix=torch.tensor([0]))
    small = TransformerLM(5, model_size=8, num_layers=1, num_heads=2, position="learned", context_length=8, window=1)
    model = CalibratedMixture(small, NgramLM.fit(text(), 5, 5))
    assert [model.useful_prefix(drawn) for drawn in (1, 4, 5, 7)] == [4, 4, 3, 1]


def test_rows_that_begin_anew_begin_without_a_past():
    model, rows = mixture().eval(), held_out()
    model.calibrate([Batch(rows[0]), Batch(rows[1])])
    apart = float(model.share)
    model.calibrate([Batch(rows.flatten(0, 1))])
    assert float(model.share) == pytest.approx(apart, abs=1e-7)
