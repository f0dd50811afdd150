"""Verbs of runs: train, and those that ask a trained model.

`train_verb` makes the verb that trains a model of a task, or continues a run. The others are sample, score, fill,
evaluate, embed, inspect, reconstruct, interpolate and predict. Each is the same for every task that has its method; the
first line of its docstring is its line in the list of verbs. A verb calls the run's method of its name and shows the
result.
"""

import sys
from dataclasses import asdict, fields
from pathlib import Path
from secrets import randbelow
from shlex import join, quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from chainrule.printing import printable
from chainrule_app.cli.render import checked_out, say, show, show_report, total_line, write_plot
from chainrule_app.cli.signature import (
    DATA,
    MODEL,
    RUN,
    TRAINING,
    Device,
    Input,
    RunFlags,
    Seed,
    as_flags,
    described,
    verb_for,
)
from chainrule_app.readers.gather import names_files
from chainrule_app.tasks.config import Duration, RunConfig, options_class
from chainrule_app.tasks.display import Switch, Verb, counted, dump_json, flag, format_duration, resume_command
from chainrule_app.tasks.output import checked_page
from chainrule_app.tasks.task import Task
from chainrule_app.tasks.train_command import train_command
from chainrule_app.training_run import started_from, train_run

if TYPE_CHECKING:
    from chainrule.training import TrainingResult

_MOST = 1 << 20  # samples


def train_verb(task: type[Task[Any]], model: str = "") -> Verb:
    """Train a model on data of any kind."""
    name = model or next(iter(task.MODELS))
    positional = [source for source, what in task.SOURCES.items() if what.flag == "DATA"]
    flagged = options_class(
        "Sources",
        (
            (source, Annotated[str | None, Parameter(name=flagged, help=text)], None)
            for source, (flagged, text) in _flags(task).items()
        ),
    )

    def train(
        *data: str,
        run: RunFlags,
        sources: Any,
        reading: Any,
        model: str = name,
        options: Any,
        training: Any,
        explicit_flags: Annotated[frozenset[str], Parameter(parse=False)],
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
            request = started_from(task, request, run.init, explicit_flags)
        out = run.out or Path("runs") / task.run_name(request)
        if run.resume and run.out is None and not out.exists():
            raise FileNotFoundError(f"--resume requires --out RUN (there is no {out})")
        try:
            trained, result = train_run(
                task,
                request,
                out,
                explicit_flags,
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

    groups = {"run": (RunFlags, RUN), "sources": (flagged, DATA), "reading": (task.Data, DATA)}
    groups |= {"options": (task.MODELS[name].options, MODEL), "training": (task.Training, TRAINING)}
    train.__annotations__ |= {part: as_flags(part_options, group) for part, (part_options, group) in groups.items()}
    if not fields(flagged):  # the parser shows a group of no flags
        train.__annotations__["sources"] = Annotated[Any, Parameter(parse=False)]
    train.__annotations__["model"] = Annotated[
        Literal[tuple(task.MODELS)],
        Parameter(group=MODEL, help=f"Architecture; {next(iter(task.MODELS))} by default.", show_default=False),
    ]
    train.__kwdefaults__ = (train.__kwdefaults__ or {}) | {
        part: described(part_options)() for part, (part_options, _) in groups.items()
    }
    data_help = "\n".join(f"    data: {task.SOURCES[source].help}" for source in positional)
    train.__doc__ = f"{task.help}\n\nArgs:\n{data_help}" if data_help else task.help
    return train


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
            "run": str(run.path),
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
        print(dump_json(summary | figures))
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
    early = " (stopped early: no more improvement)" if result.ended_by == "patience" else ""
    commands = [*run.next_steps(), again]
    print(
        f"\n{counted(result.step, 'step')} in {format_duration(result.elapsed)}{early}\n"
        f"best: {printable(best_line)}, at step {result.best_step:,}\n"
        f"run:  {run.path}\n"
        f"next: {commands[0]}\n" + "\n".join(f"      {command}" for command in commands[1:])
    )


@verb_for("sample")
def sample(
    run: Any,
    /,
    *,
    n: Annotated[int | None, Parameter(name=["-n", "--number"])] = None,
    options: Any,
    out: Path | None = None,
    seed: Seed | None = None,
    device: Device = "cpu",
    json: Switch = False,
) -> None:
    """Draw from a trained model.

    Args:
        n: Number of samples.
        out: File to write.
        seed: The same seed gives the same samples; random by default.
        json: Print one JSON object per sample.
    """
    checked_out(out, *run.FILES, json=json)
    count = run.DEFAULT_NUMBER if n is None else n
    if not 1 <= count <= _MOST:
        raise ValueError(f"-n: expected a whole number from 1 to {_MOST}, got {count}")
    chosen = randbelow(1 << 31) if seed is None else seed
    in_pieces = hasattr(run, "pieces") and count == 1 and not json and out is None
    pieces = run.pieces(options, seed=chosen, device=device) if in_pieces else None
    if pieces is None:
        show(run.sample(count, options, seed=chosen, device=device), json=json, out=out)
        return
    for (piece,) in pieces.stream():
        sys.stdout.write(piece)
        sys.stdout.flush()
    print()
    say([*total_line(pieces.summary), *pieces.notes()])


@verb_for("score")
def score(
    run: Any,
    data: Input,
    /,
    *,
    options: Any,
    sort: Switch = False,
    top: Annotated[int | None, Parameter(name=["--top", "-n"])] = None,
    json: Switch = False,
    csv: Switch = False,
    out: Path | None = None,
    device: Device = "auto",
) -> None:
    """Score data: nats and bits, exact under the model, or a bound that says so.

    Args:
        data: The data.
        sort: Sort by surprise, highest first.
        top: Print only the N most surprising ones.
        json: Print one JSON object per row, then one with the figures of all rows.
        csv: Print the table as CSV.
        out: File to write, such as scores.csv, .parquet or .txt.
    """
    if top is not None and top < 1:
        raise ValueError(f"--top: expected a whole number >= 1, got {top}")
    checked_out(out, json=json)
    result = run.score(data, options, device=device)
    show(result, json=json, csv=csv, ranked=sort, top=top, out=out)


@verb_for("fill")
def fill(
    run: Any,
    file: Input,
    /,
    *,
    options: Any,
    out: Path | None = None,
    probabilities: Path | None = None,
    json: Switch = False,
    device: Device = "auto",
) -> None:
    """Fill in the gaps of a table: every empty cell and missing column.

    Args:
        file: The table.
        out: File to write.
        probabilities: Second file to write, with a row for each filled cell: its interval, and the probabilities.
        json: Print one JSON object per row.
    """
    checked_out(out, json=json)
    checked_out(probabilities, flag="--probabilities")
    if probabilities is not None and options.values == "draw":
        raise ValueError("--probabilities: draws have none: choose --with mean, mode or median")
    result = run.fill(file, options, device=device)
    show(result, json=json, out=out)
    if probabilities is not None:
        show(result.per("cell"), out=probabilities)


@verb_for("evaluate")
def evaluate(
    run: Any, data: Input | None = None, /, *, options: Any, json: Switch = False, device: Device = "auto"
) -> None:
    """Compare a run's predictions with references, by the metrics of its task.

    Args:
        data: The data.
        json: Print the figures as one JSON object.
    """
    show(run.evaluate(data, options, device=device), json=json)


@verb_for("embed")
def embed(
    run: Any, data: Input, /, *, options: Any, out: Path | None = None, json: Switch = False, device: Device = "auto"
) -> None:
    """Embed inputs as vectors: codes of images and table rows, the state of a model after reading a text.

    Args:
        data: The data.
        out: File to write: CSV, or a NumPy array (N, D) if the name ends in .npy; CSV on standard output by default.
        json: Print one JSON object per input.
    """
    checked_out(out, json=json)
    show(run.embed(data, options, device=device), json=json, out=out)


@verb_for("inspect")
def inspect(
    run: Any,
    data: Input | None = None,
    /,
    *,
    out: Path | None = None,
    options: Any,
    seed: Seed = 0,
    json: Switch = False,
) -> None:
    """Look inside a trained model.

    Args:
        data: Data to read; held-out data by default.
        out: Page to write, a name ending in .html; report.html in the run directory by default.
        seed: Seed of random choices.
        json: Print only the findings, as one JSON object, on standard output.
    """
    page = checked_page(out, run.path) if run.writes_page else None
    if page is not None and data is not None and page.exists() and Path(data).exists() and page.samefile(data):
        raise ValueError(f"--out {page}: this file holds the data to read: name another file")
    report = run.inspect(data, options, seed=seed)
    if out is not None and not report.page:
        raise ValueError(f"--out {out}: this inspection writes no page: leave it out")
    show_report(report, page, json=json)


@verb_for("reconstruct")
def reconstruct(
    run: Any,
    data: Input,
    /,
    *,
    options: Any,
    out: Path | None = None,
    seed: Seed = 0,
    device: Device = "auto",
    json: Switch = False,
) -> None:
    """Show images next to their reconstructions from their codes.

    Args:
        data: The data.
        out: The file to write.
        seed: Seed of a decoder that draws.
        json: Print what was written as one JSON object.
    """
    checked_out(out, ".png")
    show(run.reconstruct(data, options, seed=seed, device=device), json=json, out=out)


@verb_for("interpolate")
def interpolate(
    run: Any,
    first: str,
    last: str,
    /,
    *,
    options: Any,
    out: Path | None = None,
    seed: Seed = 0,
    device: Device = "auto",
    json: Switch = False,
) -> None:
    """Interpolate between two images: decode the codes on the line between theirs.

    Args:
        first: First image.
        last: Last image.
        out: The file to write.
        seed: Seed of a decoder that draws.
        json: Print what was written as one JSON object.
    """
    checked_out(out, ".png")
    show(run.interpolate((first, last), options, seed=seed, device=device), json=json, out=out)


@verb_for("predict")
def predict(
    run: Any,
    file: Input,
    /,
    *,
    options: Any,
    out: Path | None = None,
    json: Switch = False,
    csv: Switch = False,
    plot: Path | None = None,
    device: Device = "auto",
) -> None:
    """Predict.

    Args:
        file: The data; - is standard input.
        out: File to write; standard output by default.
        json: Print one JSON object per row.
        csv: Print the table as CSV.
        plot: File for a plot of the predictions.
    """
    checked_out(out, json=json)
    checked_out(plot, ".png", ".svg", ".pdf", flag="--plot")
    result = run.predict([file] if isinstance(file, str) else file, options, device=device)
    if plot is not None:
        write_plot(result, plot)  # first, for it may be refused
    show(result, json=json, csv=csv, out=out)
