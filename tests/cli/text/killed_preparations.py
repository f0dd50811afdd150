"""Run as a script: makes runs and is killed before each operation on the file system in turn.

Usage: killed_preparations.py TEXT FOLDER OVERWRITE; prints the number of kills, and what each left behind.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

import torch

from chainrule.training import save_weights
from chainrule_app.tasks.config import Duration, RunConfig
from chainrule_app.tasks.run_directory import WEIGHTS, lock_run, refuse_taken
from chainrule_app.tasks.text.options import TextData, TextTraining
from chainrule_app.tasks.text.run import TextRun
from chainrule_app.training_run import create_run

CHANGES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.link", "shutil.rmtree")


def config(text: Path, seed: int) -> RunConfig:
    return RunConfig(
        sources={"source": str(text), "validation": None, "tokenizer": None}, data=TextData(validation_fraction=0.2),
        model="gru", options=TextRun.MODELS["gru"].options(hidden_size=4), duration=Duration(steps=1),
        training=TextTraining(batch_size=2, chunk_length=8, seed=seed),
    )  # fmt: skip


def die_before(number: int) -> None:
    """Kill this process before its change of the file system with this number."""
    seen = 0

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if writes or event in CHANGES:
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def make(text: Path, out: Path, seed: int, *, overwrite: bool) -> None:
    with lock_run(out):
        create_run(TextRun, config(text, seed), out, overwrite=overwrite)


def state(out: Path) -> str:
    """`old`, `new` or `free`; an error where the directory is none of these."""
    try:
        refuse_taken(out, overwrite=False)
    except FileExistsError:
        run = TextRun.open(out)
        run.new_model(0)
        if run.config.training.seed == 0:
            run.model()
            return "old"
        TextRun.batches(run, (0, 1))
        return "new"
    return "free"


def main(text: Path, folder: Path, overwrite: bool) -> None:
    torch.set_num_threads(1)
    template = folder / "template"
    if overwrite:
        make(text, template, 0, overwrite=False)
        run = TextRun.open(template)
        save_weights(template / WEIGHTS, run.new_model(0), {})
        (template / "notes.txt").write_text("mine")
    found = []
    while True:
        out = folder / f"run-{len(found)}"
        if overwrite:
            shutil.copytree(template, out)
        child = os.fork()
        if child == 0:
            die_before(len(found) + 1)
            make(text, out, 1, overwrite=overwrite)
            os._exit(0)
        killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if killed == 0:
            break
        assert killed == -signal.SIGKILL, killed
        found.append(state(out))
        make(text, out, 1, overwrite=True)  # whatever was left, the next training has its place
        assert state(out) == "new"
        assert not [part.name for part in out.iterdir() if part.name.startswith(".")]
        assert (out / "notes.txt").exists() == overwrite
    print(len(found), *found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "overwrite")
