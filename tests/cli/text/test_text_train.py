import json
import os
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from tiny_runs import TINY, tree

from chainrule.training import train
from chainrule_app.cli.main import main
from chainrule_app.tasks import open_run
from chainrule_app.tasks.text.sampling import Sampler

LOST = {"config.json", "vocabulary.json", "model.safetensors", "checkpoint.safetensors", "metrics.jsonl", "data"}


@pytest.mark.parametrize(("options", "size", "tied"), [([], 8, True), (["--embedding-size", 3], 3, False)])
def test_words_share_their_embedding_unless_a_size_is_given(command, here, options, size, tied):
    command("train", "log.txt", *TINY, "--steps", 1, "--level", "word", "--out", "words", *options)
    chosen = open_run("words").config.options
    assert (chosen.embedding_size, chosen.tie_weights, chosen.ngram_order) == (size, tied, 1)


def test_a_text_becomes_a_run_that_the_other_verbs_take(ok, here):
    outcome = ok("train", "log.txt", *TINY, "--steps", 6, "--out", "run")
    assert {path.name for path in Path("run").iterdir()} >= LOST
    assert sorted(path.name for path in here.iterdir()) == ["log.txt", "run"]
    for part in ("bits", "chainrule sample run", "chainrule score run FILE", "--resume --out run"):
        assert part in outcome.out
    assert "symbols to train on" in outcome.err
    for verb in (["sample", "run", "--length", 5], ["score", "run", "log.txt"], ["info", "run"]):
        ok(*verb)


@pytest.mark.parametrize(
    "options",
    [
        ["--reading", "lines", "--model", "lstm", "--line-length", 12],
        ["--level", "word", "--model", "rnn", "--nonlinearity", "relu"],
        ["--level", "byte", "--reading", "lines"],
        ["--level", "bpe", "--vocabulary-size", 270, "--model", "gru", "--no-reset-after"],
        ["--tie-weights", "--dropout", 0.1, "--num-layers", 2, "--precision", "float32"],
    ],
)
def test_every_way_to_read_and_model_a_text_trains(ok, here, options):
    outcome = ok("train", "log.txt", *TINY, "--steps", 1, "--out", "run", "--json", *options)
    summary = json.loads(outcome.out)
    assert summary["steps"] == 1
    assert summary["bits_per_element"] > 0
    ok("sample", "run", "--length", 5)


def test_the_summary_agrees_with_info_and_score(command, here):
    text = Path("log.txt").read_text(encoding="utf-8")
    Path("held-out.txt").write_text(text[:500], encoding="utf-8")
    asked = ["--steps", 8, "--validate-every", 2, "--out", "run", "--json", "--validation", "held-out.txt"]
    summary = json.loads(command("train", "log.txt", *TINY, *asked, "--reading", "lines").out)
    best = json.loads(command("info", "run", "--json").out)["best"]
    assert best["step"] == summary["best_step"]
    assert best["nats_per_element"] == summary["nats_per_element"]
    total = json.loads(command("score", "run", "held-out.txt", "--json").out)
    assert total["bits_per_element"] == pytest.approx(summary["bits_per_element"], rel=1e-5)  # float32, other batches


def test_the_run_is_named_after_what_it_is(ok, here):
    ok("train", "log.txt", *TINY, "--steps", 2, "--model", "gru", "--level", "byte")
    assert open_run("runs/log-byte-gru").config.model == "gru"


def test_without_a_text_the_one_in_python_is_used(ok, here):
    outcome = ok("train", *TINY[:-2], "--steps", 1, "--validation-fraction", 0.001, "--out", "run")
    assert "pydoc" in outcome.err


def test_ctrl_c_saves_and_the_run_goes_on_to_the_same_end(command, ok, here, monkeypatch):
    asked = [*TINY, "--steps", 9, "--validate-every", 3, "--seed", 5, "--dropout", 0.2]
    command("train", "log.txt", *asked, "--out", "whole")
    texts = Sampler.texts
    with monkeypatch.context() as patch:
        patch.setattr(Sampler, "texts", lambda *a, **k: (os.kill(os.getpid(), signal.SIGINT), texts(*a, **k))[1])
        outcome = command("train", "log.txt", *asked, "--out", "cut")
    assert outcome.status == 130
    assert outcome.err.splitlines()[-1].endswith("chainrule train --resume --out cut")
    assert "step 3" in outcome.err.splitlines()[-1]
    outcome = ok("train", "--resume", "--out", "cut")
    assert "9 steps" in outcome.out
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (here / "cut" / name).read_bytes() == (here / "whole" / name).read_bytes()


def test_a_finished_run_can_be_made_longer(command, trained):
    outcome = command("train", "--resume", "--out", "run", "--steps", 4, "--json")
    assert json.loads(outcome.out)["steps"] == 4
    assert open_run("run").config.duration.steps == 4


def test_a_run_that_stopped_early_trains_on_with_more_patience(command, here):
    """More --steps was the advice, which changes nothing: the run is out of patience still."""
    asked = [*TINY, "--steps", 30, "--validate-every", 1, "--patience", 1, "--learning-rate", 10]
    first = command("train", "log.txt", *asked, "--out", "run", "--warmup", 0)
    assert "stopped early" in first.out
    steps = open_run("run").metrics()[-1]["step"]
    assert steps < 30
    longer = command("train", "--resume", "--out", "run", "--steps", 60)
    assert longer.out.startswith(f"\nNothing to do: the run stopped early by --patience 1, after {steps} steps")
    for outcome in (first, longer):
        assert "--resume --out run --patience ...  (a larger value continues training)" in outcome.out
        assert "--steps ..." not in outcome.out
    outcome = command("train", "--resume", "--out", "run", "--patience", 3, "--json")
    assert json.loads(outcome.out)["steps"] > steps


def test_a_run_cannot_be_made_shorter_than_it_is(command, trained):
    before = tree(trained)
    outcome = command("train", "--resume", "--out", "run", "--steps", 1)
    assert outcome.status == 2
    assert outcome.err.splitlines()[-1].startswith("chainrule: --steps: expected at least the 2")
    assert tree(trained) == before


@pytest.mark.parametrize(
    ("option", "parts"),
    [
        (["--hidden-size", 9], ["--hidden-size was 8 and is 9"]),
        (["--hidden-size", 512], ["--hidden-size was 8 and is 512"]),  # the default, but written
        (["--model", "rnn"], ["--model was lstm and is rnn"]),
        (["--level", "word", "--seed", 4], ["--level was char and is word", "--seed was 0 and is 4"]),
        (["--tie-weights"], ["--tie-weights was False and is True"]),
        (["--validation", "log.txt"], ["--validation", "none"]),
    ],
)
def test_resuming_with_other_options_says_what_changed(ok, refused, here, trained, option, parts):
    before = tree(here / "run")
    line = refused("train", "--resume", "--out", "run", *option)
    for part in parts:
        assert part in line
    assert tree(here / "run") == before
    ok("train", "log.txt", "--resume", "--out", "run", *TINY, "--steps", 3)


def test_resuming_with_another_text_says_so(command, refused, here, trained):
    before = tree(here / "run")
    size = Path("log.txt").stat().st_size
    Path("log.txt").write_bytes(Path("log.txt").read_bytes() + b"more\n")
    for data in ([], ["log.txt"]):
        line = refused("train", *data, "--resume", "--out", "run")
        assert "DATA changed" in line
        assert f"{size} bytes" in line
        assert f"{size + 5} bytes" in line
    assert tree(here / "run") == before


def test_resuming_needs_the_text_only_where_its_symbols_are_gone(ok, refused, here, trained):
    Path("log.txt").rename("moved.txt")
    ok("train", "--resume", "--out", "run", "--steps", 3)
    (here / "run" / "data" / "corpus.json").unlink()
    assert "log.txt" in refused("train", "--resume", "--out", "run", "--steps", 4)
    ok("train", "moved.txt", "--resume", "--out", "run", "--steps", 4)


def test_a_run_that_is_there_is_refused_and_keeps_every_byte(ok, refused, here, trained):
    before = tree(here / "run")
    line = refused("train", "log.txt", *TINY, "--steps", 2, "--out", "run")
    assert "--resume" in line
    assert "--overwrite" in line
    Path("empty.txt").touch()
    refused("train", "empty.txt", "--overwrite", "--out", "run")  # what cannot be trained on replaces nothing
    refused("train", "log.txt", "--overwrite", "--out", "run", "--batch-size", 5000)
    refused("train", "log.txt", *TINY, "--overwrite", "--out", "run", "--tie-weights", "--embedding-size", 3)
    assert tree(here / "run") == before
    assert sorted(path.name for path in here.iterdir()) == ["empty.txt", "log.txt", "run"]
    ok("train", "log.txt", *TINY, "--steps", 1, "--out", "run", "--overwrite")
    assert open_run("run").config.duration.steps == 1


def test_another_directory_is_never_overwritten(refused, here):
    Path("thesis").mkdir()
    Path("thesis/chapter.txt").write_text("years of work")
    assert "not a run" in refused("train", "log.txt", "--overwrite", "--out", "thesis")
    assert "not a run" in refused("train", "log.txt", "--resume", "--out", "thesis")
    assert "no such run" in refused("train", "log.txt", "--resume", "--out", "nowhere")
    assert "file" in refused("train", "log.txt", "--overwrite", "--out", "log.txt")
    assert Path("thesis/chapter.txt").read_text() == "years of work"


def test_an_empty_directory_can_become_a_run(ok, here, monkeypatch):
    Path("run").mkdir()
    monkeypatch.chdir("run")
    ok("train", "../log.txt", *TINY, "--steps", 1, "--out", ".")
    ok("info", ".")
    assert sorted(path.name for path in here.iterdir()) == ["log.txt", "run"]


@pytest.mark.parametrize(
    "left",
    [
        [".preparing/.config.json.x1", ".lock"],  # killed in the first write of config.json
        [".preparing/config.json", ".preparing/corpus/train.tokens"],
        [".preparing/config.json", "corpus/train.tokens", "model.safetensors", "notes.txt"],  # while it moved up
    ],
)
def test_what_a_killed_preparation_left_is_no_obstacle(ok, here, left):
    for name in left:
        (Path("run") / name).parent.mkdir(parents=True, exist_ok=True)
        (Path("run") / name).write_text("half")
    ok("train", "log.txt", *TINY, "--steps", 1, "--out", "run")
    ok("info", "run")
    hidden = {path.name for path in Path("run").iterdir() if path.name.startswith(".")}
    assert not hidden
    assert Path("run/notes.txt").exists() == ("notes.txt" in left)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"text\n" * 50 + b"\x00\x01\x02", ["NUL", "--level byte"]),
        (b"too short\n" * 3, ["expected at least", "--chunk-length"]),
    ],
)
def test_a_text_that_cannot_be_trained_on_is_refused_and_leaves_nothing(refused, here, content, parts):
    Path("bad.txt").write_bytes(content)
    line = refused("train", "bad.txt", "--out", "deep/run", "--steps", 1)
    for part in parts:
        assert part in line
    assert not Path("deep/run").exists()


def test_a_text_that_is_not_there_or_no_file_is_refused(refused, here):
    assert "no such file" in refused("train", "nowhere.txt", "--out", "run")
    assert "directory" in refused("train", ".", "--out", "run")
    assert "no such file" in refused("train", "log.txt", "--validation", "nowhere.txt", "--out", "run")
    assert not Path("run").exists()


def test_a_place_that_cannot_be_written_to_gets_one_line(refused, here):
    assert "log.txt" in refused("train", "log.txt", "--out", "log.txt/run")


def test_a_full_disk_gets_one_line_and_leaves_the_text_alone(refused, here):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, limits[1]))
    try:
        refused("train", "log.txt", "--out", "run", "--steps", 3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not Path("run").exists()


def test_gradients_are_watched_on_request_and_on_resume_as_before(command, ok, here):
    ok("train", "log.txt", *TINY, "--steps", 3, "--out", "run", "--watch-gradients", "--watch-every", 2)
    ok("train", "--resume", "--out", "run", "--steps", 5)
    ok("train", "--resume", "--out", "run", "--steps", 7, "--watch-every", 1)
    ok("train", "--resume", "--out", "run", "--steps", 9, "--no-watch-gradients")
    assert [record["step"] for record in open_run("run").metrics() if record["event"] == "watch"] == [1, 3, 5, 6, 7]
    assert json.loads(command("info", "run", "--json").out)["step"] == 9


def test_a_watch_that_cannot_be_is_refused(refused, here):
    assert "--watch-gradients" in refused("train", "log.txt", *TINY, "--watch-every", 5)
    assert "--watch-every" in refused("train", "log.txt", *TINY, "--watch-gradients", "--watch-every", 0)
    assert "--chunk-length" in refused("train", "log.txt", "--watch-gradients", "--chunk-length", 1)
    assert not Path("runs").exists()


def test_starting_up_counts_as_part_of_the_budget(ok, here, monkeypatch):
    begins = []

    def spy(network, batches, held_out, options, directory, *, began, **keywords):
        begins.append(began)
        return train(network, batches, held_out, replace(options, budget=None, steps=1), directory, **keywords)

    monkeypatch.setattr("chainrule.training.train", spy)
    monkeypatch.setattr(sys.modules["chainrule_app.cli.main"], "monotonic", count(5).__next__)
    ok("train", "log.txt", *TINY, "--num-members", 1, "--budget", "1h", "--out", "run")
    assert begins == [5]  # the command's own beginning, not that of training


@pytest.mark.slow
def test_several_processes_train_one_run(here):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    verb = ["-m", "chainrule", "train", "log.txt", *map(str, TINY), "--steps", "3", "--out", "run", "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*torchrun, *verb], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("best:") == 1
    assert main(["info", "run"]) == 0


def test_no_share_to_hold_out_is_refused(refused, here):
    """0 meant a twentieth, without a word."""
    assert "--validation-fraction: expected" in refused("train", "log.txt", "--validation-fraction", 0, "--steps", 1)


def test_a_rate_of_learning_while_scoring_is_named_by_its_flag(refused, trained):
    assert "--adapt-rate: expected" in refused("score", "run", "log.txt", "--adapt", "--adapt-rate", -1)
