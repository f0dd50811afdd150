"""`chainrule train`: a new run, or one that continues, with the options of its task and model.

The data or the run that a line names decide which options it may have, so they are looked for before the line is
parsed, without knowing any option but a few: words that follow no flag, and the values of `--task`, `--model`, `--out`
and the like. A word that follows another flag may be its value or, if the flag is a switch, the run or the data: it
counts if it is one of them. One parser with the options of that task and model then reads the line, and reports what is
wrong with it.
"""

# mypy: disable-error-code="valid-type"
# ruff: noqa: B008
# The options of a training are those of its task and model: their annotations are known where the verb is made.

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, make_dataclass
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from chainrule.option_error import OptionError, option
from chainrule.printing import printable
from chainrule_app.cli.signature import Verb
from chainrule_app.printing import counted, dump_json, flag, format_duration, is_url, resume_command, shown
from chainrule_app.readers.sources import is_images, names_files, paths_of, recognise
from chainrule_app.tasks import TASKS, task_class, unrecognised
from chainrule_app.tasks.baseline import baseline_values
from chainrule_app.tasks.config import Duration, Number, RunConfig, Switch, flags_of, task_in
from chainrule_app.tasks.remote_run import copy_to_work_in, publishing
from chainrule_app.tasks.run_directory import read_config, task_of
from chainrule_app.tasks.task import Task
from chainrule_app.tasks.train_command import train_command
from chainrule_app.training_run import check_start, started_from, train_run

if TYPE_CHECKING:
    from chainrule.training import TrainingResult


if TYPE_CHECKING:
    TaskName = str
else:
    TaskName = Literal[tuple(TASKS)]


@dataclass(frozen=True)
class RunFlags:
    out: Path | None = None
    """Run directory; by default runs/DATA-MODEL, named for the data and the model."""
    task: TaskName | None = None
    """Task to learn; by default recognised from DATA (text, tables, images, sounds and music)."""
    budget: str | None = None
    """Wall-clock training time, such as 90s, 3m or 1h30m. The default depends on the task: 3m for a text."""
    steps: int | None = None
    """Number of weight updates; replaces the budget."""
    epochs: float | None = None
    """Number of passes over the data; replaces the budget."""
    plain: Switch = False
    """Train exactly the architecture that --model names: one network, without the counts, averaged models and other
    parts of the task's default recipe."""
    resume: Switch = False
    """Continue the run in --out with its own options; --budget, --steps or --epochs may extend it."""
    either: Annotated[bool, Parameter(name="--continue", negative=())] = False
    """Start the run in --out, or continue it if it is there: the same command for launchers that restart jobs."""
    overwrite: Switch = False
    """Replace the run in --out."""
    engine: Literal["local", "ray"] = "local"
    """Where to train: in this process, which torchrun may have started, or in processes of a Ray cluster, which start
    again from the last checkpoint where one is killed."""
    workers: Number | None = None
    """Number of processes with --engine ray; by default one for each core."""
    address: str | None = None
    """Address of a Ray cluster; by default that of the variable RAY_ADDRESS, or a cluster started on this machine."""
    init: Annotated[Path | None, Parameter(name="--from")] = None
    """Run that provides the initial weights: the same model, vocabulary or schema, on new data."""
    json: Switch = False
    """Print only the closing summary, as one JSON object, on standard output."""


_SELECTING = ("--task", "--model", "--out", "--from", "--engine", "--address")
_AS_TEXT = {"--level", "--reading", "--text-column"}  # given with a table, they say that it is to be read as a text


def train_verb(task: type[Task[Any]], model: str = "") -> Verb:
    """Train a model on data of any kind."""
    name = model or next(iter(task.MODELS))
    positional = [source for source, what in task.SOURCES.items() if what.flag == "DATA"]
    flagged = make_dataclass(
        "Sources",
        [
            (source, Annotated[str | None, Parameter(name=flag_of, help=text)], None)
            for source, (flag_of, text) in _flags(task).items()
        ],
    )
    flagged.__module__ = __name__  # dataclasses says "types", which the parser takes for the standard library
    data_help = "".join(task.SOURCES[source].help for source in positional)
    model_help = f"Architecture; {next(iter(task.MODELS))} by default."

    def train(
        *data: Annotated[str, Parameter(help=data_help)],
        run: flags_of(RunFlags, RUN) = RunFlags(),
        sources: flags_of(flagged, DATA) = flagged(),
        reading: flags_of(task.Data, DATA) = task.Data(),
        model: Annotated[
            Literal[tuple(task.MODELS)], Parameter(group=MODEL, help=model_help, show_default=False)
        ] = name,
        options: flags_of(task.MODELS[name].options, MODEL) = task.MODELS[name].options(),
        training: flags_of(task.Training, TRAINING) = task.Training(),
        given: Annotated[frozenset[str], Parameter(parse=False)],
        began: Annotated[float, Parameter(parse=False)],
    ) -> int:
        files = {source: getattr(sources, source, None) for source in task.SOURCES}
        for source in positional if data else ():
            if files[source] is not None:
                raise ValueError(f"DATA and {task.SOURCES[source].alias}: both name the data: give only one")
            if len(data) > 1 and (missing := [path for path in data if not names_files(path)]):
                raise FileNotFoundError(
                    f"{missing[0]}: no such file or folder; to name the run: --out {quote(missing[0])}"
                )
            files[source] = data[0] if len(data) == 1 else join(data)
        files = {source: "-" if path == "/dev/stdin" else path for source, path in files.items()}
        length = Duration.of(run.budget, run.steps, run.epochs, task.BUDGET)
        request = RunConfig(files, reading, model, options, length, training)
        if run.resume + run.overwrite + run.either > 1:
            raise ValueError("--resume and --continue go on with a run, --overwrite deletes it: give only one")
        if run.init is not None:
            if run.resume:
                raise ValueError("--from starts a new run, --resume continues one: give only one")
            request = started_from(task, request, run.init, given)
        out = run.out or Path("runs") / task.run_name(request)
        if run.resume and run.out is None and not out.exists():
            raise FileNotFoundError(f"--resume requires --out RUN (there is no {out})")
        if run.engine == "ray":
            show_result(*_on_ray(task, request, out, given, run), json=run.json)
            return 0
        for name in ("workers", "address"):
            if getattr(run, name) is not None:
                raise OptionError(name, f"requires {option('engine', 'ray')}")
        try:
            trained, result = train_run(
                task,
                request,
                out,
                given,
                plain=run.plain,
                resume=None if run.either else run.resume,
                overwrite=run.overwrite,
                began=began,
            )
        except KeyboardInterrupt as stop:
            if not hasattr(stop, "step"):  # before training
                raise
            raise KeyboardInterrupt(
                f"interrupted; saved step {stop.step}, continue with: {resume_command(out)}"
            ) from None
        if result is not None:
            show_result(trained, result, json=run.json)
        return 0

    return Verb(train, task.help)


def _on_ray(
    task: type[Task[Any]], request: RunConfig, out: Path, given: frozenset[str], run: RunFlags
) -> "tuple[Task[Any], TrainingResult]":
    """Train in processes of a Ray cluster."""
    from chainrule_app.scale import ray_engine

    if run.overwrite:
        raise OptionError("overwrite", f"not with {option('engine', 'ray')}", f"delete {shown(out)} first")
    if "-" in request.sources.values():
        raise OptionError("engine", "standard input is read in one process", "write it to a file first")
    for path in filter(None, [out, *request.sources.values()]):
        if str(path).startswith("memory:"):
            raise OptionError("engine", f"other processes cannot see {shown(path)}", "name a folder or another URL")
    if not run.either:
        with publishing(out):  # a run behind a URL is copied
            check_start(task, request, copy_to_work_in(out), given, run.resume, False)
    device = request.training.device
    with ray_engine.cluster(run.address, run.workers) as processes:
        gpu = device.startswith("cuda")
        return ray_engine.train(task, request, out, given, plain=run.plain, processes=processes, gpu=gpu)


_STALE = 0.2  # of all steps, after the best validation: the training had stopped improving


def _flags(task: type[Task[Any]]) -> dict[str, tuple[str, str]]:
    """Return the flag of each source that has one, and its help."""
    flags = {
        source: (what.flag, what.help) if what.flag != "DATA" else (what.alias, what.alias_help)
        for source, what in task.SOURCES.items()
    }
    return {source: flagged for source, flagged in flags.items() if flagged[0]}


def _longer(config: RunConfig, ended_by: str) -> str:
    """Return the flag that makes a run longer."""
    if ended_by == "patience":
        return "--patience ...  (a larger value continues training)"
    for name, value in asdict(config.duration).items():
        if value is not None:
            return f"{flag(name)} ...  (a larger total continues training)"
    return "--budget ...  (a longer total continues training)"


def show_result(run: Task[Any], result: "TrainingResult", *, json: bool) -> None:
    """Print the summary of a training run, and the next commands."""
    figures, best_line = run.best(result.best, result.best_value, result.best_rows)
    if json:
        summary = {
            "run": shown(run.path),
            "command": train_command(run),
            "steps": result.step,
            "steps_now": result.steps_now,
            "elements": result.elements,
            "seconds": result.elapsed,
            "ended_by": result.ended_by,
            "best_step": result.best_step,
            "nats_per_element": result.best.nats_per_element,
            "validation_elements": result.best.elements,
        }
        print(dump_json(summary | figures | {"baseline": baseline_values(run.path)}))
        return
    again = f"{resume_command(run.path)} {_longer(run.config, result.ended_by)}"
    if result.steps_now == 0:
        ended = (
            f"stopped early by --patience {run.config.training.patience}, after {counted(result.step, 'step')}"
            if result.ended_by == "patience"
            else f"has finished its {counted(result.step, 'step')}"
        )
        print(
            f"\nNothing to do: the run {ended}.\n"
            f"best: {printable(best_line)}, at step {result.best_step:,}\nnext: {again}"
        )
        return
    after = result.step - result.best_step
    stale = f"; the {after:,} steps after it improved nothing" if after > _STALE * result.step else ""
    early = " (stopped early: no more improvement)" if result.ended_by == "patience" else ""
    commands = [*run.next_steps(), again]
    print(
        f"\n{counted(result.step, 'step')} in {format_duration(result.elapsed)}{early}\n"
        f"best: {printable(best_line)}, at step {result.best_step:,}{stale}\n"
        f"run:  {shown(run.path)}\n"
        f"next: {commands[0]}\n" + "\n".join(f"      {command}" for command in commands[1:])
    )


RUN, DATA, MODEL, TRAINING = (
    Group(name, sort_key=position) for position, name in enumerate(("Run", "Data", "Model", "Training"), start=1)
)


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


def task_to_train(line: Line) -> str:
    """Return the task of a training: named, of the run to go on with, or recognised from the data."""
    for word in (*line.words[:1], *line.unsure):
        if task_of(Path(word)) is not None:
            raise ValueError(
                f"{word}: expected training data, got a run; to continue it: `{resume_command(Path(word))}`"
            )
    name, resumed = line.flags.get("--task"), run_before(line)[0]
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


def run_before(line: Line) -> tuple[str | None, str]:
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
