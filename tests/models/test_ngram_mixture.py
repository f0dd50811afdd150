"""A network averaged with counts: exact probabilities, the network's own training, and a share that is fitted."""

import copy

import pytest
import torch

from chainrule.coding import decode, encode
from chainrule.coding.fingerprint import model_digest
from chainrule.decoding import beam_search
from chainrule.diagnostics import gradient_profile
from chainrule.heads import Categorical, LookedUpCategorical
from chainrule.layers import KneserNey
from chainrule.models import MADE, Ensemble, Forecaster, NgramMixture, RecurrentLM, SeriesScaling, TransformerLM
from chainrule.models.ensemble import first_member
from chainrule.testing import check_model
from chainrule.training import evaluate
from chainrule.training.evaluate import Objective


def text(size=600):
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(5, (size,), generator=generator)
    return torch.where(noise > 1, torch.arange(size) % 5, noise)


def counts(**options):
    return KneserNey.fit(text(), 5, 3, dtype=torch.float64, **options)


def mixture(network=None, seed=0, **options):
    torch.manual_seed(seed)
    return NgramMixture(network or RecurrentLM(5, hidden_size=8, dropout=0.2), counts(**options)).double()


class Chunk:
    """Rows of symbols."""

    def __init__(self, x, previous=None, lengths=None):
        self.x, self.previous, self.lengths, self.context, self.whole = x, previous, lengths, None, False


def test_conditionals_are_the_weighted_mean_of_probabilities():
    model, x = mixture().eval(), text(24).view(3, 8)
    model.share.fill_(0.3)
    contexts, _ = model.ngrams.read(x, model.ngrams.initial_contexts(3))
    expected = 0.7 * model.network(x).probs + 0.3 * model.ngrams.probs(contexts)
    torch.testing.assert_close(model(x).probs, expected, rtol=1e-12, atol=0)
    terms = expected.gather(2, x.unsqueeze(2)).squeeze(2).log()
    torch.testing.assert_close(model.log_prob(x), terms.sum(1))
    assert not torch.allclose(model(x).probs, 0.3 * model.network(x).probs + 0.7 * model.ngrams.probs(contexts))


@pytest.mark.parametrize(
    "network",
    [
        lambda: RecurrentLM(5, "gru", hidden_size=8, ngram_order=2, embedding_size=4),
        lambda: TransformerLM(5, model_size=8, num_layers=2, num_heads=2, window=2),
        lambda: Ensemble([RecurrentLM(5, hidden_size=4), RecurrentLM(5, hidden_size=6)]),
        lambda: RecurrentLM(5, hidden_size=8, embedding_size=4, adaptive_softmax=True),
    ],
)
def test_contract(network):
    check_model(mixture(network()), text(27).view(3, 9), lengths=torch.tensor([9, 2, 4]))


def test_lines_begin_with_a_context_of_their_own():
    lines = torch.cat([torch.tensor([5, 2]), text(200), torch.tensor([5, 2, 1, 5, 2, 0, 5, 2, 1])])
    ngrams = KneserNey.fit(lines, 5, 3, lines=True, dtype=torch.float64)
    model = NgramMixture(RecurrentLM(5, hidden_size=8), ngrams).double()
    first = model(torch.tensor([[0]])).parts[1].probs[0, 0]
    assert first.argmax() == 2  # all of them begin so
    assert mixture()(torch.tensor([[0]])).parts[1].probs[0, 0].max() < 0.4
    check_model(model, text(27).view(3, 9), lengths=torch.tensor([9, 2, 4]))


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
        batches = [Chunk(chunk, lengths=lengths) for chunk in chunks]
    else:
        batches = [Chunk(chunks[0]), Chunk(chunks[1], chunks[0][:, -1])]
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
    model.calibrate([Chunk(held_out()[0])])
    assert model.share > 0.5
    assert model.training


def test_share_says_which_is_of_no_use():
    """A network that knows nothing yet leaves all to the counts, and counts of another text leave all to it."""
    model = mixture()
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    model.calibrate([Chunk(held_out()[0])])
    assert model.share > 0.9
    random = torch.randint(5, (4, 600), generator=torch.Generator().manual_seed(1))
    other = mixture()
    with torch.no_grad():
        for weight in other.parameters():
            weight.zero_()
    other.calibrate([Chunk(random)])
    assert other.share < 0.1


def test_counts_are_a_part_of_the_digest_of_a_model():
    network = RecurrentLM(5, hidden_size=4)
    one, same = (NgramMixture(network, KneserNey.fit(text(), 5, 3)) for _ in range(2))
    other = NgramMixture(network, KneserNey.fit(text()[:500], 5, 3))
    assert model_digest(one) == model_digest(same) != model_digest(other)


def test_tables_have_the_type_of_the_model():
    model = NgramMixture(RecurrentLM(5, hidden_size=4), KneserNey.fit(text(), 5, 3))
    twin = copy.deepcopy(model).double()
    assert (twin.ngrams.terms.dtype, model.ngrams.terms.dtype) == (torch.float64, torch.float32)
    assert twin.ngrams.keys.dtype == torch.int64
    x = text(12).view(2, 6)
    assert model(x).probs.dtype == torch.float32
    torch.testing.assert_close(model(x).probs.double(), twin(x).probs, rtol=1e-5, atol=1e-6)


def test_share_is_a_part_of_the_weights():
    model, other = mixture(), mixture(seed=1)
    model.share.fill_(0.2)
    other.load_state_dict(model.state_dict())
    assert other.share == 0.2
    assert not any("keys" in name for name in model.state_dict())


def test_rewinding_is_reading_less():
    model, x = mixture(TransformerLM(5, model_size=8, num_layers=1, num_heads=2)).eval(), text(20).view(2, 10)
    before = model.unroll(x[:, :3], model.initial_state(2))[1]
    after = model.unroll(x[:, 3:], before, x[:, 2])[1]
    for kept in (1, 4):
        state = model.rewind(before, after, x[:, 3:], x[:, 2], kept)
        found, _ = model.step(x[:, 2 + kept], state)
        torch.testing.assert_close(found.probs, model(x).probs[:, 3 + kept])


def test_search_and_samples():
    model = mixture().eval()
    (best,) = beam_search(model, beam_size=3, eos=None, max_length=4)
    torch.testing.assert_close(best.log_probs, model.log_prob(best.sequences[0][None]))
    drawn = model.sample(2000, length=3, generator=torch.Generator().manual_seed(0))
    seen = torch.bincount(drawn[:, 0], minlength=5) / 2000
    torch.testing.assert_close(seen.double(), model(drawn[:1]).probs[0, 0], atol=0.04, rtol=0)


def test_coding_in_portable_arithmetic():
    model, x = mixture().eval(), text(60).view(3, 20)
    written = encode(model, x, portable=True)
    assert torch.equal(decode(model, written), x)


def test_inside_is_the_network():
    model = mixture().eval()
    assert first_member(model) is model.network
    both = Ensemble([RecurrentLM(5, hidden_size=4).double() for _ in range(2)])
    assert first_member(mixture(both)) is both.members[0]
    x = text(20).view(2, 10)
    state = model.unroll(x, model.initial_state(2))[1]
    for found, expected in zip(
        gradient_profile(model, x, state=state, x_prev=x[:, -1]),
        gradient_profile(model.network, x, state=state[0], x_prev=x[:, -1]),
        strict=True,
    ):
        assert torch.equal(found, expected)


def test_what_is_refused():
    with pytest.raises(ValueError, match="sequences"):
        NgramMixture(MADE(6, [4]), counts())
    with pytest.raises(ValueError, match="context"):
        mixture()(text(6).view(2, 3), context=torch.zeros(2))
    series = Forecaster([SeriesScaling(1.0, 1.0)], hidden_size=4)
    with pytest.raises(TypeError, match="categorical"):
        NgramMixture(series, counts())._mixture(torch.distributions.Normal(0, 1), torch.zeros(1, 2))


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


class Blocks(RecurrentLM):
    """A network that reads blocks, and counts what a mixture hands on to it."""

    block_length = 6

    def __init__(self):
        super().__init__(5, hidden_size=4)
        self.calls = []

    def shared(self, state):
        self.calls.append("shared")
        return state

    def stepper(self):
        self.calls.append("stepper")
        return super().stepper()

    def window_reader(self):
        self.calls.append("window_reader")
        return super().window_reader()


def test_what_a_network_does_better_than_step_by_step_is_asked_of_it():
    model, x = mixture(Blocks()).eval(), text(20).view(2, 10)
    assert model.block_length == 6
    state = model.shared(model.initial_state(2))
    conditional, state = model.stepper()(None, state)
    torch.testing.assert_close(conditional.probs, model(x).probs[:, 0])
    conditionals, _ = model.window_reader()(x[:, 1:], state, x[:, 0])
    torch.testing.assert_close(conditionals.probs, model(x).probs[:, 1:])
    assert model.network.calls == ["shared", "stepper", "window_reader"]


def test_a_prefix_matters_as_far_as_the_counts_see():
    near = TransformerLM(5, model_size=8, num_layers=1, num_heads=2, window=1)
    far = TransformerLM(5, model_size=8, num_layers=1, num_heads=2, window=30)
    assert near.useful_prefix(1) < 3 < far.useful_prefix(1)
    for network, expected in ((near, 3), (far, far.useful_prefix(1)), (RecurrentLM(5, hidden_size=4), None)):
        model = NgramMixture(network, KneserNey.fit(text(), 5, 4))
        assert model.useful_prefix(1) == expected
    seen = NgramMixture(near, KneserNey.fit(text(), 5, 4)).visible_past(8)
    assert seen[7].nonzero().flatten().tolist() == [4, 5, 6]


def test_a_prefix_that_positions_leave_no_room_for_is_not_read():
    network = TransformerLM(5, model_size=8, num_layers=1, num_heads=2, position="learned", context_length=8)
    model = NgramMixture(network, KneserNey.fit(text(), 5, 5))
    assert [model.useful_prefix(drawn) for drawn in (1, 4, 5, 7)] == [7, 4, 3, 1]
    model.sample(1, length=8, prefix=torch.tensor([0]))
    small = TransformerLM(5, model_size=8, num_layers=1, num_heads=2, position="learned", context_length=8, window=1)
    model = NgramMixture(small, KneserNey.fit(text(), 5, 5))
    assert [model.useful_prefix(drawn) for drawn in (1, 4, 5, 7)] == [4, 4, 1, 1]


def test_rows_that_begin_anew_begin_without_a_past():
    model, rows = mixture().eval(), held_out()
    model.calibrate([Chunk(rows[0]), Chunk(rows[1])])
    apart = float(model.share)
    model.calibrate([Chunk(rows.flatten(0, 1))])
    assert float(model.share) == pytest.approx(apart, abs=1e-7)
