"""Verbs that ask a trained model: sample, score, evaluate, embed, inspect, reconstruct, interpolate, predict.

Each is the same for every task that has its ability; the first line of its docstring is its line in the list of verbs.
A verb calls the run's method of its name and shows the result.
"""

import sys
from pathlib import Path
from secrets import randbelow
from typing import Annotated, Any

from cyclopts import Parameter

from chainrule._app.cli.render import checked_out, say, show, show_report, write_plot
from chainrule._app.cli.signature import Device, Input, Seed, offered
from chainrule._app.tasks.abilities import (
    Embeds,
    Evaluates,
    Inspects,
    Interpolates,
    Predicts,
    Reconstructs,
    Samples,
    Scores,
)
from chainrule._app.tasks.display import Switch, Verb
from chainrule._app.tasks.page import checked_page
from chainrule._app.tasks.task import Task

_MOST = 1 << 20


@offered(Samples, "Sampling")
def sample(
    run: Samples,
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
        out: A file to write.
        seed: The same seed gives the same samples; new ones each time if not given.
        json: Print one JSON object for each.
    """
    checked_out(out, *run.FILES, json=json)
    count = run.USUAL_NUMBER if n is None else n
    if not 1 <= count <= _MOST:
        raise ValueError(f"-n: expected a whole number from 1 to {_MOST}, got {count}")
    chosen = randbelow(1 << 31) if seed is None else seed
    pieces = run.pieces(options, seed=chosen, device=device) if count == 1 and not json and out is None else None
    if pieces is None:
        show(run.sample(count, options, seed=chosen, device=device), json=json, out=out)
        return
    for (piece,) in pieces.stream():
        sys.stdout.write(piece)
        sys.stdout.flush()
    print()
    say(pieces.notes())


@offered(Scores, "Scoring")
def score(
    run: Scores,
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
        sort: Most surprising first.
        top: Print only this many, the most surprising ones.
        json: Print one JSON object a row, then one with the figures of all rows.
        csv: Print the table as CSV.
        out: A file to write instead, such as scores.csv, .parquet or .txt.
    """
    if top is not None and top < 1:
        raise ValueError(f"--top: expected a whole number >= 1, got {top}")
    checked_out(out, json=json)
    result = run.score(data, options, device=device)
    show(result, json=json, csv=csv, ranked=sort, top=top, out=out)


@offered(Evaluates, "Evaluation")
def evaluate(
    run: Evaluates,
    data: Input | None = None,
    /,
    *,
    options: Any,
    json: Switch = False,
    device: Device = "auto",
) -> None:
    """Compare a run's answers with the right ones, by its task's own metrics.

    Args:
        data: The data.
        json: Print the figures as one JSON object.
    """
    show(run.evaluate(data, options, device=device), json=json)


@offered(Embeds, "Embedding")
def embed(
    run: Embeds,
    data: Input,
    /,
    *,
    options: Any,
    out: Path | None = None,
    json: Switch = False,
    device: Device = "auto",
) -> None:
    """Embed inputs as vectors: codes of images and table rows, the state of a model after reading a text.

    Args:
        data: The data.
        out: A file to write: CSV, or an array (N, D) of NumPy by a name that ends in .npy; CSV on standard output if
            not given.
        json: Print one JSON object for each input.
    """
    checked_out(out, json=json)
    show(run.embed(data, options, device=device), json=json, out=out)


@offered(Inspects, "Inspection", out="writes_page")
def inspect(
    run: Inspects,
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
        data: To read in place of held-out data.
        out: The page, a name that ends in .html; report.html in the run directory if not given.
        seed: Seed of random choices.
        json: Print all findings as one JSON object, and nothing else, on standard output.
    """
    assert isinstance(run, Task)
    page = checked_page(out, run.path) if run.writes_page else None
    if page is not None and data is not None and page.exists() and Path(data).exists() and page.samefile(data):
        raise ValueError(f"--out {page}: these are the data to read; name another file")
    report = run.inspect(data, options, seed=seed)
    if out is not None and not report.page:
        raise ValueError(f"--out {out}: this inspection has no page: leave it out")
    show_report(report, page, json=json)


@offered(Reconstructs, "Reconstruction")
def reconstruct(
    run: Reconstructs,
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


@offered(Interpolates, "Interpolation")
def interpolate(
    run: Interpolates,
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
        first: Where to begin.
        last: Where to end.
        out: The file to write.
        seed: Seed of a decoder that draws.
        json: Print what was written as one JSON object.
    """
    checked_out(out, ".png")
    show(run.interpolate((first, last), options, seed=seed, device=device), json=json, out=out)


def predict_verb(task: type[Task[Any]]) -> Verb | None:
    """The verb that is called after its task, as `chainrule tag RUN FILE`; None where the task predicts nothing."""
    several = issubclass(task, Predicts) and task.several
    return (predict_several if several else predict)(task)


@offered(Predicts, "Prediction")
def predict_several(
    run: Predicts,
    /,
    *files: str,
    options: Any,
    out: Path | None = None,
    json: Switch = False,
    csv: Switch = False,
    plot: Path | None = None,
    device: Device = "auto",
) -> None:
    """Predict.

    Args:
        files: The data.
        out: A file to write to; standard output if not given.
        json: Print one JSON object a row.
        csv: Print the table as CSV.
        plot: A file for a picture of the answers.
    """
    _predict(run, list(files), options, device, json=json, csv=csv, out=out, plot=plot)


@offered(Predicts, "Prediction")
def predict(
    run: Predicts,
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
        out: A file to write to; standard output if not given.
        json: Print one JSON object a row.
        csv: Print the table as CSV.
        plot: A file for a picture of the answers.
    """
    _predict(run, [file], options, device, json=json, csv=csv, out=out, plot=plot)


def _predict(
    run: Predicts,
    files: list[str],
    options: Any,
    device: str,
    *,
    plot: Path | None,
    out: Path | None,
    json: bool,
    csv: bool,
) -> None:
    checked_out(out, json=json)
    if plot is not None and not run.PLOTS:
        raise ValueError("--plot: there is no picture of these answers: leave it out")
    checked_out(plot, *run.PLOTS, flag="--plot")
    result = run.predict(files, options, device=device)
    if plot is not None:
        write_plot(result, plot)  # first, for it may be refused
    show(result, json=json, csv=csv, out=out)
