"""What is passed in memory is answered row by row, in order; the names of a frame's columns are never rows."""

import numpy as np
import pytest

import chainrule

pandas = pytest.importorskip("pandas")

FILMS = [("good film", "pos"), ("bad film", "neg")] * 30


@pytest.fixture(scope="module")
def classifier():
    return chainrule.fit(FILMS, steps=1)


@pytest.mark.parametrize(
    "texts",
    [
        ["good film", "", "bad\nfilm, twice"],
        pandas.Series(["good film", None, "bad\nfilm, twice"], name="good"),
        pandas.DataFrame({"good film": ["good film", "", "bad\nfilm, twice"], "bad film": [1, 2, 3]}),
        pandas.DataFrame({"stars": ["a", "a", "b"], "opinion": ["good film", "", "bad\nfilm, twice"]}),
    ],
    ids=["list", "series", "frame", "frame of texts"],
)
def test_each_text_has_its_label(classifier, texts):
    answer = classifier.classify(texts)
    assert answer["index"] == [0, 1, 2]
    assert answer["text"] == ["good film", "", "bad\nfilm, twice"]
    assert classifier.embed(texts)["index"] == [0, 1, 2]
    assert classifier.inspect(texts).findings["read"]["texts"] == 3


def test_columns_of_labelled_frames_may_have_any_names(classifier):
    frame = pandas.DataFrame(FILMS, columns=["good film", "neg"])
    assert classifier.evaluate(frame).summary["texts"] == len(FILMS)
    run = chainrule.fit(frame, task="classify", steps=1)
    assert run.classify(frame).names[0] == "index"
    assert (run.path / "model.safetensors").read_bytes() == (classifier.path / "model.safetensors").read_bytes()


def test_each_sentence_has_its_tags_and_its_translation():
    tagger = chainrule.fit([[("Ada", "B-PER"), ("saw", "O")]] * 30, steps=1)
    assert tagger.tag(["Ada saw", "", "Ada"]).to_dict()["index"] == [0, 1, 2]
    for sentences in ([["Ada"], []], [[], ["Ada"]], [[]]):  # the first was once expected to have words
        assert tagger.tag(sentences)["words"] == sentences
    assert tagger.evaluate([[], [("Ada", "B-PER")]]).summary["words"] == 1
    with pytest.raises(ValueError, match="data index 1: expected words as in the sentences before, got pairs"):
        tagger.tag([["Ada"], [("saw", "O")]])  # a pair was once written as one word
    translator = chainrule.fit([("das haus", "the house"), ("ein hund", "a dog")] * 30, task="translate", steps=1)
    answer = translator.translate(pandas.Series(["das haus", None, "ein hund"]))
    assert (answer["index"], answer["source"]) == ([0, 1, 2], ["das haus", "", "ein hund"])


def test_names_of_columns_that_look_like_cells_are_names():
    frame = pandas.DataFrame({"2020": ["x", "y", "z"] * 20, "x": ["u", "v"] * 30, "y": ["2020", "y", "z"] * 20})
    run = chainrule.fit(frame, steps=1, hidden_size=8)
    assert list(run.sample(2).columns) == ["2020", "x", "y"]
    assert run.score(frame.head(3))["index"] == [0, 1, 2]


def test_each_image_and_each_sound_has_its_figures():
    random = np.random.default_rng(0)
    images = random.integers(0, 2, (40, 6, 6), dtype=np.uint8)
    run = chainrule.fit(images, steps=1, channels=4, layers=1)
    assert run.score(images[:3])["index"] == [0, 1, 2]
    sounds = [random.normal(0, 0.1, 400).astype(np.float32) for _ in range(8)]
    run = chainrule.fit(sounds, rate=8000, steps=1, channels=4)
    assert run.score(sounds[:2])["index"] == [0, 1]
