"""Pairs of sentences become a translator, from the command line."""

import json
import random

import pytest
import torch

import chainrule
from chainrule_app.cli.main import main

RECURRENT = ["--model", "seq2seq", "--hidden-size", "8", "--embedding-size", "8"]
SMALL = ["--task", "translate", *RECURRENT, "--min-count", "1"]


def pairs(count=60):
    chooser = random.Random(0)
    digits = [[chooser.randrange(5) for _ in range(chooser.randint(1, 4))] for _ in range(count)]
    german, english = ("null", "eins", "zwei", "drei", "vier"), ("zero", "one", "two", "three", "four")
    return [(" ".join(german[d] for d in row), " ".join(english[d] for d in row)) for row in digits]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("translate")
    (path / "p.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs()))
    (path / "a.de").write_text("".join(f"{a}\n" for a, _ in pairs()))
    (path / "a.en").write_text("".join(f"{b}\n" for _, b in pairs()))
    options = ["--steps", "6", "--validate-every", "3", "--batch-size", "16", "--json"]
    assert main(["train", str(path / "p.tsv"), "--out", str(path / "run"), *SMALL, *options]) == 0
    return path


def test_a_run_shows_examples_and_keeps_the_weights_of_the_best_bleu(folder, command):
    metrics = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    judged = [record for record in metrics if record["event"] == "validation"]
    assert [record["step"] for record in judged] == [3, 6]
    assert all(0 <= record["bleu"] <= 100 for record in judged)
    status, out, err = command(
        "train", "--source", folder / "a.de", "--target", folder / "a.en", "--validation", folder / "p.tsv",
        "--out", folder / "two", *SMALL, "--steps", 2, "--json",
    )  # fmt: skip
    assert status == 0
    assert json.loads(out)["bleu"] >= 0
    assert "a.de and a.en: 60 pairs" in err
    assert all(word in err for word in ("source  ", "reference  ", "hypothesis  "))


def test_a_run_goes_on_where_it_stopped(folder, command, tmp_path):
    def trained(name, steps, *more):
        arguments = ["train", folder / "p.tsv", "--out", tmp_path / name, *SMALL, "--batch-size", 16, "--epochs", 1]
        return command(*arguments, *more)

    def weights(name):
        from safetensors.torch import load_file

        return load_file(tmp_path / name / "checkpoint.safetensors")

    assert trained("once", 4)[0] == 0
    assert trained("again", 2)[0] == 0
    status, _, _ = command("train", "--resume", "--out", tmp_path / "again", "--epochs", 2)
    assert status == 0
    assert command("train", "--resume", "--out", tmp_path / "once", "--epochs", 2)[0] == 0
    once, again = weights("once"), weights("again")
    assert all((once[name] == again[name]).all() for name in once)
    status, _, err = command("train", "--resume", "--out", tmp_path / "once", "--hidden-size", 9)
    assert status == 2
    assert "--hidden-size was 8 and is 9" in err
    status, _, err = command("train", "--resume", "--out", tmp_path / "once", "--source", folder / "a.de")
    assert status == 2
    assert "--resume: DATA changed since the run began" in err


def test_sentences_are_translated_line_by_line(folder, command, monkeypatch, tmp_path):
    (tmp_path / "x.de").write_text("eins zwei\n\nvier\n")
    status, out, _ = command("translate", folder / "run", tmp_path / "x.de")
    assert status == 0
    lines = out.split("\n")
    assert len(lines) == 4
    assert lines[1] == ""
    status, out, _ = command("translate", folder / "run", tmp_path / "x.de", "--beam", 3, "--n-best", 3, "--json")
    records = [json.loads(line) for line in out.splitlines()]
    assert [(record["line"], record["rank"]) for record in records] == [
        (1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (3, 2), (3, 3),
    ]  # fmt: skip
    assert (records[3]["source"], records[3]["translation"], records[3]["nats"]) == ("", "", 0)
    assert all(record["nats"] > 0 for record in records if record["source"])
    assert all(isinstance(record["proven"], bool) for record in records)
    status, out, _ = command("translate", folder / "run", tmp_path / "x.de", "--n-best", 2)
    heading, *rows = out.splitlines()
    assert heading.split() == ["line", "source", "rank", "translation", "nats"]
    assert [row.split()[0] for row in rows] == ["1", "1", "2", "3", "3"]
    image = tmp_path / "map.png"
    status, out, err = command("translate", folder / "run", tmp_path / "x.de", "--plot", image, "--out", tmp_path / "y")
    assert (status, out) == (0, "")
    assert image.read_bytes()[:4] == b"\x89PNG"
    assert len((tmp_path / "y").read_text().split("\n")) == 4
    assert err.splitlines() == [str(image), f"{tmp_path / 'y'}: 3 rows"]


def test_python_translates_sentences(folder, command, tmp_path):
    loaded = chainrule.load(folder / "run")
    found = loaded.translate(["eins zwei", "", "vier"], beam=3)
    (tmp_path / "x.de").write_text("eins zwei\n\nvier\n")
    shown = command("translate", folder / "run", tmp_path / "x.de", "--beam", 3)[1]
    assert shown == "".join(f"{text}\n" for text in found.values)
    assert found["source"] == ["eins zwei", "", "vier"]
    of_file = loaded.predict(tmp_path / "x.de", beam=3).to_dict()
    assert [number - 1 for number in of_file.pop("line")] == [0, 1, 2]
    assert found.to_dict() == of_file | {"index": [0, 1, 2]}
    several = loaded.translate(["eins zwei"], beam=3, n_best=2)
    assert (several["rank"], several["index"]) == ([1, 2], [0, 0])
    assert several[0]["translation"] == found.values[0]
    assert found.plot().axes
    with pytest.raises(ValueError, match="has no sentence to draw"):
        loaded.translate([""]).plot()
    figures = loaded.evaluate([("eins", "one"), ("zwei drei", "two three")]).summary
    assert figures["sentences"] == 2
    assert 0 <= figures["bleu"] <= 100


def test_evaluation_gives_the_fields_own_figures(folder, command):
    status, out, _ = command("evaluate", folder / "run", folder / "p.tsv", "--json")
    assert status == 0
    one = json.loads(out)
    assert "tok:none" in one["bleu_signature"]
    assert one["perplexity"] > 1
    assert (one["measured"]["unit"], one["measured"]["given"]) == ("symbol", "the source")
    two = command("evaluate", folder / "run", "--source", folder / "a.de", "--target", folder / "a.en", "--json")
    assert json.loads(two[1]) == one
    status, out, _ = command("evaluate", folder / "run", folder / "p.tsv", "--beam", 1, "--tokenize", "13a")
    shown = dict(line.split("  ", 1) for line in out.splitlines()[:-1])
    assert list(shown) == [
        "sentences", "beam", "length penalty", "perplexity", "BLEU", "BLEU signature", "chrf2", "chrf2 signature",
    ]  # fmt: skip
    assert shown["beam"].strip() == "1"
    assert "tok:13a" in shown["BLEU signature"]


def test_inspection_shows_the_parts_and_what_each_word_attended_to(folder, command, tmp_path):
    page = tmp_path / "page.html"
    status, out, _ = command("inspect", folder / "run", "--rows", 2, "--out", page, "--json")
    assert status == 0
    found = json.loads(out)
    info = json.loads(command("info", folder / "run", "--json")[1])
    assert sum(found["parameters"].values()) == info["parameters"]
    assert len(found["rows"]) == 2
    for row in found["rows"]:
        assert len(row["attention"]) == len(row["bits"]) == len(row["symbols"]) == len(row["reference"].split()) + 1
        assert all(sum(weights) == pytest.approx(1, abs=1e-5) for weights in row["attention"])
        assert all(row[name] in page.read_text() for name in ("source", "reference", "translation"))
    assert 0 < found["attention"]["entropy_bits"] <= found["attention"]["even_bits"]
    status, out, _ = command("inspect", folder / "run", folder / "p.tsv", "--rows", 1)
    assert status == 0
    assert all(
        part in out for part in ("source_embedding", "attention: over", f"page: {folder / 'run' / 'report.html'}")
    )


def test_a_translator_without_attention_is_inspected_and_checked(folder, command, checked, tmp_path):
    options = ["--attention", "none", "--no-input-feeding", "--steps", 1, "--out", tmp_path / "run"]
    assert command("train", folder / "p.tsv", *SMALL, *options)[0] == 0
    status, out, err = command("translate", tmp_path / "run", folder / "a.de", "--plot", tmp_path / "map.png")
    assert (status, out) == (2, "")
    assert "--plot: expected a run with attention" in err
    found = json.loads(command("inspect", tmp_path / "run", "--json")[1])
    assert found["attention"] is None
    assert all(row["attention"] is None and row["bits"] for row in found["rows"])
    handed = checked(tmp_path / "run")
    assert handed.x.shape[0] == len(handed.lengths) == len(handed.context["tokens"]) <= 4
    assert handed.x.shape[1] <= 8


def test_a_transformer_translates_and_shows_what_it_attended_to(folder, command, tmp_path):
    small = ["--model", "transformer", "--model-size", 8, "--num-layers", 2, "--num-heads", 2, "--min-count", 1]
    to = ["--task", "translate", *small, "--steps", 3, "--batch-size", 16, "--out", tmp_path / "run"]
    assert command("train", folder / "p.tsv", *to)[0] == 0
    shown = json.loads(command("info", tmp_path / "run", "--json")[1])
    assert shown["training"]["learning_rate"] == 0.096
    (tmp_path / "x.de").write_text("eins zwei\n\nvier\n")
    image = tmp_path / "map.png"
    translated = ("translate", tmp_path / "run", tmp_path / "x.de", "--beam")
    status, out, _ = command(*translated, 2, "--plot", image)
    assert (status, len(out.split("\n"))) == (0, 4)
    assert image.read_bytes()[:4] == b"\x89PNG"
    assert command(*translated, 1)[0] == 0
    assert "BLEU" in command("evaluate", tmp_path / "run", folder / "p.tsv", "--beam", 1)[1]
    found = json.loads(command("inspect", tmp_path / "run", "--rows", 2, "--json")[1])
    assert all(sum(weights) == pytest.approx(1, abs=1e-5) for row in found["rows"] for weights in row["attention"])


def test_info_tells_what_the_run_is(folder, command):
    status, out, _ = command("info", folder / "run")
    assert status == 0
    assert "54 pairs" in out
    assert "BLEU" in out
    assert json.loads(command("info", folder / "run", "--json")[1])["facts"]["symbols"] == {
        "source": 7,
        "target": 7,
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "{p}", "--source", "{a}", "--target", "{b}"], "DATA and --source"),
        (["train", "--source", "{a}"], "--source: expected --target too"),
        (["train", "--target", "{a}"], "--target: expected --source too"),
        (["train", "{p}", "--validation-target", "{a}"], "--validation-target: expected --validation too"),
        (["train"], "DATA: expected pairs of sentences"),
        (["train", "--source", "{a}", "--target", "{short}"], "a.de has 60 lines and"),
        (["train", "{p}", "--cell", "cnn"], "--cell"),
        (["train", "{p}", "--model", "transformer", "--model-size", "10"], "--model-size: expected a multiple of"),
        (["train", "{p}", "--hidden-size", "8"], "leave it out, or use --model seq2seq"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing_behind(folder, refused, tmp_path, arguments, message):
    (tmp_path / "short").write_text("one\n")
    (tmp_path / "p.tsv").write_text("eins zwei drei vier\tone two three four\n" + (folder / "p.tsv").read_text())
    names = {"p": tmp_path / "p.tsv", "a": folder / "a.de", "b": folder / "a.en", "short": tmp_path / "short"}
    verb, *rest = [argument.format(**names) for argument in arguments]
    assert message in refused(verb, *rest, "--task", "translate", "--out", tmp_path / "run", "--steps", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.tsv", "short"]


def test_bad_requests_of_a_run_are_one_line(folder, refused, tmp_path):
    (tmp_path / "long").write_text("ein\n" + "ein " * 300 + "\n")
    plot = ["translate", tmp_path / "long", "--plot", "map.gif"]
    asked = {
        "--plot map.gif: expected a name that ends in .png or .svg or .pdf": plot,
        "--n-best: expected 1 to --beam, 2, got 3": ["translate", tmp_path / "long", "--beam", 2, "--n-best", 3],
        "long line 2: expected at most 256 symbols, got 300": ["translate", tmp_path / "long"],
        "none: no such file": ["translate", tmp_path / "none"],
        "p.tsv line 1: expected a source sentence, got several columns": ["translate", folder / "p.tsv"],
        "DATA: expected either pairs, or --source and --target": ["evaluate"],
        "a.de line 1: expected a source, a tab and a target": ["evaluate", folder / "a.de"],
    }
    for message, (verb, *rest) in asked.items():
        assert message in refused(verb, folder / "run", *rest)


def test_log_probabilities_are_those_of_each_sentence_alone_in_float32(folder, command, tmp_path):
    """They were taken from the search, in bfloat16, and changed with the other sentences."""
    trained = tmp_path / "bfloat16"
    options = ["--steps", 3, "--batch-size", 16, "--precision", "bfloat16", "--json"]
    assert command("train", folder / "p.tsv", "--out", trained, *SMALL, *options)[0] == 0
    sentences = ["eins", "vier drei zwei eins", "null zwei", "drei"]

    def translated(lines):
        (tmp_path / "x.de").write_text("".join(f"{line}\n" for line in lines))
        asked = ["translate", trained, tmp_path / "x.de", "--beam", 3, "--n-best", 2, "--json"]
        records = [json.loads(line) | {"line": 0} for line in command(*asked)[1].splitlines()]
        return [[record for record in records if record["source"] == line] for line in lines]

    together = translated(sentences)
    assert together == [translated([sentence])[0] for sentence in sentences]
    assert together == translated(sentences[::-1])[::-1]
    from chainrule_app.tasks import open_run
    from chainrule_app.tasks.translate.prediction import translator_of

    translator = translator_of(open_run(trained), None, "cpu")
    read = [translator.source_vocabulary.encode(f"{sentences[1]}\n").tolist()]
    best = next(each for each in together[1] if each["ended"])
    written = torch.tensor([translator.target_vocabulary.encode(best["translation"] + "\n").tolist()])
    context = {"tokens": torch.tensor(read), "lengths": torch.tensor([len(read[0])])}
    with torch.no_grad():
        exact = translator.model.log_prob(written, context).item()
    assert best["nats"] == pytest.approx(-exact, abs=1e-5)
