"""How the command line shows a result: a table, CSV, lines, JSON or files. The one place that does it for all verbs.

- A table is aligned by its first rows and streamed; the facts and figures about all rows follow it.
- `--json` prints an object a row. Figures and facts of all rows are one more object: on standard error, so that
  standard output has rows alone, or on standard output if a result has no rows.
- Images, sounds and music go into files, and a line on standard error names them.
"""

import heapq
import math
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from chainrule.files import writing
from chainrule_app.blocks import in_blocks
from chainrule_app.cli.row_format import (
    ROWS_ALONE,
    RowFormat,
    encoded,
    format_of,
    packed,
    write_parquet,
)
from chainrule_app.printing import counted, dump_json, plain_value, progress_bars, shown
from chainrule_app.result_table import table_lines
from chainrule_app.results import Column, Report, Result
from chainrule_app.tasks.output import save_figure, write_images, write_music, write_page, write_sounds

if TYPE_CHECKING:
    import polars

    from chainrule_app.scale.workers import Part

_ROWS_IN_MEMORY = 1 << 16  # of a Parquet file
_PARTS_TOGETHER = 64  # of a Parquet file
_ADVANCE = 16  # rows between two steps of a progress bar


def show(
    result: Result,
    *,
    json: bool = False,
    csv: bool = False,
    ranked: bool = False,
    top: int | None = None,
    out: Path | None = None,
    parts: bool = False,
) -> None:
    """Show a result, or write it to a file; `parts` tells if its rows are those of `chainrule_app.scale.Part`."""
    whole = ranked or top is not None
    if whole or out is not None or not sys.stdout.isatty():  # else the rows themselves appear
        result = _with_progress(result, parts=parts)
    if whole:
        result = _ranked(result, top)
    elif result.form == "figures" and not csv and out is None:
        result = result.per("file")
    form = "csv" if csv and not json else result.form
    if form in ("images", "sounds", "music"):
        _write_media(result, form, out, json=json)
    elif out is not None:
        _write(result, form, out, json=json, parts=parts)
    elif json:
        _print_lines(_json_lines(result))
        say(result.notes())
    else:
        _print_lines(_lines(result, form))
        if form in ("csv", "cells"):
            say(figure_lines(result))
        elif form in ("lines", "texts"):
            say(chain(total_line(result.summary), result.notes()))


def _with_progress(result: Result, *, parts: bool) -> Result:
    """Return the same result; while its rows are computed, a bar shows on a terminal how many there are."""

    def rows() -> Iterator[Any]:
        with progress_bars() as begin:
            advance, count = begin(result.hints.get("rows"), "rows"), 0
            for row in cast("Iterator[Any]", result.stream()):
                yield row
                count += row.rows if parts else 1
                if count >= _ADVANCE:
                    advance(count)
                    count = 0

    return result.with_rows(rows())


def write_plot(result: Result, out: Path) -> None:
    """Write the plot of a result in the format that the file name asks for."""
    save_figure(result.plot(), out)
    say([f"{shown(out)}{_seed(result)}"])


def show_report(report: Report, out: Path | None, *, json: bool) -> None:
    named = {"page": shown(out)} if report.page and out is not None else {}
    if report.page and out is not None:
        write_page(out, report.page)
    if json:
        print(dump_json(report.findings | named))
    else:
        _print_lines(chain(report.lines, (f"page: {page}" for page in named.values())))


def _ranked(result: Result, top: int | None) -> Result:
    if not result.columns and result.views:
        raise ValueError(
            f"--{'sort' if top is None else 'top'}: these figures describe the whole, without rows to sort: "
            f"use --per {' or --per '.join(name for name in result.views if name != 'file')}"
        )
    if not result.rank:
        raise ValueError(f"--{'sort' if top is None else 'top'}: these rows have no rank: leave it out")
    if top is None:
        return result.top()
    index = result.names.index(result.rank)
    best = heapq.nlargest(top, result.stream(), key=lambda row: row[index])  # the others are not kept
    return result.with_rows(best)


def _lines(result: Result, form: str) -> Iterator[str]:
    """Render a result as lines for people."""
    if row_format := RowFormat.of(form, "", json=False):
        yield from row_format.lines(result)
    elif form == "texts":
        texts = result.values
        headed = len(texts) > 1 and not result.hints.get("one_line")
        for number, text in enumerate(texts, 1):
            yield from (f"=== sample {number} of {len(texts)} ===", text) if headed else (text,)
    else:
        if result.columns:
            yield from table_lines(result.columns, result.stream(), line_width(), line_width=line_width())
        yield from figure_lines(result)


def _json_lines(result: Result) -> Iterator[str]:
    yield from RowFormat("json").lines(result)
    yield from json_facts(result)


def json_facts(result: Result) -> Iterator[str]:
    """Yield the figures and facts of all rows if there are no rows; else say them."""
    facts = {name: plain_value(value, value) for name, value in (result.summary | result.about).items()}
    if not result.columns:
        yield dump_json(facts)
    elif facts:
        say([dump_json(facts)])


def _write_media(result: Result, form: str, out: Path | None, *, json: bool) -> None:
    files = {"images": write_images, "sounds": write_sounds, "music": write_music}[form](result, out)
    if json:
        _print_lines(_json_lines(result.replaced(result.main, "file", [shown(file) for file, _ in files])))
    else:
        lines = dict.fromkeys(f"{shown(file)}: {about}{_seed(result)}" for file, about in files)
        say(chain(lines, result.notes()))


def _write(result: Result, form: str, out: Path, *, json: bool, parts: bool) -> None:
    name, rows = format_of(out), 0

    def noted() -> Iterator[Any]:
        nonlocal rows
        for row in cast("Iterator[Any]", result.stream()):
            rows += row.rows if parts else 1
            yield row

    with writing(out) as file, packed(file, out) as content:
        write = _write_parts if parts else _write_content
        write(result.with_rows(noted()), form, name, content, json=json)
    say_written(result, out, rows, json=json)


def say_written(result: Result, out: Path, rows: int, *, json: bool) -> None:
    """Say how many rows of a result were written, and its figures."""
    say([f"{shown(out)}: {counted(rows, 'row')}{_seed(result)}"])
    if not json:
        rows_alone = result.form == "table" and format_of(out).endswith(ROWS_ALONE)
        samples = result.framed or result.form == "texts"
        figures = total_line(result.summary) if samples else ()
        say(figure_lines(result) if rows_alone else chain(figures, result.notes()))


def _write_parts(result: Result, form: str, name: str, file: IO[bytes], *, json: bool) -> None:
    """Write rows that other processes have written as bytes."""
    row_format = RowFormat.of(form, name, json=json)
    contents = (part.content for part in cast("Iterator[Part]", result.stream()))
    if row_format is not None and row_format.kind == "parquet":
        import polars

        frames = map(polars.read_ipc, contents)
        groups = iter(lambda: list(islice(frames, _PARTS_TOGETHER)), [])
        write_parquet((polars.concat(group, how="vertical_relaxed") for group in groups), file)
        return
    file.writelines(contents)
    if row_format is not None and row_format.kind == "json":
        file.writelines(map(encoded, json_facts(result)))


def _write_content(result: Result, form: str, name: str, file: IO[bytes], *, json: bool) -> None:
    """Write the rows as they are computed, without keeping them; only an array is written at the end."""
    row_format = RowFormat.of(form, name, json=json)
    if name.endswith(".npy"):
        import numpy as np

        np.save(file, result.to_numpy())
    elif row_format is None:
        file.writelines(map(encoded, _lines(result, form)))
    elif row_format.kind == "parquet":
        write_parquet(_frames(result), file)
    else:
        file.writelines(map(encoded, _json_lines(result) if row_format.kind == "json" else row_format.lines(result)))


def _frames(result: Result) -> "Iterator[polars.DataFrame]":
    frame = None
    for block in in_blocks(result.stream(), _ROWS_IN_MEMORY):
        frame = result.with_rows(block).to_polars()
        yield frame
    if frame is None:
        yield result.to_polars()


def _seed(result: Result) -> str:
    return f" (seed {result.about['seed']})" if "seed" in result.about else ""


def _print_lines(lines: Iterator[str]) -> None:
    for line in lines:
        print(line)


def say(lines: Iterable[str]) -> None:
    """Print lines for people on standard error."""
    for line in lines:
        print(line, file=sys.stderr)


_INDENT = "  "  # of nested figures
_ACRONYMS = {word.lower(): word for word in ("BLEU", "CRPS", "ELBO", "F1", "KL", "MAE", "RMSE")}


def line_width() -> int | None:
    """Return the width limit of a line: COLUMNS of the environment, else the terminal's, none for a file."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked):
        return int(asked)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def figure_lines(result: Result) -> Iterator[str]:
    """Render the figures, facts and notes of a result; nested figures become tables."""
    figures = {name: value for name, value in result.summary.items() if value is not None}
    plain = _plain_figures(figures)
    if plain and not result.columns:
        size = max(map(len, plain))
        yield from (f"{name:<{size}}  {value}" for name, value in plain.items())
    else:
        yield from total_line(figures)
    for name, value in figures.items():
        if isinstance(value, dict | list) and value:
            yield f"{_words(name)}:"
            yield from (f"{_INDENT}{line}" for line in _nested(value))
    yield from (f"{_words(name)}: {value}" for name, value in result.about.items())
    yield from result.notes()


def total_line(figures: Mapping[str, Any]) -> Iterator[str]:
    """Render the figures of all rows in one line, if there are any."""
    if plain := _plain_figures(figures):
        yield ", ".join(f"{name} {value}" for name, value in plain.items())


def _plain_figures(figures: Mapping[str, Any]) -> dict[str, str]:
    return {
        _words(name): _figure(value)
        for name, value in figures.items()
        if value is not None and not isinstance(value, dict | list)
    }


def _nested(value: dict[str, Any] | list[Any]) -> Iterator[str]:
    """Render a mapping of mappings, or a list of them, as a table; anything else line by line."""
    rows = list(value.values()) if isinstance(value, dict) else value
    if all(isinstance(row, dict) for row in rows):
        named = isinstance(value, dict)
        # Of a matrix the columns are data, as its rows are.
        matrix = isinstance(value, dict) and all(row.keys() == value.keys() for row in rows)
        columns = {name: [row.get(name) for row in rows] for row in rows for name in row}
        headings = [Column("")] * named + [
            Column(name, _digits(cells), heading=name if matrix else _words(name)) for name, cells in columns.items()
        ]
        cells = zip(*[list(value)] * named, *columns.values(), strict=True)
        width = line_width()
        yield from table_lines(headings, cells, width, line_width=width and max(width - len(_INDENT), 1))
    elif isinstance(value, dict):
        yield from (f"{name}  {_figure(part)}" for name, part in value.items())
    else:
        yield ", ".join(map(_figure, value))


def _words(name: str) -> str:
    return " ".join(_ACRONYMS.get(word, word) for word in name.split("_"))


def _digits(values: Sequence[Any]) -> int | None:
    """Choose the decimals that suit numbers of similar size; None if their sizes differ."""
    sizes = [abs(value) for value in values if isinstance(value, float) and value and math.isfinite(value)]
    if not sizes:
        return 4
    index = math.floor(math.log10(max(sizes)))
    if index < -6 or max(sizes) / min(sizes) > 1e4:
        return None
    return max(0, min(4, 5 - index)) if index >= -1 else 3 - index


def _figure(value: Any) -> str:
    if isinstance(value, float):
        digits = _digits([value])
        return f"{value:.4g}" if digits is None else f"{value:,.{digits}f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
