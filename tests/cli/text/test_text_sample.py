import csv
import json
import math
import shutil

import pytest
import torch

from chainrule import load
from chainrule_app.tasks import open_run
from chainrule_app.tasks.text.sampling import Sampler


def test_one_text_begins_with_the_prompt_and_has_the_length_asked_for(ok, runs):
    outcome = ok("sample", runs / "stream", "--prompt", "line 1", "--length", 40, "--seed", 3)
    assert outcome.out.startswith("line 1")
    assert len(outcome.out) == len("line 1") + 40 + 1


@pytest.mark.parametrize("kind", ["stream", "lines", "words", "bytes"])
def test_a_seed_gives_the_same_text_however_it_is_shown(command, runs, kind):
    asked = ["sample", runs / kind, "--prompt", "line 1", "--length", 30, "--seed", 7]
    streamed = command(*asked).out
    assert command(*asked).out == streamed
    shown = command(*asked, "--json")
    record = json.loads(shown.out)
    assert record["text"] + "\n" == streamed
    assert record["text"].startswith(record["prompt"])
    assert json.loads(shown.err)["seed"] == 7
    assert any(command(*asked[:-1], seed).out != streamed for seed in range(8, 12))


def test_without_a_seed_each_text_is_another_and_says_its_seed(command, runs):
    asked = ("sample", runs / "stream", "--length", 40, "--json")
    first, second = (command(*asked) for _ in range(2))
    assert json.loads(first.out)["text"] != json.loads(second.out)["text"]
    assert command(*asked, "--seed", json.loads(first.err)["seed"]) == first


def test_several_texts_are_told_apart(command, runs):
    asked = ("sample", runs / "stream", "-n", 3, "--length", 20, "--seed", 1)
    headings = [line for line in command(*asked).out.splitlines() if line.startswith("===")]
    assert headings == [f"=== sample {number} of 3 ===" for number in (1, 2, 3)]
    assert len({json.loads(line)["text"] for line in command(*asked, "--json").out.splitlines()}) == 3


def test_temperature_zero_takes_the_likeliest_symbol(command, runs):
    run = open_run(runs / "stream")
    model, vocabulary = run.model(), run.vocabulary
    ids = vocabulary.encode("line 1").tolist()
    for _ in range(12):
        ids.append(int(model(torch.tensor([[*ids, 0]])).probs[0, -1].argmax()))
    for seed in (1, 2):
        out = command("sample", runs / "stream", "--prompt", "line 1", "--length", 12, "-n", 2, "--temperature", 0)
        assert out.out.split("===\n")[1].startswith(vocabulary.decode(ids)), seed


def test_a_line_ends_where_its_end_is_drawn(runs):
    run = open_run(runs / "lines")
    model = run.model()
    with torch.no_grad():
        model.network.bias_ho[run.vocabulary.eos] += 2
    sampler = Sampler(model, run.vocabulary, eos=run.vocabulary.eos)
    prompt = run.vocabulary.begin("")
    texts = sampler.texts(20, prompt, 100, seed=0)
    assert all("\n" not in text and elements == len(text) + 1 for text, elements in texts)
    assert "".join(sampler.stream(prompt, 100, seed=0)) == sampler.texts(1, prompt, 100, seed=0)[0][0]


def test_characters_of_several_bytes_come_out_whole(runs):
    run = open_run(runs / "bytes")
    text = "über, 10 €, 🙂 ende"
    sampler = Sampler(run.model(), run.vocabulary)
    for prompt in ("", "é", "ein langer Anfang "):
        pieces = list(sampler._decoded(run.vocabulary.encode(prompt), iter(run.vocabulary.encode(text).tolist())))
        assert "".join(pieces) == text
        assert "\N{REPLACEMENT CHARACTER}" not in "".join(pieces)
    cut = run.vocabulary.encode("a€").tolist()[:-1]
    assert "".join(sampler._decoded(run.vocabulary.encode(""), iter(cut))) == "a\N{REPLACEMENT CHARACTER}"


def test_words_are_drawn_with_spaces_between(command, runs):
    out = command("sample", runs / "words", "--prompt", "line 3", "--length", 12, "--seed", 5).out
    assert out.startswith(("line 3 ", "line 3\n"))
    assert len(open_run(runs / "words").vocabulary.encode(out.removesuffix("\n"))) == 14


def test_one_text_is_drawn_by_one_thread_and_the_number_put_back(runs):
    run = open_run(runs / "stream")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        stream = Sampler(run.model(), run.vocabulary).stream(run.vocabulary.begin(""), 3, seed=0)
        next(stream)
        within = torch.get_num_threads()
        stream.close()
        assert (within, torch.get_num_threads()) == (1, 2)
    finally:
        torch.set_num_threads(before)


def test_unseen_characters_in_a_prompt_are_named_with_the_remedy(refused, runs):
    line = refused("sample", runs / "stream", "--prompt", "Zeile ☃1")
    assert "'Z'" in line
    assert "'☃'" in line
    assert "--level byte" in line
    assert "'i'" not in line


def test_unseen_words_in_a_prompt_are_named(refused, ok, runs):
    line = refused("sample", runs / "words", "--prompt", "line snowman 1")
    assert "'snowman'" in line
    assert "'line'" not in line
    ok("sample", runs / "words", "--prompt", "line <unk>", "--length", 2)


def test_every_character_is_known_as_bytes(command, runs):
    assert command("sample", runs / "bytes", "--prompt", "☃", "--length", 2).out.startswith("☃")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--temperature", -1),
        ("--temperature", math.nan),
        ("--top-p", 0),
        ("--top-p", 1.5),
        ("--top-k", 0),
        ("-n", 0),
        ("--length", 0),
        ("--device", "abacus"),
    ],
)
def test_a_filter_out_of_range_is_refused(refused, runs, option, value):
    line = refused("sample", runs / "stream", option, value)
    assert option.lstrip("-").replace("-", "_") in line.replace("-", "_")
    assert "expected" in line


def test_the_file_that_is_named_holds_what_would_be_printed(command, ok, refused, runs, tmp_path):
    """--out was taken, and the text was printed all the same."""
    lines = runs / "lines"
    for run, *more in ((runs / "stream",), (runs / "stream", "-n", 3), (lines, "-n", 3), (lines, "--json")):
        asked, out = ("sample", run, *more, "--length", 20, "--seed", 3), tmp_path / "drawn.txt"
        written = command(*asked, "--out", out)
        assert (written.status, written.out) == (0, "")
        assert out.read_text() == command(*asked).out
    csv_file = tmp_path / "drawn.csv"
    ok("sample", runs / "stream", "-n", 2, "--length", 20, "--seed", 3, "--out", csv_file)
    heading, *texts = csv.reader(csv_file.read_text(encoding="utf-8").splitlines(keepends=True))
    assert heading == ["text"]
    assert [[text] for text in load(runs / "stream").sample(2, length=20, seed=3)] == texts
    assert "create it first" in refused("sample", lines, "--out", tmp_path / "none" / "drawn.txt")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(("kind", "kept"), [("words", "line 1"), ("stream", "line 1 ")])
def test_the_blank_at_the_end_of_a_prompt_is_not_doubled(command, runs, kind, kept):
    """Of words and their pieces, the next one brings its own."""
    asked = ["sample", runs / kind, "--length", 8, "--seed", 3, "--prompt"]
    record = json.loads(command(*asked, "line 1 ", "--json").out)
    assert record["prompt"] == kept
    assert record == json.loads(command(*asked, kept, "--json").out)
    assert record == json.loads(command(*asked, "\ufeff" + kept, "--json").out)
    assert "  " not in command(*asked, "line 1 ").out


@pytest.mark.parametrize("kind", ["stream", "lines", "words", "bytes"])
def test_a_program_gets_the_texts_that_are_printed(command, runs, kind):
    run, asked = load(runs / kind), ("sample", runs / kind, "--prompt", "line 1", "--length", 20, "--seed", 5)
    options = {"prompt": "line 1", "length": 20, "seed": 5}
    texts = run.sample(3, **options)
    printed = command(*asked, "-n", 3).out
    headings = ["" if kind == "lines" else f"=== sample {number} of 3 ===\n" for number in (1, 2, 3)]
    assert printed == "".join(f"{heading}{text}\n" for heading, text in zip(headings, texts, strict=True))
    (text,) = run.sample(**options)
    pieces = list(run.stream(**options))
    assert "".join(pieces) == text
    assert len(pieces) > 1
    assert command(*asked).out == f"{text}\n"


def test_samples_say_how_many_lines_are_copies_of_the_training_text(command, runs, text_file, tmp_path, monkeypatch):
    """Nothing told what a model had memorised from what was new."""
    known, new = text_file.read_text(encoding="utf-8").splitlines()[3], "line 9999 of no log"

    def draw(sampler, n, *_):
        return [(text, len(text)) for text in [known, known, new][:n]]

    monkeypatch.setattr("chainrule_app.tasks.text.sampling.Sampler.texts", draw)
    monkeypatch.setattr("chainrule_app.tasks.text.sampling.Sampler.stream", lambda *_: iter([f"{known}\n{new}\nli"]))
    asked = ("sample", runs / "lines", "-n", 3, "--seed", 1)
    outcome = command(*asked)
    assert outcome.out.splitlines() == [known, known, new]  # each is a line, and needs no heading
    assert outcome.err == "lines 3, in training data 2\n"
    assert json.loads(command(*asked, "--json").err) == {"lines": 3, "in_training_data": 2, "seed": 1}
    assert "in training data 2" in command(*asked, "--out", tmp_path / "texts.txt").err
    assert command("sample", runs / "stream").err == "lines 2, in training data 1\n"  # the last line is unfinished


def test_samples_of_a_run_without_its_data_are_not_looked_up(command, run_copy):
    shutil.rmtree(run_copy / "data")
    outcome = command("sample", run_copy, "--length", 60)
    assert (outcome.status, outcome.err) == (0, "")
