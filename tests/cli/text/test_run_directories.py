"""What training does to the directory of a run when something goes wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_runs import TINY, tree

from chainrule_app.tasks.run_directory import lock_run


@pytest.mark.parametrize(
    ("option", "value"), [("--clip-norm", 0), ("--learning-rate", 0), ("--warmup", 1), ("--device", "cuda:99")]
)
def test_options_are_validated_before_anything_is_deleted_or_made(refused, trained, option, value):
    before = tree(trained)
    line = refused("train", "log.txt", *TINY, "--out", "run", "--overwrite", option, value)
    reason = "no CUDA device is available" if option == "--device" else "expected"
    assert line.startswith(f"chainrule: {option}: {reason}")
    assert tree(trained) == before
    refused("train", "log.txt", *TINY, "--out", "new", option, value)
    assert not Path("new").exists()


def test_two_trainings_do_not_share_a_directory(refused, trained):
    before = tree(trained)
    with lock_run(trained):
        for asked in (["--resume", "--steps", 5], ["log.txt", *TINY, "--overwrite"]):
            assert "is working in run" in refused("train", *asked, "--out", "run")
    assert tree(trained) == before


@pytest.mark.slow
def test_two_trainings_begun_at_once_leave_one_whole_run(here):
    command = [sys.executable, "-m", "chainrule", "train", "log.txt", *map(str, TINY), "--steps", "10", "--out", "run"]
    both = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = {process.communicate()[1].splitlines()[-1]: process.returncode for process in both}
    assert sorted(said.values()) == [0, 2]
    (line,) = (line for line, status in said.items() if status == 2)
    assert "is working in run" in line or "already" in line
    steps = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in steps if record["event"] == "step"] == list(range(1, 11))


@pytest.mark.parametrize("damage", ["data/train.tokens", "checkpoint.safetensors", "vocabulary.json"])
def test_a_resume_that_fails_leaves_the_run_as_it_was(command, trained, damage):
    (trained / damage).write_bytes((trained / damage).read_bytes()[:-9])
    before = tree(trained)
    outcome = command("train", "--resume", "--out", "run", "--steps", 9)
    assert outcome.status == 2
    assert damage in outcome.err.splitlines()[-1]
    assert tree(trained) == before


def test_trained_weights_without_a_checkpoint_are_not_trained_over(command, trained):
    (trained / "checkpoint.safetensors").unlink()
    before = tree(trained)
    outcome = command("train", "--resume", "--out", "run")
    assert outcome.status == 2
    assert "checkpoint.safetensors: no such file" in outcome.err.splitlines()[-1]
    assert "--overwrite" in outcome.err.splitlines()[-1]
    assert tree(trained) == before


def test_resuming_a_finished_run_says_that_there_is_nothing_to_do(ok, trained):
    weights = (trained / "model.safetensors").read_bytes()
    outcome = ok("train", "--resume", "--out", "run")
    assert outcome.out.startswith("\nNothing to do: the run has finished its 2 steps")
    assert "--resume --out run --steps ..." in outcome.out
    assert (trained / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize("name", ["metrics.jsonl", "timings.jsonl"])
def test_figures_are_written_to_no_file_outside_the_run(command, trained, here, name):
    (here / "precious").write_bytes((trained / name).read_bytes())
    (trained / name).unlink()
    (trained / name).symlink_to(here / "precious")
    before = (here / "precious").read_bytes()
    command("train", "--resume", "--out", "run", "--steps", 4)
    assert (here / "precious").read_bytes() == before


def test_train_and_info_give_figures_that_compare_between_levels(command, here):
    words = ["--level", "word", "--vocabulary-size", 5]
    outcome = command("train", "log.txt", *TINY, "--steps", 1, "--out", "run", "--json", *words)
    summary = json.loads(outcome.out)
    best = json.loads(command("info", "run", "--json").out)["best"]
    size = (here / "log.txt").stat().st_size
    facts = json.loads((here / "run" / "config.json").read_text())["facts"]
    assert facts["train"]["bytes"] + facts["valid"]["bytes"] == size
    assert facts["train"]["characters"] + facts["valid"]["characters"] == len((here / "log.txt").read_text("utf-8"))
    for name in ("bits_per_character", "bits_per_byte", "unknown_share"):
        assert summary[name] == pytest.approx(best[name])
    bits = summary["bits_per_element"] * facts["valid"]["elements"]
    assert summary["bits_per_byte"] == pytest.approx(bits / facts["valid"]["bytes"])
    assert summary["unknown_share"] > 0.5
    assert "of the symbols <unk>" in command("info", "run").out


@pytest.mark.slow
@pytest.mark.parametrize("how", ["new", "overwrite"])
def test_a_kill_at_any_moment_of_preparing_leaves_the_old_run_the_new_one_or_a_free_directory(here, how):
    script = Path(__file__).with_name("killed_preparations.py")
    done = subprocess.run(
        [sys.executable, str(script), "log.txt", ".", how], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    count, *found = done.stdout.split()
    assert int(count) > 10
    assert found == sorted(found, key=["old", "free", "new"].index)
    assert set(found) >= ({"old", "free"} if how == "overwrite" else {"free"})
