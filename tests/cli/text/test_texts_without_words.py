"""Texts of nothing but line ends, blanks, marks or one symbol: every verb answers, or refuses in one line."""

import pytest
from by_day import by_day

import chainrule

TEXTS = ["\n\n\n\n", "", "  \n", "a", "...!!", "Ж"]
VERBS = {
    "inspect": lambda run, file, text: run.inspect(file, rows=2, steps=3),
    "score a file": lambda run, file, text: run.score(file).per("element").to_pandas(),
    "score texts": lambda run, file, text: run.score([text, "", text]).to_pandas(),
    "adapt": lambda run, file, text: run.score(file, adapt=True)["nats"],
    "embed": lambda run, file, text: run.embed([text, "a", text]).to_pandas(),
    "sample": lambda run, file, text: run.sample(2, prompt=text, length=3, seed=0),
    "stream": lambda run, file, text: list(run.stream(prompt=text, length=3, seed=0)),
}


@pytest.mark.parametrize(("text", "purpose"), [(" " * 400, "train on"), ("a b " * 100 + " " * 400, "hold out")])
def test_a_part_without_words_is_refused_at_level_word(refused, tmp_path, text, purpose):
    """Blanks alone ended in a division by zero, and blanks at the end in words about `facts.train`."""
    (tmp_path / "blanks.txt").write_text(text)
    error = refused("train", tmp_path / "blanks.txt", "--task", "text", "--level", "word", "--out", tmp_path / "run")
    assert f"blanks.txt: only white space to {purpose}, which level word ignores" in error


@pytest.mark.parametrize("kind", by_day(["stream", "lines", "words"], "lines"))
def test_every_verb_answers_or_refuses_in_one_line(runs, tmp_path, kind):
    run, file = chainrule.load(runs / kind), tmp_path / "odd.txt"
    answered, refused = set(), []
    for text in TEXTS:
        file.write_bytes(text.encode())
        for verb, call in VERBS.items():
            try:
                call(run, file, text)
                answered.add((verb, text))
            except ValueError as error:  # any other error, such as one of torch, ends the test
                refused.append(str(error))
    assert [error for error in refused if "\n" in error or ("expected" not in error and "never saw" not in error)] == []
    assert {verb for verb, _ in answered} == set(VERBS)
    assert kind == "lines" or ("inspect", "\n\n\n\n") in answered
