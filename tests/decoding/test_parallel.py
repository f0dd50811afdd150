"""Sampling in windows of guesses gives the sample that sampling one by one gives."""

import pytest
import torch
from decoded_models import Table, TinyDecoder

from chainrule.base import AutoregressiveModel
from chainrule.decoding import NgramDraft, parallel, sample_parallel
from chainrule.decoding.verification import verify_by_rejection
from chainrule.heads import Categorical
from chainrule.models import (
    MADE,
    RNNMADE,
    GatedPixelCNN,
    ImageTransformer,
    PixelCNN,
    PixelCNNPP,
    RecurrentLM,
    TransformerLM,
)
from chainrule.state import map_state

V = 5
MODELS = {
    "rnn": lambda: RecurrentLM(V, "rnn", hidden_size=8),
    "lstm": lambda: RecurrentLM(V, "lstm", embedding_size=4, hidden_size=8, ngram_order=3),
    "softmax": lambda: TransformerLM(V, model_size=8, num_layers=2, num_heads=2, window=6, ngram_order=3),
    "wide-softmax": lambda: TransformerLM(V, model_size=8, num_layers=1, num_heads=2, position="learned"),
    "linear": lambda: TransformerLM(V, model_size=8, num_layers=2, num_heads=2, attention="linear"),
}
IMAGES = {
    "pixelcnn": lambda: PixelCNN((1, 5, 4), V, 8, 2, 3),
    "gated": lambda: GatedPixelCNN((2, 3, 4), V, channels=8, layers=2, kernel_size=3),
    "image-transformer": lambda: ImageTransformer((1, 5, 4), V, model_size=8, num_layers=1, num_heads=2),
}


def built(make, strength=2.0):
    torch.manual_seed(0)
    model = make().double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(strength)  # elements depend on each other, and are not all alike
    return model


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def ngrams():
    return NgramDraft(torch.randint(V, (300,), generator=seeded(1)), V, order=3)


@pytest.mark.parametrize("kind", MODELS)
def test_the_sample_is_that_of_the_model_whatever_guesses(kind):
    model = built(MODELS[kind])
    for n, window, draft in ((1, 4, None), (3, 7, ngrams()), (1, 5, built(MODELS["rnn"], 1.0))):
        drawn = sample_parallel(model, n, length=25, draft=draft, window=window, generator=seeded())
        assert torch.equal(drawn.x, model.sample(n, length=25, generator=seeded()))
        assert drawn.elements == 25
        assert 25 / window <= drawn.passes <= 25
        assert 0 <= drawn.accepted < drawn.guesses


@pytest.mark.parametrize("kind", IMAGES)
def test_images_are_those_of_the_model_in_windows_of_rows_or_whole(kind):
    model = built(IMAGES[kind])
    expected = model.sample(2, generator=seeded())
    for window in (5, 9, 1000):
        drawn = sample_parallel(model, 2, window=window, generator=seeded())
        assert torch.equal(drawn.x, expected)
        assert drawn.passes < drawn.elements == expected[0].numel()
    known = model.to_sequence(expected)[:, :6]  # ends inside a row
    drawn = sample_parallel(model, 2, prefix=known, window=8, generator=seeded(3))
    assert torch.equal(drawn.x, model.sample(2, prefix=known, generator=seeded(3)))


def test_guesses_of_the_model_itself_are_all_right():
    model = built(MODELS["softmax"])
    drawn = sample_parallel(model, 2, length=30, draft=model, window=5, generator=seeded())
    assert (drawn.passes, drawn.acceptance_rate, drawn.elements_per_pass) == (6, 1.0, 5.0)


@pytest.mark.parametrize("filters", [{"temperature": 0.6, "top_k": 3}, {"top_p": 0.7}, {"temperature": 0.0}])
def test_filters_are_those_of_sampling(filters):
    model, draft = built(MODELS["softmax"]), ngrams()
    drawn = sample_parallel(model, 2, length=20, draft=draft, generator=seeded(), **filters)
    assert torch.equal(drawn.x, model.sample(2, length=20, generator=seeded(), **filters))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rejection", [False, True])
def test_rows_end_where_the_end_symbol_is_drawn(seed, rejection):
    model, draft, prefix = built(MODELS["lstm"]), ngrams(), torch.tensor([[1, 2], [1, 0], [3, 4]])
    drawn = sample_parallel(
        model, 3, length=25, prefix=prefix, eos=0, draft=draft, rejection=rejection, generator=seeded(seed)
    )
    ended = (drawn.x == 0).long().cumsum(1) > 0
    assert (drawn.x[ended] == 0).all()
    assert ended[1, 1:].all()
    assert drawn.elements == max(int((~row).sum()) + bool(row.any()) for row in ended) - 2
    if not rejection:
        assert torch.equal(drawn.x, model.sample(3, length=25, prefix=prefix, eos=0, generator=seeded(seed)))


def test_a_length_of_the_prefix_draws_nothing():
    model, prefix = built(MODELS["rnn"]), torch.tensor([1, 2, 3])
    drawn = sample_parallel(model, 2, length=3, prefix=prefix)
    assert torch.equal(drawn.x, prefix.expand(2, 3))
    assert (drawn.elements, drawn.passes, drawn.acceptance_rate, drawn.elements_per_pass) == (0, 0, 0.0, 0.0)
    assert sample_parallel(model, 1, length=1).passes == 1
    made, image = built(lambda: MADE(6, [8])), built(IMAGES["image-transformer"])
    for whole, x in ((made, torch.ones(2, 6)), (image, torch.ones(2, 20, dtype=torch.long))):
        assert torch.equal(sample_parallel(whole, 2, prefix=x).x, whole.from_sequence(x))


def test_rows_read_their_own_context():
    model, context = TinyDecoder(), torch.tensor([[1.0, -1.0], [-2.0, 0.5]])
    drawn = sample_parallel(model, 2, context, length=9, draft=TinyDecoder(seed=1), generator=seeded())
    assert torch.equal(drawn.x, model.sample(2, context, length=9, generator=seeded()))


@pytest.mark.parametrize("kind", ["softmax", "wide-softmax", "pixelcnn", "gated", "image-transformer"])
@pytest.mark.parametrize("read", [1, 2])
def test_a_cache_is_cut_and_nothing_is_read_again(kind, read, monkeypatch):
    model = built((MODELS | IMAGES)[kind])
    x = torch.randint(V, (2, model.sequence_length or 12), generator=seeded())
    monkeypatch.setattr(AutoregressiveModel, "rewind", None)
    block = model.block_length
    for begin in range(0, min(9, x.shape[1] - 2 * block), block):
        state, x_prev = model.initial_state(2), None
        if begin:
            state, x_prev = model.unroll(x[:, :begin], state)[1], x[:, begin - 1]
        chunk = x[:, begin : begin + 2 * block]
        kept = read * block
        cut = model.rewind(state, model.unroll(chunk, state, x_prev)[1], chunk, x_prev, kept)
        expected = model.unroll(chunk[:, :kept], state, x_prev)[1]
        rest = x[:, begin + kept :], x[:, begin + kept - 1]
        for _ in range(2):  # a state may be read twice
            if rest[0].shape[1]:
                got, wanted = (model.unroll(rest[0], start, rest[1])[0].logits for start in (cut, expected))
                torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


def test_more_than_a_window_holds_is_read_again():
    model = built(MODELS["softmax"])
    x = torch.randint(V, (1, 20), generator=seeded())
    before = model.initial_state(1)
    cut = model.rewind(before, model.unroll(x[:, :9], before)[1], x[:, :9], None, 4)
    got, _ = model.unroll(x[:, 4:], cut, x[:, 3])
    torch.testing.assert_close(got.logits, model(x).logits[:, 4:], rtol=0, atol=1e-12)


P = [[0.1, 0.2, 0.7], [0.5, 0.4, 0.1], [0.3, 0.3, 0.4], [0.6, 0.1, 0.3]]
Q = [[0.3, 0.6, 0.1], [0.2, 0.3, 0.5], [0.8, 0.1, 0.1], [0.2, 0.5, 0.3]]
CRITICAL = 54.05  # chi-square of 26 degrees of freedom exceeds it once in 1,000


def chi_square(count=20_000):
    """Of draws of three elements against the 27 probabilities, guesses accepted by chance."""
    model = Table(P)
    drawn = sample_parallel(model, count, length=3, draft=Table(Q), rejection=True, generator=seeded(), window=3)
    every = torch.cartesian_prod(*[torch.arange(3)] * 3)
    expected = count * model.log_prob(every).exp()
    seen = (drawn.x @ torch.tensor([9, 3, 1])).bincount(minlength=27)
    return float(((seen - expected) ** 2 / expected).sum()), drawn


def test_guesses_accepted_by_chance_keep_the_distribution():
    statistic, drawn = chi_square()
    assert statistic < CRITICAL
    assert 0 < drawn.acceptance_rate < 1


def test_where_rounding_alone_tells_p_from_q_nothing_impossible_is_drawn(monkeypatch):
    scores = torch.tensor([-torch.inf, -2.285769462585449, 0.06995270401239395])
    p, q = Categorical(scores.expand(1, 2, 3)), Categorical((scores + 7.840776443481445).expand(1, 3))
    guesses = torch.tensor([[1, 0]])
    assert (p.probs[:, 0] - q.probs <= 0).all()
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.full(shape[0], 1 - 2**-24))
    symbols, right = verify_by_rejection(p, torch.zeros(1, 2, 3), guesses, [q], seeded())
    assert not right[0, 0]  # the guess is refused, by rounding
    assert symbols[0, 0] > 0


def test_accepting_every_guess_is_found_out(monkeypatch):
    def accept_all(tables, noise, guesses, drafts, generator):
        symbols, right = verify(tables, noise, guesses, drafts, generator)
        right[:, :-1] = True
        return torch.cat([guesses[:, :-1], symbols[:, -1:]], 1), right

    verify = parallel.verify_by_rejection
    monkeypatch.setattr(parallel, "verify_by_rejection", accept_all)
    assert chi_square()[0] > 10 * CRITICAL


def test_drawing_from_p_in_place_of_what_q_lacks_is_found_out(monkeypatch):
    def from_p(tables, noise, guesses, drafts, generator):
        symbols, right = verify(tables, noise, guesses, drafts, generator)
        return torch.where(right, symbols, Categorical(*tables.parameters).sample(generator=generator)), right

    verify = parallel.verify_by_rejection
    monkeypatch.setattr(parallel, "verify_by_rejection", from_p)
    assert chi_square()[0] > 10 * CRITICAL


def test_other_conditionals_than_categorical_ones_are_drawn_from_too():
    model = built(lambda: PixelCNNPP((1, 3, 4), levels=4, channels=8, layers=1, resolutions=1))
    drawn = sample_parallel(model, 50, generator=seeded()).x
    assert drawn.shape == (50, 1, 3, 4)
    assert 0 <= drawn.min() < drawn.max() < 4
    made, count = built(lambda: MADE(4, [8]), 3.0), 8000
    columns = sample_parallel(made, count, generator=seeded()).x
    every = torch.cartesian_prod(*[torch.arange(2.0, dtype=columns.dtype)] * 4)
    expected = count * made.log_prob(every).detach().exp()
    seen = (columns @ torch.tensor([8.0, 4.0, 2.0, 1.0], dtype=columns.dtype)).long().bincount(minlength=16)
    assert expected.min() > 5
    assert float(((seen - expected) ** 2 / expected).sum()) < 37.7  # 15 degrees of freedom exceed it once in 1,000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rejection": True}, "rejection: accepts guesses of a draft by chance: give a draft"),
        ({"window": 0}, "window: expected an integer >= 1, got 0"),
        ({"temperature": -1.0}, "temperature: expected a number >= 0"),
        ({"draft": NgramDraft([0, 1], 4)}, "draft: expected a model of 5 symbols, got one of 4"),
        ({"draft": RNNMADE(3, hidden_size=4, made_hidden=[4])}, "draft: expected a model over symbols"),
        ({"prefix": torch.zeros(9, dtype=torch.long)}, "length: expected at least 9"),
        ({"prefix": torch.tensor([V])}, "prefix: expected symbols in"),
        ({"context": torch.zeros(3)}, "context: expected 1 rows, or one for all, got 3"),
    ],
)
def test_arguments_out_of_range_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        sample_parallel(built(MODELS["rnn"]), 1, **{"length": 4} | options)


def test_a_model_of_frames_is_refused():
    with pytest.raises(ValueError, match="model: expected one over symbols"):
        sample_parallel(RNNMADE(3, hidden_size=4, made_hidden=[4]), 1, length=2)


@pytest.mark.parametrize("options", [{}, {"position": None}, {"window": 6}, {"norm": "rms", "activation": "swiglu"}])
def test_a_window_is_read_as_in_a_pass(options):
    torch.manual_seed(0)
    model = TransformerLM(V, model_size=8, num_layers=2, num_heads=2, ngram_order=3, **options).double().eval()
    state = expected = model.initial_state(1)
    read, x_prev = model.window_reader(), None
    for size in (1, 5, 2, 7):
        x = torch.randint(V, (1, size))
        with torch.no_grad():
            conditionals, state = read(x, state, x_prev)
            wanted, expected = model.unroll(x, expected, x_prev)
        torch.testing.assert_close(conditionals.logits, wanted.logits)
        torch.testing.assert_close(flat(state), flat(expected))
        x_prev = x[:, -1]
    assert read is not model.unroll


def flat(state):
    parts = []
    map_state(parts.append, state)
    return parts
