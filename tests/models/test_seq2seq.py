"""Models with an encoder or a vector before a decoder, behind the contract."""

import pytest
import torch

from chainrule.decoding import beam_search, greedy
from chainrule.layers import ImageEncoder
from chainrule.models import Captioner, Seq2Seq, VectorToSequence

V = 4
VARIANTS = {
    "lstm": {},
    "gru, additive": {"cell": "gru", "attention": "additive"},
    "rnn, two layers": {"cell": "rnn", "num_layers": 2, "dropout": 0.3},
    "lstm, two layers, no feeding": {"num_layers": 2, "input_feeding": False},
    "gru, additive, no feeding": {"cell": "gru", "attention": "additive", "input_feeding": False},
    "fixed vector": {"cell": "gru", "attention": None, "input_feeding": False},
    "fixed vector, fed, untied": {"attention": None, "tie_weights": False, "label_smoothing": 0.1},
}


def made(**options):
    torch.manual_seed(0)
    return Seq2Seq(
        5, V, embedding_size=5, hidden_size=6, **{"cell": "lstm", "dropout": 0.0, "label_smoothing": 0.0} | options
    )


def source(rows=3):
    generator = torch.Generator().manual_seed(1)
    return {
        "tokens": torch.randint(5, (rows, 4), generator=generator),
        "lengths": torch.tensor([4, 2, 3, 1, 0])[:rows],
    }


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_keeps_the_contract(keeps_contract, variant):
    x = torch.randint(V, (3, 5), generator=torch.Generator().manual_seed(2))
    keeps_contract(made(**VARIANTS[variant]), x, source(), lengths=torch.tensor([5, 2, 4]))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_summary_of_a_source_is_the_last_output_of_each_direction(variant):
    context = source()
    encoded = made(**VARIANTS[variant]).eval().encode(context)
    forward, backward = encoded.memory.chunk(2, -1)
    last = forward[torch.arange(3), context["lengths"] - 1]
    torch.testing.assert_close(encoded.summary, torch.cat([last, backward[:, 0]], -1))


@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_of_the_source_is_never_read(variant):
    model = made(**VARIANTS[variant]).double().eval()
    context, x = source(5), torch.randint(V, (5, 6))
    expected = model.log_prob(x, context)
    spoilt = context["tokens"].clone()
    for row, length in enumerate(context["lengths"].tolist()):
        spoilt[row, length:] = -7
        if length:
            alone = {"tokens": context["tokens"][row : row + 1, :length], "lengths": torch.tensor([length])}
            torch.testing.assert_close(
                model.log_prob(x[row : row + 1], alone)[0], expected[row], rtol=1e-12, atol=1e-12
            )
    got = model.log_prob(x, {"tokens": spoilt, "lengths": context["lengths"]})
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_source_matters_position_by_position_or_through_its_summary(variant):
    model = made(**VARIANTS[variant]).double().eval()
    context, x = source(), torch.randint(V, (3, 6))
    plain = model.log_prob(x, context)
    for position in range(4):
        tokens = context["tokens"].clone()
        tokens[:, position] = (tokens[:, position] + 1) % 5
        changed = model.log_prob(x, {**context, "tokens": tokens}) != plain
        assert torch.equal(changed, position < context["lengths"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_attention_is_shown_for_each_word_and_sums_to_one(variant):
    model = made(**VARIANTS[variant]).eval()
    context, x = source(), torch.randint(V, (3, 6))
    if model.attention is None:
        with pytest.raises(ValueError, match="attended: expected a model with attention"):
            model.attended(x, context)
        return
    weights = model.attended(x, context)
    torch.testing.assert_close(weights.sum(2), torch.ones(3, 6))
    assert not weights[1, :, 2:].any()


def test_the_likelihood_has_no_label_smoothing_in_either_mode_and_the_objective_has():
    model, context = made(label_smoothing=0.3).double(), source()
    x, lengths = torch.randint(V, (3, 5)), torch.tensor([5, 0, 3])
    logits = model(x, context).logits
    given = logits.gather(2, x.unsqueeze(2)).squeeze(2)
    real = torch.arange(5) < lengths.unsqueeze(1)
    plain = (given * real).sum(1)
    for mode in (model.eval, model.train):
        torch.testing.assert_close(mode().log_prob(x, context, lengths), plain)
    smoothed = ((0.7 * given + 0.3 * logits.mean(2)) * real).sum(1)
    torch.testing.assert_close(model.training_objective(x, context, lengths), smoothed, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_stepper_gives_what_step_gives(variant):
    model = made(**VARIANTS[variant]).double().eval()
    stepper, x = model.prepare().step, None
    state = fast_state = model.initial_state(3, source())
    for _ in range(4):
        with torch.no_grad():
            expected, state = model.step(x, state)
            got, fast_state = stepper(x, fast_state)
        torch.testing.assert_close(got.logits, expected.logits, rtol=0, atol=1e-12)
        x = torch.randint(V, (3,))
    again, _ = model.step(x, fast_state)  # its state goes on in the other form
    torch.testing.assert_close(again.logits, model.step(x, state)[0].logits, rtol=0, atol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_decoded_in_a_batch_as_alone(variant):
    model, context = made(**VARIANTS[variant]).double().eval(), source(5)
    options = {"beam_size": 3, "max_length": 8, "eos": 0}
    together = beam_search(model, context, **options)
    for row, result in enumerate(together):
        alone = {name: leaf[row : row + 1] for name, leaf in context.items()}
        [expected] = beam_search(model, alone, **options)
        assert result.sequences[0].tolist() == expected.sequences[0].tolist()
        torch.testing.assert_close(result.log_probs, expected.log_probs, rtol=1e-12, atol=1e-12)
    drawn = model.sample(5, context, length=8, temperature=0, eos=0)
    for row, result in enumerate(greedy(model, context, max_length=8, eos=0)):
        assert drawn[row, : len(result.sequences[0])].tolist() == result.sequences[0].tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cell": "cnn"}, "cell: expected one of lstm, gru, rnn"),
        ({"dropout": 1.0}, "dropout"),
        ({"label_smoothing": -0.1}, "label_smoothing"),
        ({"attention": "hard"}, "attention: expected one of additive, multiplicative, or None"),
        ({"num_layers": 0}, "num_layers"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        made(**options)


def test_a_context_of_another_kind_is_named():
    model, x = made(), torch.zeros(3, 2, dtype=torch.long)
    for context, message in (
        (None, "got NoneType"),
        ({"tokens": x}, "got one of tokens"),
        ({"tokens": x, "lengths": x}, r"got \(3, 2\) and \(3, 2\)"),
        (source(2), "expected 3 rows, or one for all, got 2"),
    ):
        with pytest.raises(ValueError, match=message):
            model(x, context)


def test_no_words_attend_to_nothing():
    context = {"tokens": torch.tensor([[1, 2, 0]]), "lengths": torch.tensor([2])}
    model = Seq2Seq(5, 4, hidden_size=8)
    assert model.attended(torch.zeros(1, 0, dtype=torch.long), context).shape == (1, 0, 3)


@pytest.mark.parametrize("options", [{}, {"cell": "gru", "num_layers": 2, "embedding_size": 3}, {"cell": "rnn"}])
def test_a_sequence_from_a_vector_keeps_the_contract(keeps_contract, options):
    model = VectorToSequence(vector_size=3, vocab_size=4, hidden_size=8, **options)
    keeps_contract(model, torch.randint(4, (3, 6)), torch.randn(3, 3), torch.tensor([6, 2, 4]))


def test_it_learns_which_sequence_belongs_to_which_vector():
    vectors, words = torch.eye(3), torch.tensor([[0, 1, 2, 3], [3, 3, 0, 0], [2, 0, 2, 0]])
    model = VectorToSequence(vector_size=3, vocab_size=4, hidden_size=16)
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(80):
        optimiser.zero_grad()
        (-model.log_prob(words, vectors).mean()).backward()
        optimiser.step()
    assert torch.equal(model.sample(3, vectors, length=4, temperature=0), words)


@pytest.mark.parametrize("context", [None, torch.zeros(3, 2), torch.zeros(2, 3), {"vector": torch.zeros(3, 3)}])
def test_contexts_and_sizes_that_do_not_fit_are_named(context):
    with pytest.raises(ValueError, match=r"^context"):
        VectorToSequence(vector_size=3, vocab_size=4, hidden_size=8)(torch.zeros(3, 2, dtype=torch.long), context)
    with pytest.raises(ValueError, match=r"^vector_size"):
        VectorToSequence(vector_size=0, vocab_size=4)


IMAGES = torch.randint(256, (3, 3, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
X = torch.randint(5, (3, 4), generator=torch.Generator().manual_seed(1))


def captioner(**options):
    torch.manual_seed(0)
    model = Captioner(5, ImageEncoder((8, 8)), embedding_size=6, hidden_size=7, **{"dropout": 0.0} | options)
    for name, weight in model.named_parameters():
        if "norm.weight" in name:
            torch.nn.init.ones_(weight)
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"attention": "multiplicative", "input_feeding": True, "cell": "gru"}, {"attention": None, "cell": "rnn"}],
)
def test_the_contract_holds(keeps_contract, options):
    keeps_contract(captioner(**options), X, IMAGES, lengths=torch.tensor([4, 2, 3]))


def test_captions_are_searched_for_each_image_alone():
    model = captioner()
    together = beam_search(model, IMAGES, beam_size=3, max_length=6, eos=0)
    for image, found in zip(IMAGES.split(1), together, strict=True):
        (alone,) = beam_search(model, image, beam_size=3, max_length=6, eos=0)
        assert [row.tolist() for row in alone.sequences] == [row.tolist() for row in found.sequences]
    assert len(greedy(model, IMAGES, max_length=4, eos=0)) == 3


def test_where_it_looks_adds_up_to_one():
    weights = captioner().attended(X, IMAGES)
    assert weights.shape == (3, 4, 16)
    torch.testing.assert_close(weights.sum(2), torch.ones(3, 4))


@pytest.mark.parametrize("context", [None, torch.zeros(3, 1, 8, 8), {"images": IMAGES}])
def test_what_is_no_image_is_refused(context):
    with pytest.raises(ValueError, match=r"images \(B, 3, H, W\)"):
        captioner()(X, context)
