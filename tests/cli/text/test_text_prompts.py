"""A prompt that ends inside a symbol: what is drawn follows p(x | x begins with the prompt)."""

import json
from itertools import product

import pytest
import torch

from chainrule.data import Beginning, BPEVocabulary, WordVocabulary
from chainrule.models import RecurrentLM, TransformerLM
from chainrule_app.tasks.text.sampling import Sampler, cover_log_probs

pytest.importorskip("tokenizers")
TEXT = "the best of the beach, the test is best. it's at best a tea\n\n\n\nthe  best\n" * 4
STREAM = BPEVocabulary.fit([TEXT], vocabulary_size=290)
LINES = BPEVocabulary.fit([TEXT], vocabulary_size=290, eos=True)
BYTES_OF_CHARACTERS = BPEVocabulary.fit(["é è êé éè 你你 你好 好你 " * 40], vocabulary_size=280)


def covers_of(vocabulary, rest, ids):
    """The first symbols of an encoding up to the end of a text that begins with `rest`."""
    for stop in range(1, len(ids) + 1):
        if len(b"".join(vocabulary._bytes[symbol] for symbol in ids[:stop])) >= len(rest.encode()):
            return tuple(ids[:stop])
    return None


@pytest.mark.parametrize(
    ("vocabulary", "alphabet", "prompt"),
    [
        (STREAM, "best ,\n", "the bes"),
        (STREAM, "es \n.", "the "),
        (STREAM, "tea's\n", "it'"),
        (STREAM, "t\n h", "a\n\n"),
        (STREAM, "t\n h", "a\n\nt"),
        (STREAM, "b 0\n", "a  "),
        (LINES, "best .", "the be"),
        (LINES, "the ", "the best\nthe"),
        (BYTES_OF_CHARACTERS, "é你好 ", "é "),
        (BYTES_OF_CHARACTERS, "éè你 ", "你"),
    ],
)
def test_covers_are_those_of_all_texts_that_begin_so(vocabulary, alphabet, prompt):
    """Enumerated: every encoding of a text with the prompt as its beginning continues one of the covers."""
    beginning = vocabulary.begin(prompt)
    begun = vocabulary.encode(prompt.removesuffix(beginning.rest)).tolist()
    assert begun == beginning.ids.tolist()
    found = set()
    for more in (more for length in range(5) for more in product(alphabet, repeat=length)):
        ids = vocabulary.encode(prompt + "".join(more)).tolist()
        assert ids[: len(begun)] == begun
        found.add(covers_of(vocabulary, beginning.rest, ids[len(begun) :]))
    assert found <= set(beginning.covers)
    for cover in beginning.covers:  # and each is the beginning of an encoding
        text = b"".join(vocabulary._bytes[symbol] for symbol in cover)
        assert text.startswith(beginning.rest.encode()) or beginning.rest.encode().startswith(text)
        assert len(text) >= len(beginning.rest.encode())
    others = [a for a in beginning.covers for b in beginning.covers if a != b and b[: len(a)] == a]
    assert others == []  # they exclude each other


def small_model(kind, vocabulary):
    torch.manual_seed(0)
    if kind == "lstm":
        return RecurrentLM(len(vocabulary), hidden_size=6).double().eval()
    return TransformerLM(len(vocabulary), model_size=8, num_heads=2, num_layers=1).double().eval()


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
@pytest.mark.parametrize(("vocabulary", "prompt"), [(STREAM, "the bes"), (STREAM, "b"), (LINES, "the best of the ")])
def test_covers_have_the_joint_probability_of_their_symbols(kind, vocabulary, prompt):
    """In float64 equal to the likelihood of the whole sequence less that of its beginning."""
    model, beginning = small_model(kind, vocabulary), vocabulary.begin(prompt)
    found = cover_log_probs(model, beginning)
    begun = beginning.ids.tolist()
    first = model.log_prob(torch.tensor([begun]))[0] if begun else torch.zeros((), dtype=torch.double)
    expected = torch.stack([model.log_prob(torch.tensor([[*begun, *cover]]))[0] - first for cover in beginning.covers])
    assert len(expected) > 1
    assert torch.allclose(found, expected.detach(), atol=1e-12, rtol=0)


def test_texts_are_drawn_from_the_renormalised_joint():
    """All canonical sequences up to two symbols after the prompt, by enumeration, and the frequencies of draws."""
    vocabulary = BPEVocabulary([("b", "e"), ("be", "s"), ("bes", "t"), ("s", "t")])
    torch.manual_seed(1)
    model = RecurrentLM(len(vocabulary), hidden_size=6).double().eval()
    with torch.no_grad():  # few symbols are likely: those of "best"
        for name, weight in model.named_parameters():
            if weight.shape[0] == len(vocabulary) and "bias" in name:
                weight.fill_(-9)
                weight[[ord("b"), ord("e"), ord("s"), ord("t"), 256, 257, 258, 259]] = 0
    beginning, n = vocabulary.begin("bes"), 4000
    assert sorted(beginning.covers) == [(257,), (258,)]  # be-s and be-st are merged: no text is written so
    drawn = Sampler(model, vocabulary).texts(n, beginning, 1, seed=0)
    assert {text for text, _ in drawn} == {"", "t"}
    expected = cover_log_probs(model, beginning).softmax(0)[1].item()
    frequency = sum(text == "t" for text, _ in drawn) / n
    assert abs(frequency - expected) < 5 * (expected * (1 - expected) / n) ** 0.5
    likeliest = Sampler(model, vocabulary, temperature=0).texts(3, beginning, 1, seed=0)
    assert {text for text, _ in likeliest} == {"t" if expected > 0.5 else ""}


@pytest.mark.parametrize(("vocabulary", "prompt"), [(STREAM, "the bes"), (LINES, "a te"), (STREAM, "the best ")])
def test_a_stream_gives_the_text_that_is_drawn_whole(vocabulary, prompt):
    sampler = Sampler(small_model("lstm", vocabulary), vocabulary, eos=vocabulary.eos)
    for seed in range(20):
        ((text, elements),) = sampler.texts(1, vocabulary.begin(prompt), 5, seed)
        assert "".join(sampler.stream(vocabulary.begin(prompt), 5, seed)) == text
        assert 1 <= elements <= 5
    texts = sampler.texts(30, vocabulary.begin(prompt), 1, 0)
    assert all(elements == 1 for _, elements in texts)


def test_a_last_word_that_was_never_seen_is_the_beginning_of_others():
    vocabulary = WordVocabulary(["the", "best", "bestial", "worst"])
    beginning = vocabulary.begin("the\nthe bes")
    assert (beginning.ids.tolist(), beginning.rest, list(beginning.covers)) == ([2, 1, 2], "bes", [(3,), (4,)])
    for whole in ("the best", "the bes ", "the x", "", "the <unk>"):
        assert vocabulary.begin(whole).covers == ()
    sampler = Sampler(small_model("lstm", vocabulary), vocabulary)
    assert {text for text, _ in sampler.texts(60, beginning, 1, seed=0)} == {"t", "tial"}


@pytest.mark.parametrize("prompt", ["", "ended\n", "x" * 300])
def test_prompts_that_cannot_go_on_are_taken_as_they_are(prompt):
    assert LINES.begin(prompt) == Beginning(pytest.approx(LINES.encode(prompt)))


@pytest.mark.parametrize("level", ["bpe", "word"])
def test_the_command_line_completes_the_last_word(command, ok, tmp_path, level):
    """ "It was the bes" went on with " bes" as a word of its own; a last blank of pieces of words was cut off."""
    (tmp_path / "text.txt").write_text("it was the best of times, it was the worst of times\n" * 200)
    line = ["train", tmp_path / "text.txt", "--level", level, "--steps", 60, "--model", "lstm", "--hidden-size", 16]
    ok(*line, "--out", tmp_path / "run")
    asked = ["sample", tmp_path / "run", "--length", 4, "--temperature", 0, "--json", "--prompt"]
    for prompt, completed in (("it was the bes", "it was the best "), ("it was the wor", "it was the worst ")):
        record = json.loads(command(*asked, prompt).out)
        assert record["prompt"] == prompt
        assert record["text"].startswith(completed)
    if level == "bpe":
        record = json.loads(command(*asked, "it was the ").out)
        assert record["prompt"] == "it was the "
        assert "  " not in record["text"]
