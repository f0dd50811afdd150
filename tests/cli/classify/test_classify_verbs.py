"""`chainrule train ... --task classify`, `classify`, `evaluate` and `info`, from the command line."""

import io
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from chainrule.layers import NgramScores
from chainrule.models import SequenceClassifier
from chainrule.training import save_weights
from chainrule_app.tasks.classify import task as classify_task
from chainrule_app.tasks.classify.run import ClassifyRun
from chainrule_app.tasks.classify.task import ClassifierTraining, LabelledData
from chainrule_app.tasks.config import Duration, RunConfig
from chainrule_app.tasks.run_directory import WEIGHTS
from chainrule_app.training_run import create_run


def rows(count: int) -> str:
    """Lines whose label is told by one word."""
    words = {"good": "1", "fine": "1", "bad": "0", "poor": "0"}
    return "".join(
        f"thing {n} of the week is {word} they say\t{words[word]}\n" for n in range(count) for word in [[*words][n % 4]]
    )


def alone(model: SequenceClassifier) -> None:
    """Leave the network without the classifiers that are averaged with it."""
    model.ngrams, model.tfidf, model.shares = None, None, torch.ones(1)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labelled")
    (folder / "train.tsv").write_text(rows(80), encoding="utf-8")
    (folder / "test.tsv").write_text(rows(12), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def run(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with the weights that a model begins with; not to be written to."""
    out = tmp_path_factory.mktemp("runs") / "reviews"
    asked = RunConfig(
        sources={"source": str(files / "train.tsv"), "validation": None, "vectors": None},
        data=LabelledData(max_length=9),
        model="classifier",
        options=ClassifyRun.MODELS["classifier"].options(hidden_size=4, embedding_size=6),
        duration=Duration(steps=2),
        training=ClassifierTraining(batch_size=8),
    )
    create_run(ClassifyRun, asked, out, overwrite=False)
    opened = ClassifyRun.open(out)
    save_weights(out / WEIGHTS, opened.new_model(0), {})
    return out


def test_a_run_learns_to_tell_texts_apart_and_shows_what_it_got_wrong(command, ok, files, tmp_path):
    out = tmp_path / "run"
    made = ok(
        "train", files / "train.tsv", "--task", "classify", "--validation", files / "test.tsv", "--out", out,
        "--epochs", 8, "--hidden-size", 8, "--embedding-size", 16, "--batch-size", 8, "--learning-rate", 0.01,
        "--validate-every", 20,
    )  # fmt: skip
    assert (
        "without a header, texts in column 1, labels in column 2: 80 texts (720 words) to train on, 12 held out"
        in made.err
    )
    assert "2 labels: 0 50%, 1 50%" in made.err
    assert "accuracy" in made.err
    assert "best: accuracy 100.00% on the held-out texts" in made.out
    assert f"chainrule classify {out} -" in made.out
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert max(record["accuracy"] for record in records if record["event"] == "validation") == 1
    figures = json.loads(command("evaluate", out, files / "test.tsv", "--json").out)
    assert (figures["accuracy"], figures["texts"], figures["errors"]) == (1.0, 12, [])
    assert figures["confusion"] == {"0": {"0": 6, "1": 0}, "1": {"0": 0, "1": 6}}
    opened = ClassifyRun.open(out)
    network, valid = opened.model(), opened.texts().valid
    alone(network)  # it learned so by itself, too
    assert (network(valid.texts.context(np.arange(12))).probs.argmax(1).numpy() == valid.labels).all()


@pytest.mark.parametrize(
    ("header", "column"), [("Name\tDeine Wahl\n", "'Deine Wahl'"), ("", None), ("a rare one\t2\n", None)]
)
def test_a_first_row_with_a_label_of_its_own_is_pointed_out(command, tmp_path, header, column):
    """Among names of one word each it may be data; as a class of its own it was trained on without a word."""
    names = "".join(f"{name}\t{'ab'[n % 2]}\n" for n, name in enumerate(["Anna", "Bo", "Cy", "Di"] * 8))
    (tmp_path / "names.tsv").write_text(header + names)
    arguments = ("train", tmp_path / "names.tsv", "--task", "classify", "--level", "char", "--steps", 1)
    small = ("--hidden-size", 4, "--embedding-size", 4, "--ngram-order", 0)
    told = command(*arguments, *small, "--out", tmp_path / "run").err
    remark = "occurs once, in line 1: if that is a header, pass --label-column"
    assert (f"{remark} {column}\n" in told) if column else (remark not in told)
    if column:
        again = command(*arguments, *small, "--label-column", "Deine Wahl", "--out", tmp_path / "again").err
        assert "with a header" in again
        assert "2 labels: " in again
        assert remark not in again


def test_mistakes_are_shown_at_each_validation(run: Path) -> None:
    opened = ClassifyRun.open(run)
    metric = opened.validation_metric()
    model = opened.model()
    alone(model)
    model.output.weight.data.zero_()
    model.output.bias.data.copy_(model.output.bias.new_tensor([5.0, 0.0]))
    rows = np.arange(metric.rows)[::-1].copy()
    measured = metric.compare(rows, metric.answer(model, rows), 1)
    wrong = [line for line in measured.text.splitlines() if ": 0 99%, is 1: thing" in line]
    assert len(wrong) == 2
    assert measured.value == (opened.texts().valid.labels == 0).mean()


def test_every_text_gets_its_label_and_probability(command: Callable, run: Path, files: Path) -> None:
    heading, *lines = command("classify", run, files / "test.tsv").out.splitlines()
    assert heading.split() == ["line", "label", "probability", "text"]
    assert len(lines) == 12
    number, label, share, text = lines[0].split(maxsplit=3)
    assert number == "1"
    assert label in ("0", "1")
    assert 0.5 <= float(share) <= 1
    assert text == "thing 0 of the week is good they say"
    both = command("classify", run, files / "test.tsv", "--top", 2).out.splitlines()[1].split()
    assert both[1:3] == [label, share]
    assert float(both[2]) + float(both[4]) == pytest.approx(1, abs=2e-4)


def test_json_has_all_probabilities_words_and_weights(command: Callable, run: Path, files: Path) -> None:
    records = [json.loads(line) for line in command("classify", run, files / "test.tsv", "--json").out.splitlines()]
    assert [record["line"] for record in records] == list(range(1, 13))
    for record in records:
        assert (
            record["probabilities"][record["label"]] == record["probability"] == max(record["probabilities"].values())
        )
        assert sum(record["probabilities"].values()) == pytest.approx(1)
        assert record["tokens"] == record["text"].split()
        assert sum(record["attention"]) == pytest.approx(1)
        assert len(record["attention"]) == len(record["tokens"])


def test_a_text_is_answered_alike_alone_and_among_others(command, run, files, monkeypatch):
    together = [json.loads(line) for line in command("classify", run, files / "test.tsv", "--json").out.splitlines()]
    text = together[5]["text"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{text}\n".encode())))
    alone = json.loads(command("classify", run, "-", "--json").out)
    assert alone["probability"] == pytest.approx(together[5]["probability"], abs=1e-6)


def test_empty_texts_are_kept_and_answered_with_the_prior(command: Callable, run: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("a good one\n\n   \n", encoding="utf-8")
    answered = command("classify", run, texts, "--json")
    records = [json.loads(line) for line in answered.out.splitlines()]
    prior = ClassifyRun.open(run).labels.prior
    assert [not record["tokens"] for record in records] == [False, True, True]
    assert list(records[1]["probabilities"].values()) == pytest.approx(prior)
    assert list(records[0]["probabilities"].values()) != pytest.approx(prior, abs=1e-5)
    assert answered.err == "2 empty texts: predicted the label frequencies of training\n"


def test_a_long_text_is_cut_and_that_is_said(command: Callable, run: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("one two three four five six seven eight nine ten eleven\nshort\n", encoding="utf-8")
    answered = command("classify", run, texts, "--json")
    records = [json.loads(line) for line in answered.out.splitlines()]
    assert [(record["cut"], len(record["tokens"])) for record in records] == [(2, 9), (0, 1)]
    assert answered.err == "1 text cut after element 9 (--max-length)\n"


def test_a_page_shades_words_by_attention_and_escapes_them(ok: Callable, run: Path, tmp_path: Path) -> None:
    texts, page = tmp_path / "texts.txt", tmp_path / "page.html"
    texts.write_text("<b> is good & bad\n\n", encoding="utf-8")
    ok("inspect", run, texts, "--out", page)
    assert "Content-Security-Policy\" content=\"default-src 'none'" in page.read_text(encoding="utf-8")
    written = page.read_text()
    assert "&lt;</i>" in written
    assert "<b> is" not in written
    assert written.count("<i ") == 7
    shades = [int(shade) for shade in re.findall("--a:([0-9]+)%", written)]
    assert len(shades) == 7
    assert sum(shades) == pytest.approx(7 * 80 / 5, abs=4)  # an even share is a fifth of the darkest shade
    assert "http:" not in written
    assert "https:" not in written


def test_evaluation_is_a_table_for_people(command: Callable, run: Path, files: Path) -> None:
    shown = command("evaluate", run, files / "test.tsv", "--errors", 1).out
    rows = "confusion: a row for each true label, a column for each predicted one"
    for part in ("accuracy  ", "macro F1", "nats per text", "calibration error", "precision", rows):
        assert part in shown


def test_info_tells_of_texts_and_labels(command: Callable, run: Path) -> None:
    shown = command("info", run).out
    counts = ClassifyRun.open(run).labels.counts
    assert f"2 labels: 0 {counts['0'] / 72:.0%}, 1 {counts['1'] / 72:.0%}" in shown
    assert "72 texts (" in shown
    facts = json.loads(command("info", run, "--json").out)
    assert facts["task"] == "classify"
    assert facts["facts"]["columns"] == {"text": 0, "label": 1, "header": False, "text_name": None, "label_name": None}


def test_a_classifier_keeps_the_rules_of_a_model_of_labels(ok: Callable, run: Path) -> None:
    outcome = ok("check", run)
    assert "4 held-out texts, the first 12 words of each" in outcome.out.splitlines()[0]
    assert [line.split()[1] for line in outcome.out.splitlines()[1:]] == ["pass"] * 7


def test_inspection_shows_parts_certainty_and_attention(command, run, files, tmp_path):
    page = tmp_path / "page.html"
    figures = json.loads(command("inspect", run, files / "test.tsv", "--out", page, "--top", 2, "--json").out)
    assert figures["read"]["texts"] == sum(row["texts"] for row in figures["labels"].values()) == 12
    assert sum(figures["parameters"].values()) == sum(w.numel() for w in ClassifyRun.open(run).model().parameters())
    assert 0 < figures["attention"]["spread"] <= 1
    assert len(figures["attention"]["words"]) == 2
    assert page.read_text(encoding="utf-8").count("<b>") == 12
    shown = command("inspect", run, "--out", page).out
    assert "8 held-out texts" in shown
    assert f"page: {page}" in shown


@pytest.mark.parametrize(("level", "order"), [("word", 2), ("char", 6), ("byte", 6)])
def test_ngrams_are_counted_of_pairs_of_words_or_of_six_characters(planned, files, tmp_path, level, order):
    sizes = ["--hidden-size", 4, "--embedding-size", 6, "--steps", 1, "--level", level]
    for name, asked, expected in (("run", (), order), ("none", ("--ngram-order", 0), None)):
        planned(files / "train.tsv", "--task", "classify", "--out", tmp_path / name, *sizes, *asked)
        ngrams = ClassifyRun.open(tmp_path / name).new_model(0).ngrams
        assert (ngrams and ngrams.ngrams.order) == expected


def test_the_ngrams_of_a_new_run_begin_as_naive_bayes(run: Path, files: Path) -> None:
    opened = ClassifyRun.open(run)
    ngrams, texts = opened.model().ngrams, opened.texts()
    assert ngrams is not None
    context = texts.train.texts.without_parts().context(np.arange(len(texts.train.labels)), 9)
    known = torch.from_numpy(np.array(texts.train.labels))
    assert (ngrams(context["inputs"], context["lengths"]).argmax(1) == known).all()
    fresh = NgramScores(opened.symbols.elements, 2, 2)
    fresh.fit(lambda: [(context["inputs"], context["lengths"], known)], torch.tensor(opened.labels.prior))
    torch.testing.assert_close(fresh.table.weight, ngrams.table.weight)
    torch.testing.assert_close(fresh.bias, ngrams.bias)


def test_damaged_ngrams_are_refused_in_a_line(refused: Callable, run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "copy")
    (tmp_path / "copy" / WEIGHTS).unlink()
    ngrams = tmp_path / "copy" / "data" / "ngrams"
    ngrams.write_bytes(ngrams.read_bytes()[:-4])
    assert "ngrams" in refused("train", "--resume", "--out", tmp_path / "copy")


def test_a_long_budget_reads_words_five_times_or_for_a_thousand_steps(planned, files, tmp_path, monkeypatch):
    monkeypatch.setattr("chainrule_app.tasks.preparation.step_rate", lambda *_: 1e6)
    monkeypatch.setattr(classify_task, "_FEWEST_STEPS", 18)
    train = [files / "train.tsv", "--task", "classify", "--hidden-size", 4, "--embedding-size", 6]
    outcome = planned(*train, "--batch-size", 8, "--out", tmp_path / "run", "--budget", "20s")
    assert "5 passes over the texts are enough\n" in outcome.err
    assert "reproduce with: --epochs 5 " in outcome.err
    config = ClassifyRun.open(tmp_path / "run").config
    assert (config.duration.epochs, config.duration.budget) == (5.0, None)
    monkeypatch.setattr(classify_task, "_FEWEST_STEPS", 63)
    outcome = planned(*train, "--batch-size", 8, "--out", tmp_path / "few", "--budget", "20s")
    assert "7 passes over the texts are enough\n" in outcome.err
    planned(*train, "--out", tmp_path / "chars", "--budget", "2s", "--level", "char")
    assert ClassifyRun.open(tmp_path / "chars").config.duration.budget == 2.0


def test_what_cannot_be_is_refused_in_one_line(refused: Callable, run: Path, files: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.tsv"
    out = tmp_path / "out"
    bad.write_text("fine\t1\nno tab here\n", encoding="utf-8")
    assert f"{bad} line 2: expected at least 2 columns" in refused("train", bad, "--task", "classify", "--out", out)
    bad.write_text("fine\t1\nbad\t1\n", encoding="utf-8")
    assert "all 2 rows have the label '1'" in refused("train", bad, "--task", "classify", "--out", out)
    bad.write_text("fine\t1\nwhat\tmaybe\n", encoding="utf-8")
    assert f"{bad} line 2: the label 'maybe' was not seen in training" in refused("evaluate", run, bad)
    asked = ("train", files / "train.tsv", "--task", "classify", "--out", out, "--pooling", "median")
    assert "pooling: expected one or more of" in refused(*asked)
    assert not out.exists()
    assert not list(tmp_path.glob("*.preparing"))
    assert "unknown option --plot" in refused("classify", run, bad, "--plot", "page.pdf")
    assert "no such file" in refused("classify", run, tmp_path / "none.txt")
    assert "DATA: expected a file of texts and labels" in refused("train", "--task", "classify")
