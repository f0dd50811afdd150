"""`chainrule train`: a new run, or one that continues, with the options of its task and model."""

# mypy: disable-error-code="valid-type"
# ruff: noqa: B008
# The options of a training are those of its task and model: their annotations are known where the verb is made.

from dataclasses import asdict, make_dataclass
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from chainrule.option_error import OptionError, option
from chainrule.printing import printable
from chainrule_app.cli.signature import (
    DATA,
    MODEL,
    RUN,
    TRAINING,
    RunFlags,
    Verb,
    flags_of,
)
from chainrule_app.readers.sources import names_files
from chainrule_app.readers.text import shown, url_of
from chainrule_app.tasks.baseline import baseline_values
from chainrule_app.tasks.config import Duration, RunConfig
from chainrule_app.tasks.display import counted, dump_json, flag, format_duration, resume_command
from chainrule_app.tasks.task import Task
from chainrule_app.tasks.train_command import train_command
from chainrule_app.training_run import check_start, started_from, train_run

if TYPE_CHECKING:
    from chainrule.training import TrainingResult


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

    if url_of(out) is not None:
        raise OptionError("out", f"a cluster trains in a folder that its machines share, got {shown(out)}", "name one")
    if run.overwrite:
        raise OptionError("overwrite", f"not with {option('engine', 'ray')}", f"delete {out} first")
    if "-" in request.sources.values():
        raise OptionError("engine", "standard input is read in one process", "write it to a file first")
    if not run.either:
        check_start(task, request, out, given, run.resume, False)
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
