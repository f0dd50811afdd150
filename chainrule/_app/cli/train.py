"""`chainrule train DATA`: prepare or reopen a run, train it, and report the result."""

import os
import sys
from contextlib import nullcontext, suppress
from dataclasses import asdict, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from chainrule._app.cli.resume import resumed_config
from chainrule._app.cli.signature import DATA, MODEL, RUN, TRAINING, RunFlags, as_flags, check_path
from chainrule._app.tasks.config import ChosenComputation, RunConfig, facts_of, options_class
from chainrule._app.tasks.display import Verb, counted, dump_json, flag, format_duration, resume_command
from chainrule._app.tasks.run_directory import (
    CHECKPOINT,
    CONFIG,
    DRAFT,
    WEIGHTS,
    lock_run,
    refuse_taken,
    remove,
    remove_folder,
    remove_unfinished,
)
from chainrule._app.tasks.task import Task
from chainrule._printing import printable

if TYPE_CHECKING:
    from chainrule._base import TrainableModel
    from chainrule.training import TrainingBatches, TrainingOptions, TrainingResult
    from chainrule.training._computation import Computation
    from chainrule.training._parallel import Processes


def train_verb(task: type[Task[Any]], model: str = "") -> Verb:
    """Train a model on data of any kind.

    The verb for a task has the options of one of its models, the usual one if none is named.
    """
    name = model or next(iter(task.MODELS))
    positional = [source for source, what in task.SOURCES.items() if what.flag == "DATA"]
    flagged = options_class(
        "Sources",
        (
            (source, Annotated[str | None, Parameter(name=flagged, help=told)], None)
            for source, (flagged, told) in _flags(task).items()
        ),
    )

    def train(
        data: str | None = None,
        /,
        *,
        run: RunFlags,
        sources: Any,
        reading: Any,
        model: str = name,
        options: Any,
        training: Any,
        given: Annotated[frozenset[str], Parameter(parse=False)],
        began: Annotated[float, Parameter(parse=False)],
    ) -> int:
        files = {source: getattr(sources, source, None) for source in task.SOURCES}
        for source in positional if data is not None else ():
            if files[source] is not None:
                raise ValueError(f"DATA and {task.SOURCES[source].alias}: both name the data: leave one out")
            files[source] = data
        asked = RunConfig(files, reading, model, options, run.duration(task.BUDGET), training)
        if not run.resume:
            task.check_asked(asked, given)
        out = run.out or Path("runs") / task.run_name(asked)
        if run.resume and not run.overwrite and run.out is None and not out.exists():
            raise FileNotFoundError(f"--resume continues the run that --out names: add --out RUN (there is no {out})")
        try:
            trained, result = train_run(task, asked, out, run, given, began)
        except KeyboardInterrupt as stop:
            if not hasattr(stop, "step"):  # before training
                raise
            raise KeyboardInterrupt(
                f"interrupted; step {stop.step} is saved, go on with: {resume_command(out)}"
            ) from None
        if result is not None:
            show_result(trained, result, json=run.json)
        return 0

    groups = {"run": (RunFlags, RUN), "sources": (flagged, DATA), "reading": (task.Data, DATA)}
    groups |= {"options": (task.MODELS[name].options, MODEL), "training": (task.Training, TRAINING)}
    train.__annotations__ |= {part: as_flags(made, group) for part, (made, group) in groups.items()}
    if not fields(flagged):  # the parser shows a group of no flags
        train.__annotations__["sources"] = Annotated[Any, Parameter(parse=False)]
    train.__annotations__["model"] = Annotated[
        Literal[tuple(task.MODELS)],
        Parameter(
            group=MODEL, help=f"The architecture; {next(iter(task.MODELS))} where not given.", show_default=False
        ),
    ]
    train.__kwdefaults__ = (train.__kwdefaults__ or {}) | {part: made() for part, (made, _) in groups.items()}
    data_help = "\n".join(f"    data: {task.SOURCES[source].help}" for source in positional)
    train.__doc__ = f"{task.help}\n\nArgs:\n{data_help}" if data_help else task.help
    return train


def _flags(task: type[Task[Any]]) -> dict[str, tuple[str, str]]:
    """The flag of each source that has one, and its help."""
    flags = {
        source: (what.flag, what.help) if what.flag != "DATA" else (what.alias, what.alias_help)
        for source, what in task.SOURCES.items()
    }
    return {source: flagged for source, flagged in flags.items() if flagged[0]}


def train_run(
    task: type[Task[Any]],
    asked: RunConfig,
    out: Path,
    flags: RunFlags,
    given: frozenset[str],
    began: float | None = None,
) -> "tuple[Task[Any], TrainingResult | None]":
    """Train a new run, or go on with one; returns it, and its result in the first of several processes.

    Args:
        task: its class.
        asked: the config that the command line describes.
        out: the run directory.
        flags: whether to resume or overwrite.
        given: the names of options that the user wrote (`--hidden-size`): on resume only these must agree.
        began: the time of `time.monotonic` from which a budget counts; now, if not given.

    Raises:
        FileExistsError: `out` is taken.
        ValueError, OSError: the options cannot be, the data cannot be read, or both changed since the run began.
        Interrupted: Ctrl-C; the run is saved.
    """
    if flags.resume and flags.overwrite:
        raise ValueError("--resume and --overwrite: one continues a run, the other deletes it: choose one")
    before = task.open(out).config if flags.resume else None
    _check_packages(task, asked if before is None or "--tensorboard" in given else before)
    if before is None:
        refuse_taken(out, overwrite=flags.overwrite)
        for source in filter(None, asked.sources.values()):
            check_path(source)
    _announce(out if before is not None else asked.sources["source"])
    return _train(task, asked, before, out, flags, given, began)


def _check_packages(task: type[Task[Any]], config: RunConfig) -> None:
    for package in [*task.NEEDS, *(["tensorboard"] if config.training.tensorboard else [])]:
        if find_spec(package) is None:
            raise ValueError(f"training needs the package {package}, which is not installed: pip install {package}")


def _announce(source: Path | str | None) -> None:
    """Say at once what is read: importing torch takes a second or more."""
    if os.environ.get("RANK", "0") == "0":  # of several processes, the first
        shown = "the text built into Python" if source is None else printable(str(source))
        print(f"reading {shown} …", file=sys.stderr, flush=True)


def _train(
    task: type[Task[Any]],
    asked: RunConfig,
    before: RunConfig | None,
    out: Path,
    flags: RunFlags,
    given: frozenset[str],
    began: float | None,
) -> "tuple[Task[Any], TrainingResult | None]":
    from chainrule.training import train
    from chainrule.training._computation import computing
    from chainrule.training._parallel import processes

    with (
        processes((asked if before is None or "--device" in given else before).training.device) as process_group,
        lock_run(out) if process_group.first else nullcontext(),
    ):
        if process_group.first and before is None:
            create_run(task, asked, out, overwrite=flags.overwrite, given=given)
        process_group.agree([0.0])  # the others wait for the first
        run = task.open(out)
        if before is not None:
            if process_group.first:
                remove_unfinished(out)
            run.config = resumed_config(run, asked, given, check_data=process_group.first)
            if process_group.first and not run.is_prepared():
                run.prepare()
            process_group.agree([0.0])
            there = [run.path / name for name in (CHECKPOINT, WEIGHTS) if (run.path / name).is_file()]
            confirm = "" if "--model" in given else f"--model {run.config.model}"
            run.check_size(there[0] if there else None, confirm=confirm)
        network = run.new_model(run.config.training.seed)
        batches, held_out = run.batches((process_group.rank, process_group.world))
        if process_group.first:
            parameters = sum(weight.numel() for weight in network.parameters())
            choice = [run.choice()] if before is None and run.config.chosen_flags() else []
            model = f"{run.config.model} with {counted(parameters, 'parameter')}, in {run.path}"
            lines = [*run.introduce(), *choice, model]
            print(printable("\n".join(lines)), file=sys.stderr, flush=True)
        computation = settle_computation(run, network, batches, process_group)
        if process_group.first and before is None and (same := run.config.chosen_flags()):
            print(f"the same again: {same}", file=sys.stderr, flush=True)
        options = replace(training_options(run.config), precision=computation.precision)
        with computing(network, computation):
            result = train(
                network, batches, held_out, options, run.path, resume=flags.resume, began=began,
                on_start=run.write_config, on_validation=run.on_validation(), metric=run.validation_metric(),
                observe=run.observe(), watch=run.watch(),
            )  # fmt: skip
    return run, result if process_group.first else None


def training_options(config: RunConfig) -> "TrainingOptions":
    """The options of training that a config asks for.

    Raises:
        ValueError: training cannot be done with them.
    """
    from chainrule.training import TrainingOptions

    known = {item.name for item in fields(TrainingOptions)}
    settings = asdict(config.duration) | asdict(config.training)
    unsettled = {
        name for name in ("batch_size", "optimiser", "learning_rate", "weight_decay") if settings[name] is None
    }
    return TrainingOptions(**{name: value for name, value in settings.items() if name in known - unsettled})


def _check_startable(options: "TrainingOptions") -> None:
    """Raise ValueError for what this machine cannot do."""
    from chainrule.training._computation import multiply_dtype
    from chainrule.training._metrics import check_tensorboard
    from chainrule.training._parallel import choose_device

    multiply_dtype(options.precision, choose_device(options.device))
    if options.tensorboard:
        check_tensorboard()


def create_run(
    task: type[Task[Any]], asked: RunConfig, out: Path, *, overwrite: bool, given: frozenset[str] = frozenset()
) -> None:
    """Make a new run and prepare its data. An old run goes only when nothing of the new one can fail any more.

    The run is made in a folder of its directory and moved up when it is whole: a process killed at any moment leaves
    the old run, the new one, or a directory that is free to use.

    Args:
        task: its class.
        asked: the config that the command line describes.
        out: the run directory.
        overwrite: whether a run that is there goes.
        given: the options that the user wrote, see `train_run`.

    Raises:
        FileExistsError: `out` is taken.
        ValueError, OSError: the options cannot be trained with, or the data cannot be read; `out` is as it was.
    """
    from chainrule.training import make_optimiser

    refuse_taken(out, overwrite=overwrite)
    _check_startable(training_options(asked))
    made = not out.exists()
    draft_path = out / DRAFT
    remove_folder(draft_path)  # left by a run that was killed while it prepared its data
    try:
        asked = task.settle(asked)
        draft = task.create(draft_path, asked)
        draft.config = replace(asked, facts=facts_of(task.Facts, draft.prepare()))
        draft.config = draft.plan(given)
        if draft.config.training.weight_decay is None:
            decay = training_options(draft.config).weight_decay
            draft.config = replace(draft.config, training=replace(draft.config.training, weight_decay=decay))
        draft.write_config()
        draft.batches((0, 1))
        training = training_options(draft.config)
        network = draft.new_model(asked.training.seed)
        make_optimiser(network, training.learning_rate, training.weight_decay, training.optimiser)
        remove(out)
        for part in sorted(draft_path.iterdir(), key=lambda part: part.name == CONFIG):  # last: it makes it a run
            part.rename(out / part.name)
    finally:
        remove_folder(draft_path)
        if made:
            with suppress(OSError):  # not there, or not empty
                out.rmdir()


def settle_computation(
    run: Task[Any], network: "TrainableModel", batches: "TrainingBatches", process_group: "Processes"
) -> "Computation":
    """The computation that the config names; else the one that the rule and the user's options give, written there.

    Args:
        run: its config is written where it named no computation.
        network: its model before training.
        batches: of this process.
        process_group: the processes that train it.
    """
    from chainrule.training._choice import choose_computation
    from chainrule.training._computation import Computation, most_threads

    known, most = run.config.computation, most_threads()
    if known is not None:
        if known.threads > most and process_group.first:
            print(f"{most} threads instead of the {known.threads} that the run began with", file=sys.stderr)
        return Computation(min(known.threads, most), known.precision, known.backend)
    asked = run.config.training
    if asked.threads is not None and asked.threads > most:
        raise ValueError(f"threads: expected at most {most} on this machine, got {asked.threads}")
    chosen, reason = choose_computation(
        network, batches.at(0), process_group.device,
        threads=asked.threads, precision=asked.precision, backend=asked.backend,
    )  # fmt: skip
    if process_group.first:
        print(reason, file=sys.stderr, flush=True)
        run.config = replace(run.config, computation=ChosenComputation(**asdict(chosen)))
        run.write_config()
    return chosen


def _longer(config: RunConfig, ended_by: str) -> str:
    """The flag that makes a run longer."""
    if ended_by == "patience":
        return "--patience ...  (a larger one trains on)"
    for name, value in asdict(config.duration).items():
        if value is not None:
            return f"{flag(name)} ...  (a larger total trains on)"
    return "--budget ...  (a longer total trains on)"


def show_result(run: Task[Any], result: "TrainingResult", *, json: bool) -> None:
    """Print the summary of a training run, and what to do next."""
    figures, told = run.best(result.best, result.best_value, result.best_rows)
    if json:
        summary = {
            "run": str(run.path),
            "steps": result.step,
            "steps_now": result.steps_now,
            "elements": result.elements,
            "seconds": result.elapsed,
            "ended_by": result.ended_by,
            "best_step": result.best_step,
            "nats_per_element": result.best.nats_per_element,
            "validation_elements": result.best.elements,
        }
        print(dump_json(summary | figures))
        return
    again = f"{resume_command(run.path)} {_longer(run.config, result.ended_by)}"
    if result.steps_now == 0:
        ended = (
            f"stopped early by --patience {run.config.training.patience}, after {counted(result.step, 'step')}"
            if result.ended_by == "patience"
            else f"has had all that it was asked for, {counted(result.step, 'step')}"
        )
        print(f"\nnothing to do: the run {ended}\nbest: {printable(told)}, at step {result.best_step:,}\nnext: {again}")
        return
    early = " (stopped early: no more improvement)" if result.ended_by == "patience" else ""
    commands = [*run.next_steps(), again]
    print(
        f"\n{result.step:,} step{'s' * (result.step != 1)} in {format_duration(result.elapsed)}{early}\n"
        f"best: {printable(told)}, at step {result.best_step:,}\n"
        f"run:  {run.path}\n"
        f"next: {commands[0]}\n" + "\n".join(f"      {command}" for command in commands[1:])
    )
