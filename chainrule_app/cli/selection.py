"""The verbs of the command line, and the task and model that a line is about, found before the line is parsed.

The run or the data that a line names decide which options it may have, so they are looked for first, without knowing
any option but a few: words that follow no flag, and the values of `--task`, `--model`, `--out` and the like. A word
that follows another flag may be its value or, if the flag is a switch, the run or the data: it counts if it is one of
them. One parser with the options of that task and model then reads the line, and reports what is wrong with it.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from shlex import quote
from typing import Any, cast

from chainrule_app.cli.exchange import compress, decompress, demo, export, import_, serve
from chainrule_app.cli.info import check, compare, info, report, runs
from chainrule_app.cli.signature import Verb, VerbTemplate, verb, verb_for
from chainrule_app.cli.train import train_verb
from chainrule_app.cli.verbs import (
    embed,
    evaluate,
    fill,
    inspect,
    interpolate,
    predict,
    reconstruct,
    sample,
    score,
)
from chainrule_app.readers.sources import is_images, paths_of, recognise
from chainrule_app.readers.text import is_url
from chainrule_app.tasks import TASK_VERBS, TASKS, task_class, unrecognised
from chainrule_app.tasks.config import task_in
from chainrule_app.tasks.display import resume_command
from chainrule_app.tasks.run_directory import read_config, task_of
from chainrule_app.tasks.task import Task

VERBS: dict[str, VerbTemplate] = {
    "train": verb_for("")(train_verb),
    "sample": sample,
    "score": score,
    "fill": fill,
    "inspect": inspect,
    "check": verb(check),
    "info": verb(info),
    "report": verb(report),
    "runs": verb(runs),
    "compare": verb(compare),
    "serve": verb(serve),
    "demo": verb(demo),
    "embed": embed,
    "reconstruct": reconstruct,
    "interpolate": interpolate,
    "evaluate": evaluate,
    "compress": verb(compress, "codec"),
    "decompress": verb(decompress, "codec"),
    "export": verb(export),
    "import": verb(import_),
}
"""All verbs except predictions, which are named after their tasks."""
_SELECTING = ("--task", "--model", "--out", "--from", "--engine", "--address")
_AS_TEXT = {"--level", "--reading", "--text-column"}  # given with a table, they say that it is to be read as a text


def is_verb(name: str) -> bool:
    return name in VERBS or name in TASK_VERBS


def verb_of(task: type[Task[Any]], name: str) -> Verb | None:
    if name == _predicting(task):
        return predict(task)
    return VERBS[name](task) if name in VERBS else None


def verbs_of(task: type[Task[Any]]) -> list[str]:
    return [name for name in (*VERBS, _predicting(task)) if verb_of(task, name) is not None]


def _predicting(task: type[Task[Any]]) -> str:
    """Return the name of a task's prediction verb; empty if it predicts nothing."""
    return task.verb or task.name if hasattr(task, "predict") else ""


def described_verbs() -> Iterator[tuple[str, str]]:
    """Yield every verb with its line in the list of all verbs."""
    for name, template in VERBS.items():
        yield name, template.line
    yield from TASK_VERBS.items()


def select(name: str, arguments: Sequence[str]) -> tuple[type[Task[Any]], Verb | None]:
    """Return the task that the arguments refer to, and its verb; None if the task lacks the verb."""
    line = scan(arguments)
    if name == "train":
        task = TASKS[_task_to_train(line)]()
        model = line.flags.get("--model") or _run_before(line)[1]
        return task, train_verb(task, model if model in task.MODELS else "")
    runs = [*line.words, *line.unsure]
    name_of_run = next((name_of_run for run in runs if (name_of_run := task_of(Path(run))) in TASKS), None)
    tasks = map(task_class, TASKS if name_of_run is None else [name_of_run])
    return next(
        ((task, found) for task in tasks if (found := verb_of(task, name))), (task_class(name_of_run or "text"), None)
    )


def owners(task: type[Task[Any]], flag: str) -> list[str]:
    """List the models of a task that have an option."""
    option = flag.replace("--no-", "--", 1)[2:].replace("-", "_")
    return [
        name
        for name, model in task.MODELS.items()
        if any(item.name == option for item in fields(cast(Any, model.options)))
    ]


@dataclass(frozen=True)
class Line:
    """Arguments of a verb, read without knowing its options."""

    words: list[str]
    unsure: list[str]  # words after a flag: its value, or an argument if the flag is a switch
    flags: dict[str, str]  # word after each flag; empty if another flag or nothing follows


def scan(arguments: Sequence[str]) -> Line:
    """Split the arguments of a verb into words and flags.

    >>> scan(["--json", "log.txt", "--steps=5", "--out", "run"])
    Line(words=[], unsure=['log.txt'], flags={'--json': 'log.txt', '--steps': '5', '--out': 'run'})
    """
    words, unsure, flags, last = list[str](), list[str](), dict[str, str](), ""
    for word in arguments:
        if word[:1] == "-" and word[1:2] not in "0123456789.":  # neither standard input nor a number
            last, equals, value = word.partition("=")
            flags[last] = value
            last = "" if equals or last == "--" else last
        elif last:
            flags[last] = word
            unsure += [] if last in _SELECTING else [word]
            last = ""
        else:
            words.append(word)
    return Line(words, unsure, flags)


def _task_to_train(line: Line) -> str:
    for word in (*line.words[:1], *line.unsure):
        if task_of(Path(word)) is not None:
            raise ValueError(
                f"{word}: expected training data, got a run; to continue it: `{resume_command(Path(word))}`"
            )
    name, resumed = line.flags.get("--task"), _run_before(line)[0]
    data = next(iter(line.words), None) or next(filter(_is_known_data, line.unsure), None)
    if name is not None:
        if name not in TASKS:
            raise ValueError(f"--task: expected one of {', '.join(TASKS)}, got {name!r}")
        if name == "classify" and _are_images(line, resumed, data):
            return "classify-images"
        return name
    if resumed is not None:
        return resumed
    if data is None or _AS_TEXT & line.flags.keys():
        return "text"
    recognised = recognise(Path(data))
    if recognised is None and Path(data).is_dir():
        raise ValueError(f"{unrecognised(data)}{_inside(Path(data))}")
    return recognised or "text"


def _inside(folder: Path) -> str:
    """Suggest a file in a folder: training data first, labels last."""
    files = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]

    def rank(path: Path) -> tuple[bool, bool, bool, str]:
        name = path.name.lower()
        return recognise(path) is None, "label" in name, "train" not in name, name

    return f", or a file in it: chainrule train {quote(str(min(files, key=rank)))}" if files else ""


def _is_known_data(word: str) -> bool:
    there = is_url(word) or os.path.exists(word)  # noqa: PTH110  a word may be too long for a path
    return there and recognise(word) is not None


def _are_images(line: Line, resumed: str | None, data: str | None) -> bool:
    """Tell if the data to classify are images, from the resumed run, the data or the model."""
    if resumed is not None:
        return resumed == "classify-images"
    if data is not None:
        return is_images(paths_of(data)[0])
    return line.flags.get("--model") in task_class("classify-images").MODELS


def _run_before(line: Line) -> tuple[str | None, str]:
    """Return the task and the model of the run to resume, or of the run whose initial weights are used."""
    path = line.flags["--out"] if {"--resume", "--out"} <= line.flags.keys() else line.flags.get("--from")

    def task_and_model(content: Any) -> tuple[str, str]:
        model = content.get("model") if isinstance(content, dict) else None
        return task_in(content), str(model.get("name")) if isinstance(model, dict) else ""

    try:
        task, model = read_config(Path(path), task_and_model) if path else (None, "")
    except (OSError, ValueError):  # opening the run says what is wrong
        return None, ""
    return (task if task in TASKS else None), model
