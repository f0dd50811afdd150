"""Verbs that ask a trained model: sample, score, fill, evaluate, embed, inspect, reconstruct, interpolate and predict.

Each is the same for every task that has its method; the
first line of its docstring is its line in the list of verbs. A verb calls the run's method of its name and shows the
result.
"""

import sys
from pathlib import Path
from secrets import randbelow
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from chainrule_app.cli.render import checked_out, say, show, show_report, total_line, write_plot
from chainrule_app.cli.signature import (
    Device,
    Input,
    Seed,
    verb_for,
)
from chainrule_app.readers.origin import DataSource
from chainrule_app.tasks.display import Switch
from chainrule_app.tasks.output import checked_page

if TYPE_CHECKING:
    pass

_MOST = 1 << 20  # samples


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
    """Embed inputs as vectors: codes of images, the state of a model after reading a text.

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
    result = run.predict([file] if isinstance(file, str | DataSource) else file, options, device=device)
    if plot is not None:
        write_plot(result, plot)  # first, for it may be refused
    show(result, json=json, csv=csv, out=out)
