"""Tagged sentences from a file to a run, and what the verbs do with it."""

import csv
import io
import json

import numpy as np
import pytest
from tagged_words import SMALL, sentences

import chainrule
from chainrule_app.tasks.tag.run import TagRun


def test_training_says_what_it_found_shows_examples_and_keeps_the_most_accurate_weights(ok, files, tmp_path):
    steps = ("--steps", 20, "--validate-every", 10, "--template-passes", 0, "--json")
    outcome = ok("train", files / "train.conllu", "--out", tmp_path / "run", *steps, *SMALL)
    for shown in (
        "train.conllu, CoNLL-U with tags in column upos: 108 sentences",
        "4 tags: ADJ NOUN PUNCT VERB",
        "accuracy",
        "(is ",  # a wrong tag beside the right one
    ):
        assert shown in outcome.err
    summary = json.loads(outcome.out)
    records = [record for record in TagRun.open(tmp_path / "run").metrics() if record["event"] == "validation"]
    assert len(records) == 2
    assert summary["accuracy"] == max(record["accuracy"] for record in records)


def test_it_learns_what_endings_tell_of_words_never_seen(command, files, run):
    figures = json.loads(command("evaluate", run, files / "test.conllu", "--json").out)
    assert figures["unknown_accuracy"] > 0.9
    assert figures["words"] == sum(map(len, sentences(20, 2)))
    assert "f1" not in figures
    task = TagRun.open(run)
    network, valid = task.model(), task.corpus().valid.batch(np.arange(12))
    network.templates = None
    given = network.decode(valid.context, valid.lengths)
    assert (given == valid.x)[given >= 0].double().mean() > 0.9  # it learned so by itself, too


def test_evaluation_is_that_of_the_tags_that_tag_writes(command, ok, files, run, tmp_path):
    ok("tag", run, files / "test.conllu", "--out", tmp_path / "tagged.conllu")
    before, after = (path.read_text().splitlines() for path in (files / "test.conllu", tmp_path / "tagged.conllu"))
    pairs = [(a.split("\t"), b.split("\t")) for a, b in zip(before, after, strict=True)]
    assert all(a[:3] + a[4:] == b[:3] + b[4:] for a, b in pairs)
    words = [(a[3], b[3]) for a, b in pairs if len(a) == 10]
    shown = command("evaluate", run, files / "test.conllu").out.splitlines()
    right = sum(true == given for true, given in words) / len(words)
    figures = {"sentences": "20", "words": str(len(words)), "accuracy": f"{right:.4f}"}
    for name, figure in figures.items():
        assert [line.split()[1:] for line in shown if line.split()[0] == name] == [[figure]]
    assert shown[-1] == "measured: exact; nats per tag given the words, 4 tags"


def test_json_has_probabilities_and_the_best_alternatives(command, ok, run, typed):
    typed("miring badness\n\ntumful .\n")
    outcome = ok("tag", run, "-", "--text", "--json", "--n-best", 3)
    first, empty, last = map(json.loads, outcome.out.splitlines())
    assert first["words"] == ["miring", "badness"]
    assert [record["line"] for record in (first, empty, last)] == [1, 2, 3]
    assert len(first["n_best"]) == 3
    assert first["n_best"][0] == {"tags": first["tags"], "nats": first["nats"]}
    nats = [other["nats"] for other in first["n_best"]]
    assert nats == sorted(nats)
    assert nats[0] > 0
    assert all(0 < share <= 1 for share in first["probabilities"])
    assert (empty["words"], empty["tags"], empty["nats"], len(empty["n_best"])) == ([], [], 0.0, 1)
    assert last["words"] == ["tumful", "."]
    assert "spans" not in first
    typed("miring badness\n")
    heading, row = command("tag", run, "-", "--text", "--n-best", 2).out.splitlines()
    assert heading.split() == ["line", "words", "tags", "nats", "n_best"]
    assert f"{first['nats']:.4f}" in row
    typed("miring badness\n\n")
    rows = list(csv.DictReader(io.StringIO(command("tag", run, "-", "--text", "--csv").out)))
    assert [json.loads(row["tags"]) for row in rows] == [first["tags"], []]


def test_python_tags_sentences_and_words(run, names_run):
    loaded = chainrule.load(run)
    texts, words = ["miring  badness", "", "tumful\t."], [["miring", "badness"], [], ["tumful", "."]]
    found = loaded.tag(texts)
    assert found["words"] == words
    assert found.to_dict() == loaded.tag(words).to_dict()
    assert [len(row["tags"]) for row in found] == [2, 0, 2]
    assert found[0]["nats"] > 0 == found[1]["nats"]
    assert len(loaded.tag(texts, n_best=3)[0]["n_best"]) == 3
    for odd in (["new york"], [""], ["a\tb"], ["a\n"]):
        with pytest.raises(ValueError, match="data index 1: expected words without blanks"):
            loaded.tag([["miring"], odd])
    (row,) = chainrule.load(names_run).tag(["met Bo Li here"])
    assert row["tags"] == ["O", "B-P", "I-P", "O"]
    assert row["spans"] == [{"type": "P", "start": 1, "stop": 3, "start_char": 4, "end_char": 9}]
    assert row["text"] == "met\tO\nBo\tB-P\nLi\tI-P\nhere\tO\n"


def test_untouched_parts_of_a_file_keep_their_bytes(command, ok, names_run, tmp_path):
    lines = ["# id 1", "met  X", "Bo\u200f   X", "10\u00a0000 X", "", "", "-DOCSTART- X", "", "Li X", "", "# the end"]
    (tmp_path / "in.conll").write_text("".join(f"{line}\n" for line in lines))
    ok("tag", names_run, tmp_path / "in.conll", "--out", tmp_path / "out.conll")
    back = (tmp_path / "out.conll").read_text()
    assert command("tag", names_run, tmp_path / "in.conll").out == back
    assert len(back.split("\n")) == len(lines) + 1
    for line, written in zip(lines, back.split("\n"), strict=False):
        tagged = line.split(" ")[0] in ("met", "Bo\u200f", "10\u00a0000", "Li")
        assert written.startswith(line[:-1] if tagged else line)
        assert (written != line) == tagged
    assert command("tag", names_run, tmp_path / "out.conll").out == back


def test_empty_sentences_come_back_empty(command, run, typed):
    typed("\nmiring\n\n\nbadness\tX\n".replace("\tX", ""))
    lines = command("tag", run, "-").out.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["", "miring", "", "", "badness"]
    assert [len(line.split("\t")) for line in lines] == [1, 2, 1, 1, 2]
    typed("\n")
    assert command("tag", run, "-").out == "\n"
    typed("")
    assert command("tag", run, "-").out == ""


def test_a_word_of_text_may_look_like_a_line_between_documents(command, run, typed):
    typed("-DOCSTART- the dog\n")
    outcome = command("tag", run, "-", "--text")
    rows = [line.split("\t") for line in outcome.out.splitlines()]
    assert [(row[0], len(row)) for row in rows] == [("-DOCSTART-", 2), ("the", 2), ("dog", 2), ("", 1)]


def test_spans_are_well_formed_and_judged_by_entities(command, files, names_run):
    figures = json.loads(command("evaluate", names_run, files / "names.conll", "--json").out)
    assert figures["f1"] == pytest.approx(1.0)
    assert figures["by_type"] == {"P": {"f1": pytest.approx(1.0), "entities": 24}}
    shown = command("evaluate", names_run, files / "names.conll").out
    assert {tuple(line.split()) for line in shown.splitlines()} >= {("F1", "1.0000"), ("entities", "24")}
    assert ["P", "1.0000", "24"] in [line.split() for line in shown.splitlines()]
    assert "entity F1 100.00%" in command("info", names_run).out


def test_info_says_what_there_is(command, run):
    shown = command("info", run).out
    for part in ("train.conllu", "dev.conllu.gz", "column upos", "4 tags: ADJ NOUN PUNCT VERB", "accuracy"):
        assert part in shown
    assert json.loads(command("info", run, "--json").out)["tags"] == ["ADJ", "NOUN", "PUNCT", "VERB"]


@pytest.mark.slow
def test_a_tagger_keeps_the_rules_of_a_model_of_labels(ok, names_run):
    outcome = ok("check", names_run, "--json")
    rules = {record["name"]: record["applies"] for record in map(json.loads, outcome.out.splitlines())}
    assert len(rules) == 7
    assert all(rules.values())


def test_inspection_shows_parts_certainty_and_neighbours(command, refused, run, names_run, files, typed, tmp_path):
    figures = json.loads(command("inspect", names_run, "--top", 3, "--json").out)
    assert sum(figures["parameters"].values()) == sum(w.numel() for w in TagRun.open(names_run).model().parameters())
    assert 0.9 < figures["certainty"] <= 1
    assert sum(row["words"] for row in figures["tags"].values()) == figures["read"]["words"]
    assert len(figures["least_sure"]) == len(figures["neighbours"]["favoured"]) == 3
    assert figures["neighbours"]["forbidden"] == 1  # I-P after O
    typed("miring badness\n".replace(" ", "\n"))
    shown = command("inspect", run, "-").out
    assert "1 sentences of standard input, 2 words" in shown
    assert "least sure of:" in shown
    assert "favoured" in shown
    command("inspect", run, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert all(heading in page for heading in ("Certainty of each tag", "Least sure of", "Neighbouring tags", "Parts"))


def test_another_column_and_a_file_of_columns(ok, files, tmp_path, typed):
    arguments = ("train", files / "train.conllu", "--column", "xpos", "--head", "softmax", "--character-encoder", "cnn")
    ok(*arguments, "--out", tmp_path / "run", "--steps", 2, *SMALL)
    assert TagRun.open(tmp_path / "run").vocabulary.tags == ("AD", "NO", "PU", "VE")
    typed("miring\tVE\nbadness\tNO\n")  # of a run on CoNLL-U: the last column
    ok("evaluate", tmp_path / "run", "-")


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("a\tX\nb\n", (), "in.conll line 2: expected 2 columns"),
        ("a\tB-X\n\n" * 9 + "b\tO\nc\tI-X\n", (), "in.conll line 20: I-X after O is impossible in BIO tags"),
        ("a\tX\nb\tX\nc\tX\n", ("--max-length", 2), "in.conll line 1: a sentence of more than 2 words"),
        ("a\tX\n", (), "in.conll: expected enough sentences to hold some out"),
        ("a\tO\n\n" * 9, (), "in.conll: column: expected at least two different tags, got only 'O' in column 2"),
        ("a\tX\n\n" * 9, ("--column", "upos"), "in.conll: column: expected a number from 2 to 2"),
        (
            "a\tX\nb\tY\n\n" * 9,
            ("--character-encoder", "lstm", "--character-size", 7),
            "--character-size: expected an even number",
        ),
    ],
)
def test_what_cannot_be_trained_on_leaves_nothing(refused, tmp_path, content, options, message):
    (tmp_path / "in.conll").write_text(content)
    assert message in refused("train", tmp_path / "in.conll", "--out", tmp_path / "run", *options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.conll"]


def test_impossible_tags_are_repaired_where_that_is_asked_for(ok, tmp_path):
    (tmp_path / "in.conll").write_text("a\tB-X\n\n" * 9 + "b\tO\nc\tI-X\n")
    outcome = ok("train", tmp_path / "in.conll", "--repair", "--out", tmp_path / "run", "--steps", 1, *SMALL)
    assert "entity F1 selects the weights; impossible tags repaired in 1" in outcome.err
    found = ok("evaluate", tmp_path / "run", tmp_path / "in.conll", "--json").out  # read as in training
    assert json.loads(found)["repaired"] == 1


def test_what_cannot_be_evaluated_or_tagged_is_named(refused, command, ok, run, names_run, files, typed, tmp_path):
    typed("miring\tVERB\nbadness\tNEW\n")
    line = refused("evaluate", run, "-")
    assert "standard input line 2: the tag 'NEW' was not seen in training (tags: ADJ, NOUN" in line
    typed("miring\tVERB\nbadness\tNEW\n")
    figures = json.loads(command("evaluate", run, "-", "--allow-unseen", "--json").out)
    assert figures["accuracy"] <= 0.5
    assert figures["nats_per_word"] is None
    typed("Bo\tO\nLi\tI-P\n")
    assert "standard input line 2: I-P after O is impossible" in refused("evaluate", names_run, "-")
    typed("Bo\tO\nLi\tI-P\n")
    ok("evaluate", names_run, "-", "--repair")
    typed("a\tX\nb\n")
    assert "standard input line 2: expected 2 columns" in refused("tag", run, "-", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    typed("a " * 600)
    assert "standard input line 1: expected at most 512 words, got 600" in refused("tag", run, "-", "--text")
    assert "--n-best: expected" in refused("tag", run, files / "test.conllu", "--json", "--n-best", 1 << 63)
    typed("\n\n")
    assert "expected at least one sentence with words" in refused("evaluate", names_run, "-")
    assert "no such file" in refused("tag", run, tmp_path / "none")


@pytest.mark.parametrize(
    ("name", "value"),
    [("column", 3), ("words", {"train": 1}), ("scheme", "x"), ("validation", {}), ("source", None), ("conllu", "yes")],
)
def test_a_config_that_was_tampered_with_is_refused_in_a_line(refused, run, tmp_path, name, value):
    config = json.loads((run / "config.json").read_text())
    config["facts"][name] = value
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    line = refused("info", tmp_path / "run")
    assert "config.json" in line
    assert name in line.partition("config.json")[2]


def test_spans_of_texts_come_back_as_spans(ok, tmp_path):
    texts = [("Bo Li, here.", [[0, 5, "P"]]), ("met Cy", [[4, 6, "P"]])] * 10
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps({"text": text, "label": spans}) + "\n" for text, spans in texts))
    ok("train", file, "--out", tmp_path / "run", "--steps", 80, *SMALL)
    outcome = ok("tag", tmp_path / "run", file, "--out", tmp_path / "b.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert [(row["text"], row["label"]) for row in rows] == texts, outcome.err
    run = chainrule.load(tmp_path / "run")
    assert run.tag(["met  Cy"]).values == [[[5, 7, "P"]]]
    assert run.evaluate(file).summary["f1"] == 1
