"""`chainrule inspect`: inside a trained recurrence, as a table and a page."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from chainrule.cli.command_line import quoted
from chainrule.cli.display import dump_json, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from chainrule.diagnostics import Inspection
    from chainrule.diagnostics.clipping import Clipping
    from chainrule.diagnostics.report import ReadText
    from chainrule.models import RecurrentLM
    from chainrule.runs.text import TextRun

MOST_ROWS, MOST_STEPS, MOST_SYMBOLS = 256, 10_000, 1 << 16


def inspect(
    run: Path,
    file: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    /,
    *,
    out: Path | None = None,
    rows: int = 8,
    steps: int = 200,
    property: Annotated[str | None, Parameter(name="--property")] = None,  # noqa: A002 - the word of the flag
    seed: int = 0,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Look inside a trained recurrence: how far gradients and inputs reach, what the gates do, what surprises.

    Prints a table with a verdict a layer and writes a page with plots (HTML, one file, needs no network). Works on the
    beginning of the run's held-out text or of FILE, cut into rows that each start afresh; of a run trained on lines,
    each row is a line. Needs the extra plots: pip install 'chainrule[plots]'.

    Args:
        run: The run directory.
        file: The text to read in place of the held-out one; - reads standard input.
        out: The page, a name that ends in .html; report.html in the run directory if not given.
        rows: Rows of text to read.
        steps: Symbols of a row, over which gradients are followed.
        property: What to seek units for: quotes, parentheses, brackets, late-in-line, indentation, upper-case,
            word-start, word-end, line-start, line-end, punctuation, vowel, digit, space, or a regular expression;
            chosen by the text if not given.
        seed: Of the changes of inputs by which memory is measured.
        json: Print all figures as one JSON object, and nothing else, on standard output.
    """
    _check_numbers(rows, steps, seed)
    page = _checked_page(out, run, file)
    from chainrule.cli.text.inspection_json import inspection_figures
    from chainrule.diagnostics import inspect_recurrence
    from chainrule.diagnostics.clipping import clipping
    from chainrule.diagnostics.panels import new_figure
    from chainrule.diagnostics.report import Subject, report_page
    from chainrule.runs.text import TextRun

    opened = TextRun.open(run)
    wanted = _wanted(property)
    model = _recurrent_model(opened)
    new_figure()  # where matplotlib is missing, that is said before any work is done
    x, lengths, name = _window(opened, file, rows, steps)
    read, has_property = _read(opened, name, x, lengths, wanted, property)
    with _working() as stage:
        stage("following gradients through time")
        try:
            inspection = inspect_recurrence(model, x, lengths, has_property=has_property, seed=seed)
        except ValueError as error:
            raise ValueError(f"{run}: {str(error).removeprefix('module: ')}") from None
        stage("drawing the page")
        trained = clipping(opened.metrics(), opened.config.training.clip_norm)
        subject = Subject(str(run), _model_line(opened), _command(run, file, out, rows, steps, property, seed))
        content = report_page(inspection, read, subject, trained)
        _write(page, content)
    if json:
        shown = {"run": str(run), "model": opened.config.model, "page": str(page)}
        figures = inspection_figures(inspection, read, x, opened.vocabulary, trained)
        print(dump_json(shown | figures))
    else:
        _print_table(opened, inspection, read, trained, page)


def _check_numbers(rows: int, steps: int, seed: int) -> None:
    for name, value, low, high in (("rows", rows, 1, MOST_ROWS), ("steps", steps, 2, MOST_STEPS)):
        if not low <= value <= high:
            raise ValueError(f"--{name}: expected a whole number from {low} to {high}, got {value}")
    if rows * steps > MOST_SYMBOLS:
        raise ValueError(f"--rows {rows} --steps {steps}: expected at most {MOST_SYMBOLS} symbols, got {rows * steps}")
    if not 0 <= seed < 1 << 63:
        raise ValueError(f"--seed: expected a whole number from 0 to {(1 << 63) - 1}, got {seed}")


def _checked_page(out: Path | None, run: Path, file: str | None) -> Path:
    from chainrule.runs.run import REPORT

    page = run / REPORT if out is None else out
    if out is None and not run.is_dir():
        return page  # no run: opening it says so
    if page.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out {page}: expected a name that ends in .html, so that no other file is replaced")
    if page.is_dir():
        raise ValueError(f"--out {page}: this is a directory; name a file in it")
    if not page.parent.is_dir():
        raise FileNotFoundError(f"--out {page}: there is no directory {page.parent}: make it first")
    if file is not None and page.exists() and Path(file).exists() and page.samefile(file):
        raise ValueError(f"--out {page}: this is the text to read; name another file")
    return page


def _wanted(name: str | None) -> Any:
    from chainrule.diagnostics.text_properties import text_property

    try:
        return None if name is None else text_property(name)
    except ValueError as error:
        raise ValueError(f"--{error}") from None


def _recurrent_model(run: "TextRun") -> "RecurrentLM":
    from chainrule.models import RecurrentLM

    model = run.model()
    if not isinstance(model, RecurrentLM):
        raise ValueError(
            f"{run.path}: expected a model with a recurrence (lstm, gru or rnn), got {run.config.model}, which has none"
        )
    return model


def _window(run: "TextRun", file: str | None, rows: int, steps: int) -> "tuple[Tensor, Tensor | None, str]":
    """The rows, their lengths, and where they come from."""
    from chainrule.cli.text.windows import file_window, own_window

    if file is None:
        x, lengths, part = own_window(run, rows, steps)
        facts = run.config.facts
        source = facts["validation"] if part == "held-out" and facts["validation"] else facts["source"]
        return x, lengths, f"{part} text of {source['name']}"
    x, lengths = file_window(run.vocabulary, run.config.data.reading, file, rows, steps)
    return x, lengths, "standard input" if file == "-" else file


def _read(
    run: "TextRun", name: str, x: "Tensor", lengths: "Tensor | None", wanted: Any, asked: str | None
) -> "tuple[ReadText, Tensor | None]":
    """The text of the rows, and which of its elements have the property that units are sought for."""
    import torch

    from chainrule.data.spans import symbol_spans
    from chainrule.diagnostics.report import ReadRow, ReadText
    from chainrule.diagnostics.text_properties import PROPERTIES, choose_property

    counts = [x.shape[1]] * len(x) if lengths is None else lengths.tolist()
    parts = [symbol_spans(run.vocabulary, row[:count].numpy()) for row, count in zip(x, counts, strict=True)]
    chosen = wanted if asked is not None else choose_property(parts)
    has = torch.zeros(x.shape, dtype=torch.bool)
    for row, (text, spans) in zip(has, parts, strict=True):
        row[: len(spans)] = torch.tensor([] if chosen is None else chosen.of(text, spans), dtype=torch.bool)
    share = int(has.sum()) / sum(counts)
    if chosen is None:
        note = "No property was found that some elements of this text have and others lack: units are not sought."
    elif share in (0, 1):
        known = "" if chosen.name in PROPERTIES else f" (by name there are {', '.join(PROPERTIES)})"
        note = (
            f"Every element has the property {chosen.name}" if share else f"No element has the property {chosen.name}"
        )
        note, chosen = f"{note}: no units can be sought for it{known}.", None
    else:
        how = "chosen by the text; --property takes another" if asked is None else "as asked for"
        meaning = f", {chosen.meaning}" if chosen.meaning else ""
        note = f"Units are sought for the property {chosen.name}{meaning} ({how}): {share:.1%} of the elements have it."
    unknown = 0 if run.vocabulary.unknown is None else _count_unknown(run, x, counts)
    rows = [ReadRow(text, spans) for text, spans in parts]
    read = ReadText(name, run.config.data.level, rows, unknown, chosen, share, note)
    return read, None if chosen is None else has


def _count_unknown(run: "TextRun", x: "Tensor", counts: list[int]) -> int:
    return sum(int((row[:count] == run.vocabulary.unknown).sum()) for row, count in zip(x, counts, strict=True))


def _model_line(run: "TextRun") -> str:
    options = run.config.options
    layers = f"{options.num_layers} layer{'s' * (options.num_layers != 1)}"
    return f"{run.config.model} of {layers} with {options.hidden_size} units"


def _command(
    run: Path, file: str | None, out: Path | None, rows: int, steps: int, property_name: str | None, seed: int
) -> str:
    parts = ["chainrule inspect", quoted(run)]
    parts += [quoted(Path(file))] if file is not None else []
    parts += [f"--out {quoted(out)}"] if out is not None else []
    parts += [f"--rows {rows} --steps {steps} --seed {seed}"]
    parts += [f"--property {quoted(Path(property_name))}"] if property_name is not None else []
    return " ".join(parts)


def _write(page: Path, content: str) -> None:
    from chainrule.data.atomic import write_text

    try:
        write_text(page, content)
    except OSError as error:
        raise OSError(f"--out {page}: cannot be written ({error.strerror}): name another place") from None


@contextmanager
def _working() -> "Iterator[Callable[[str], None]]":
    """Shows on a terminal that something goes on, and for how long."""
    if not sys.stderr.isatty():
        yield lambda stage: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda stage: progress.update(task, description=stage)


def _print_table(
    run: "TextRun", inspection: "Inspection", read: "ReadText", trained: "Clipping | None", page: Path
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from chainrule.diagnostics.report import reading_line, remarks
    from chainrule.diagnostics.report.layer_figures import layer_table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("")
    for number in range(1, len(inspection.layers) + 1):
        table.add_column(f"layer {number}", overflow="fold")
    for figure, values in layer_table(inspection):
        table.add_row(figure.name, *values)
    print(f"{run.path}: {_model_line(run)}\n{one_line(reading_line(inspection, read))}\n", flush=True)
    width = None if sys.stdout.isatty() else 30 + 34 * len(inspection.layers)
    console = Console(highlight=False, markup=False, emoji=False, color_system=None, width=width)
    with console.capture() as drawn:
        console.print(table)
    print("\n".join(line.rstrip() for line in drawn.get().splitlines()), end="\n\n")
    for number, layer in enumerate(inspection.layers, 1):
        print(f"layer {number}: {layer.verdict.sentence} [{layer.verdict.rule}]")
    for line in remarks(inspection, read):
        print(one_line(line))
    if trained is not None:
        print(f"Clipping: {trained.sentence()}")
    print(f"page: {page}")
