"""Verbs that ask a trained model: sample, score, fill, evaluate, embed, inspect, reconstruct, interpolate and predict.

Each is made for a task that has its method, with the flags of that task's options. The first line of its docstring is
its line in the list of verbs. A verb calls the run's method of its name and shows the result.
"""

# mypy: disable-error-code="valid-type"
# ruff: noqa: B008
# The options of a verb are those of its task: their annotation and their default are known where the verb is made.

import sys
from pathlib import Path
from secrets import randbelow
from typing import Annotated, Any

from chainrule.option_error import OptionError, option
from chainrule_app.cli.divided import Call, Spread, show_answers
from chainrule_app.cli.render import say, show, show_report, total_line, write_plot
from chainrule_app.cli.row_format import checked_out
from chainrule_app.cli.signature import Device, Input, RunPath, Verb, about, verb_for
from chainrule_app.readers.origin import DataSource
from chainrule_app.tasks.config import Number, Switch, flags_of
from chainrule_app.tasks.options import Seed, Top
from chainrule_app.tasks.output import checked_page


@verb_for("sample")
def sample(task: Any) -> Verb:
    """Draw from a trained model."""
    kind: Any = task.Sampling

    def verb(
        run: RunPath,
        /,
        *,
        n: Annotated[Number | None, about(kind, "n", "Number of samples.", name=["-n", "--number"])] = None,
        options: flags_of(kind) = kind(),
        out: Annotated[Path | None, about(kind, "out", "File to write.")] = None,
        seed: Annotated[
            Seed | None, about(kind, "seed", "The same seed gives the same samples; random by default.")
        ] = None,
        device: Device = "cpu",
        json: Annotated[Switch, about(kind, "json", "Print one JSON object per sample.")] = False,
        spread: flags_of(Spread) = Spread(),
    ) -> None:
        checked_out(out, *run.FILES, json=json, folder=spread.in_shards)
        count = run.DEFAULT_NUMBER if n is None else n
        chosen = randbelow(1 << 31) if seed is None else seed
        in_pieces = hasattr(run, "pieces") and count == 1 and not json and out is None
        pieces = run.pieces(options, seed=chosen, device=device) if in_pieces else None
        if pieces is None:
            settings = {"seed": chosen, "device": device}
            call = Call(run, "sample", (count, options), settings, drawn=seed is None)
            show_answers(call, spread=spread, json=json, out=out)
            return
        if spread != Spread():
            raise OptionError("workers", f"requires {option('out')}")
        for (piece,) in pieces.stream():
            sys.stdout.write(piece)
            sys.stdout.flush()
        print()
        say([*total_line(pieces.summary), *pieces.notes()])

    return Verb(verb, kind.__doc__)


@verb_for("score")
def score(task: Any) -> Verb:
    """Score data: nats and bits, exact under the model, or a bound that says so."""
    kind: Any = task.Scoring

    def verb(
        run: RunPath,
        data: Annotated[Input, about(kind, "data", "The data.")],
        /,
        *,
        options: flags_of(kind) = kind(),
        sort: Annotated[Switch, about(kind, "sort", "Sort by surprise, highest first.")] = False,
        top: Annotated[
            Top | None, about(kind, "top", "Print only the N most surprising ones.", name=["--top", "-n"])
        ] = None,
        json: Annotated[
            Switch, about(kind, "json", "Print one JSON object per row, then one with the figures of all rows.")
        ] = False,
        csv: Annotated[Switch, about(kind, "csv", "Print the table as CSV.")] = False,
        out: Annotated[Path | None, about(kind, "out", "File to write, such as scores.csv, .parquet or .txt.")] = None,
        device: Device = "auto",
        spread: flags_of(Spread) = Spread(),
    ) -> None:
        checked_out(out, json=json, folder=spread.in_shards)
        show_answers(
            Call(run, "score", (data, options), {"device": device}),
            spread=spread, json=json, csv=csv, ranked=sort, top=top, out=out,
        )  # fmt: skip

    return Verb(verb, kind.__doc__)


@verb_for("fill")
def fill(task: Any) -> Verb:
    """Fill in the gaps of a table: every empty cell and missing column."""
    kind: Any = task.Filling

    def verb(
        run: RunPath,
        file: Annotated[Input, about(kind, "file", "The table.")],
        /,
        *,
        options: flags_of(kind) = kind(),
        out: Annotated[Path | None, about(kind, "out", "File to write.")] = None,
        probabilities: Annotated[
            Path | None,
            about(
                kind,
                "probabilities",
                "Second file to write, with a row for each filled cell: its interval, and the probabilities.",
            ),
        ] = None,
        json: Annotated[Switch, about(kind, "json", "Print one JSON object per row.")] = False,
        device: Device = "auto",
    ) -> None:
        checked_out(out, json=json)
        checked_out(probabilities, flag="--probabilities")
        if probabilities is not None and options.values == "draw":
            raise ValueError("--probabilities: draws have none: choose --with mean, mode or median")
        result = run.fill(file, options, device=device)
        show(result, json=json, out=out)
        if probabilities is not None:
            show(result.per("cell"), out=probabilities)

    return Verb(verb, kind.__doc__)


@verb_for("evaluate")
def evaluate(task: Any) -> Verb:
    """Compare a run's predictions with references, by the metrics of its task."""
    kind: Any = task.Evaluation

    def verb(
        run: RunPath,
        data: Annotated[Input | None, about(kind, "data", "The data.")] = None,
        /,
        *,
        options: flags_of(kind) = kind(),
        json: Annotated[Switch, about(kind, "json", "Print the figures as one JSON object.")] = False,
        out: Annotated[
            Path | None,
            about(kind, "out", "Folder that keeps what is finished, for --resume; requires --engine ray."),
        ] = None,
        device: Device = "auto",
        spread: flags_of(Spread) = Spread(),
    ) -> None:
        call = Call(run, "evaluate", (data, options), {"device": device})
        if spread.in_shards:
            show_answers(call, spread=spread, json=json, out=out)
            return
        if out is not None or spread.workers is not None:
            raise OptionError("workers" if out is None else "out", f"requires {option('engine', 'ray')}")
        show(call.result(), json=json)

    return Verb(verb, kind.__doc__)


@verb_for("embed")
def embed(task: Any) -> Verb:
    """Embed inputs as vectors: codes of images, the state of a model after reading a text."""
    kind: Any = task.Embedding

    def verb(
        run: RunPath,
        data: Annotated[Input, about(kind, "data", "The data.")],
        /,
        *,
        options: flags_of(kind) = kind(),
        out: Annotated[
            Path | None,
            about(
                kind,
                "out",
                "File to write: CSV, or a NumPy array (N, D) if the name ends in .npy; "
                "CSV on standard output by default.",
            ),
        ] = None,
        json: Annotated[Switch, about(kind, "json", "Print one JSON object per input.")] = False,
        device: Device = "auto",
        spread: flags_of(Spread) = Spread(),
    ) -> None:
        checked_out(out, json=json, folder=spread.in_shards)
        call = Call(run, "embed", (data, options), {"device": device})
        show_answers(call, spread=spread, json=json, out=out)

    return Verb(verb, kind.__doc__)


@verb_for("inspect")
def inspect(task: Any) -> Verb:
    """Look inside a trained model."""
    kind: Any = task.Inspection

    def verb(
        run: RunPath,
        data: Annotated[Input | None, about(kind, "data", "Data to read; held-out data by default.")] = None,
        /,
        *,
        out: Annotated[
            Path | None,
            about(kind, "out", "Page to write, a name ending in .html; report.html in the run directory by default."),
        ] = None,
        options: flags_of(kind) = kind(),
        seed: Annotated[Seed, about(kind, "seed", "Seed of random choices.")] = 0,
        json: Annotated[
            Switch, about(kind, "json", "Print only the findings, as one JSON object, on standard output.")
        ] = False,
    ) -> None:
        page = checked_page(out, run.path)
        if data is not None and page.exists() and Path(data).exists() and page.samefile(data):
            raise ValueError(f"--out {page}: this file holds the data to read: name another file")
        show_report(run.inspect(data, options, seed=seed), page, json=json)

    return Verb(verb, kind.__doc__)


@verb_for("reconstruct")
def reconstruct(task: Any) -> Verb:
    """Show images next to their reconstructions from their codes."""
    kind: Any = task.Reconstruction

    def verb(
        run: RunPath,
        data: Annotated[Input, about(kind, "data", "The data.")],
        /,
        *,
        options: flags_of(kind) = kind(),
        out: Annotated[Path | None, about(kind, "out", "The file to write.")] = None,
        seed: Annotated[Seed, about(kind, "seed", "Seed of a decoder that draws.")] = 0,
        device: Device = "auto",
        json: Annotated[Switch, about(kind, "json", "Print what was written as one JSON object.")] = False,
    ) -> None:
        checked_out(out, ".png")
        show(run.reconstruct(data, options, seed=seed, device=device), json=json, out=out)

    return Verb(verb, kind.__doc__)


@verb_for("interpolate")
def interpolate(task: Any) -> Verb:
    """Interpolate between two images: decode the codes on the line between theirs."""
    kind: Any = task.Interpolation

    def verb(
        run: RunPath,
        first: Annotated[str, about(kind, "first", "First image.")],
        last: Annotated[str, about(kind, "last", "Last image.")],
        /,
        *,
        options: flags_of(kind) = kind(),
        out: Annotated[Path | None, about(kind, "out", "The file to write.")] = None,
        seed: Annotated[Seed, about(kind, "seed", "Seed of a decoder that draws.")] = 0,
        device: Device = "auto",
        json: Annotated[Switch, about(kind, "json", "Print what was written as one JSON object.")] = False,
    ) -> None:
        checked_out(out, ".png")
        show(run.interpolate((first, last), options, seed=seed, device=device), json=json, out=out)

    return Verb(verb, kind.__doc__)


@verb_for("predict")
def predict(task: Any) -> Verb:
    """Predict."""
    kind: Any = task.Prediction

    def verb(
        run: RunPath,
        file: Annotated[
            Input | None, about(kind, "file", "The data; - is standard input.", required=not task.continues)
        ] = None,
        /,
        *,
        options: flags_of(kind) = kind(),
        out: Annotated[Path | None, about(kind, "out", "File to write; standard output by default.")] = None,
        json: Annotated[Switch, about(kind, "json", "Print one JSON object per row.")] = False,
        csv: Annotated[Switch, about(kind, "csv", "Print the table as CSV.")] = False,
        plot: Annotated[
            Path | None, about(kind, "plot", "File for a plot of the predictions.", parse=task.plots)
        ] = None,
        device: Device = "auto",
        spread: flags_of(Spread) = Spread(),
    ) -> None:
        checked_out(out, json=json, folder=spread.in_shards)
        checked_out(plot, ".png", ".svg", ".pdf", flag="--plot")
        files = [file] if isinstance(file, str | DataSource) else file
        if plot is None:
            drawn = getattr(options, "seed", 0) is None
            call = Call(run, "predict", (files, options), {"device": device}, drawn=drawn)
            show_answers(call, spread=spread, json=json, csv=csv, out=out)
            return
        if spread != Spread():
            raise OptionError("workers", f"not with {option('plot')}")
        result = run.predict(files, options, device=device)
        write_plot(result, plot)  # first, for it may be refused
        show(result, json=json, csv=csv, out=out)

    return Verb(verb, kind.__doc__)
