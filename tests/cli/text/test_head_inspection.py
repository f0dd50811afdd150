"""Inside a Transformer of a text, from the command line."""

import json

import pytest

from chainrule.training import save_weights
from chainrule_app.tasks.config import Duration, RunConfig
from chainrule_app.tasks.run_directory import WEIGHTS
from chainrule_app.tasks.text.options import TextData, TextTraining
from chainrule_app.tasks.text.run import TextRun
from chainrule_app.training_run import create_run

SMALL = ["--rows", 2, "--steps", 16]


def made(source, out, model="transformer", reading="stream", line_length=1024, **options):
    """An untrained run."""
    asked = RunConfig(
        sources={"source": str(source), "validation": None, "tokenizer": None},
        data=TextData(validation_fraction=0.2, reading=reading),
        model=model,
        options=TextRun.MODELS[model].options(model_size=8, num_layers=2, **options),
        duration=Duration(steps=4),
        training=TextTraining(batch_size=2, chunk_length=8, line_length=line_length),
    )
    create_run(TextRun, asked, out, overwrite=False)
    run = TextRun.open(out)
    save_weights(run.path / WEIGHTS, run.new_model(0), {})
    return run


@pytest.fixture(scope="module")
def transformers(text_file, tmp_path_factory):
    home = tmp_path_factory.mktemp("transformers")
    made(text_file, home / "stream", num_heads=2, context_length=8)
    made(text_file, home / "lines", reading="lines", num_heads=2, position="learned", line_length=60)
    made(text_file, home / "linear", "linear-transformer", num_heads=2)
    made(text_file, home / "gru", "min-gru")
    return home


@pytest.mark.parametrize("kind", ["stream", "lines"])
def test_every_head_is_named_and_the_memory_of_its_cache_told(command, transformers, tmp_path, kind):
    page = tmp_path / "page.html"
    outcome = command("inspect", transformers / kind, "--out", page, *SMALL)
    assert (outcome.status, outcome.err) == (0, "")
    window = 8 if kind == "stream" else 64
    memory = f"2 · 2 · 2 · 4 · 4 = 128 bytes an element, of at most W − 1 = {window - 1}: {128 * (window - 1):,} bytes"
    for part in ("block 1 head 1: ", "block 2 head 2: ", " bits, ", memory, f"page: {page}"):
        assert part in outcome.out
    shown = json.loads(command("inspect", transformers / kind, "--out", page, *SMALL, "--json").out)
    assert [len(block["heads"]) for block in shown["blocks"]] == [2, 2]
    written = page.read_text(encoding="utf-8")
    for block in shown["blocks"]:
        for head in block["heads"]:
            assert f"rule-{head['kind'].replace(' ', '-')}" in written
            assert 0 <= head["entropy"] <= head["even"] + 1e-6
    assert written.count("<img") == 4
    assert shown["cache"]["element"] == 128
    bits = [bits for row in shown["rows"] for bits in row["bits"]]
    assert shown["bits_per_element"] == pytest.approx(sum(bits) / len(bits))


@pytest.mark.parametrize(("kind", "said"), [("linear", "2 heads keep 0.9"), ("gru", "8 units keep 0.")])
def test_what_has_no_attention_weights_shows_its_gates(ok, transformers, tmp_path, kind, said):
    outcome = ok("inspect", transformers / kind, "--out", tmp_path / "page.html", *SMALL)
    assert outcome.out.count(said) == 2
    assert "bytes a row, however long the text" in outcome.out
    assert "<img" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_page_is_the_same_again_and_escapes_the_text(command, ok, transformers, tmp_path):
    (tmp_path / "a.txt").write_text("line <b>1</b>\nall is well" * 3)
    asked = ("inspect", transformers / "stream", tmp_path / "a.txt", "--out", tmp_path / "page.html", *SMALL)
    ok(*asked)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<b>1" not in page
    assert "never seen in training" in page
    command(*asked)
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page


def test_a_prompt_longer_than_the_context_is_cut_to_what_can_be_read_and_that_is_said_once(command, transformers):
    def drawn(kind, prompt, *more):
        return command("sample", transformers / kind, "--prompt", prompt, "--length", 20, "--seed", 3, *more)

    reach = 1 + 2 * 7 + 3  # of two windows of 8, and n-grams of 4
    prompt = "line 1 of the café log, all is well line 2 of the café log"
    long = drawn("stream", prompt)
    copies, said = long.err.splitlines()
    assert copies.startswith("lines ")
    assert said == f"--prompt: the model reads only the last {reach} of {len(prompt)} symbols"
    short = drawn("stream", prompt[-reach:])
    assert "--prompt" not in short.err
    assert long.out.removeprefix(prompt) == short.out.removeprefix(prompt[-reach:])
    many = drawn("stream", prompt, "-n", 2, "--json")
    assert many.err.count("--prompt") == 1
    learned = drawn("lines", prompt)
    assert f"only the last {64 - 20} of" in learned.err
    assert learned.status == 0


def test_bad_input_gets_one_line(refused, transformers, text_file, tmp_path):
    train = ("train", text_file, "--model", "transformer", "--steps", 1, "--out", tmp_path / "none")
    for options, said in {
        ("--model-size", 10, "--num-heads", 4): "--model-size: expected a multiple of --num-heads, got 10 with 4",
        ("--context-length", 8, "--window", 9): "--window: expected 1 to --context-length = 8 elements",
        ("--context-length", 1 << 20): "--context-length: expected",
        (
            "--position",
            "learned",
        ): "--position: learned positions end after the --context-length, 64 symbols, got a stream",
        ("--position", "learned", "--reading", "lines"): "got --line-length 1024: use rotary",
    }.items():
        assert said in refused(*train, *options)
    assert not (tmp_path / "none").exists()
    linear = ("train", text_file, "--model", "linear-transformer", "--steps", 1, "--out", tmp_path / "none")
    assert "expected a divisor of --model-size 10" in refused(*linear, "--model-size", 10)
    assert "--length: expected fewer than the 64 positions" in refused("sample", transformers / "lines", "--length", 64)
    inspect = ("inspect", transformers / "stream")
    assert "rows × --steps² of at most" in refused(*inspect, "--rows", 8, "--steps", 2000)
