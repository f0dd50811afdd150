"""`--vectors`: taggers and classifiers begin with pretrained word vectors."""

import json

import numpy as np
import pytest
from small_data import WRITERS

import chainrule

STILL = ("--steps", 1, "--learning-rate", "1e-30")
VECTORS = {"tag": ["The 1 2 3 4", "cat 5 6 7 8"], "classify": ["4 4", "good 1 2 3 4", "bad 4 3 2 1", "text 0 1 0 1"]}


@pytest.mark.parametrize("task", ["tag", "classify"])
def test_words_begin_with_their_vectors_and_the_others_are_counted(ok, checked, tmp_path, task):
    source, *flags = WRITERS[task](tmp_path)
    (tmp_path / "glove.txt").write_text("\n".join(VECTORS[task]) + "\n")
    vectors = ("--vectors", tmp_path / "glove.txt")
    outcome = ok("train", source, *flags, *vectors, "--hidden-size", 8, *STILL, "--out", tmp_path / "run")
    run = chainrule.load(tmp_path / "run")
    vocabulary = run.task.vocabulary.words if task == "tag" else run.task.symbols.symbols
    known = {line.split()[0].lower(): np.array(line.split()[1:], float) for line in VECTORS[task][task == "classify" :]}
    weights = run.model.embedding.weight.detach().numpy()
    assert weights.shape[1] == 4
    for number, word in enumerate(vocabulary, 1):
        assert np.allclose(weights[number], known.get(word, np.nan), atol=1e-6) == (word in known)
    missing = len(set(vocabulary) - set(known))
    expected = f"{len(vocabulary) - missing} of {len(vocabulary)} words; the other {missing} start at random"
    assert f"glove.txt: vectors of 4 numbers for {expected}" in outcome.err
    facts = json.loads((tmp_path / "run/config.json").read_text())["facts"]
    assert (facts["words_without_vector"], facts["vectors"]["name"]) == (missing, "glove.txt")
    ok("train", "--resume", "--out", tmp_path / "run", "--steps", 2)
    assert len(checked(tmp_path / "run").x) == {"tag": 3, "classify": 4}[task]


def test_options_that_contradict_vectors_are_refused(refused, ok, tmp_path):
    source, *flags = WRITERS["classify"](tmp_path)
    (tmp_path / "glove.txt").write_text("good 1 2 3 4\n")
    vectors = ("--vectors", tmp_path / "glove.txt")
    assert "--vectors: requires --level word" in refused("train", source, *flags, *vectors, "--level", "char")
    assert "--embedding-size: expected 4" in refused("train", source, *flags, *vectors, "--embedding-size", 8)
    ok("train", source, *flags, "--steps", 1, "--out", tmp_path / "old")
    assert "--vectors: the run of --from has an embedding" in refused(
        "train", source, *flags, *vectors, "--from", tmp_path / "old"
    )
    (tmp_path / "glove.txt").write_text("zzz 1 2 3 4\n")
    assert "are the vectors for another" in refused("train", source, *flags, *vectors, "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()
