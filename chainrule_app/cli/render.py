"""How the command line shows a result: a table, CSV, lines, JSON or files. The one place that does it for all verbs.

- A table is aligned by its first rows and streamed; the facts and figures about all rows follow it.
- `--json` prints an object a row. Figures and facts of all rows are one more object: on standard error, so that
  standard output has rows alone, or on standard output if a result has no rows.
- Images, sounds and music go into files, and a line on standard error names them.
"""

import gzip
import heapq
import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from chainrule.files import writing
from chainrule_app.blocks import in_blocks
from chainrule_app.result_table import table_lines
from chainrule_app.results import Column, Report, Result
from chainrule_app.tasks.display import counted, csv_lines, dump_json, plain_value, progress_bars
from chainrule_app.tasks.output import save_figure, write_images, write_music, write_page, write_sounds

_ROWS = (".csv", ".tsv", ".npy", ".parquet")  # formats that hold rows and nothing else
_ADVANCE = 16  # rows between two steps of a progress bar
_RECORDS = (".json", ".jsonl", ".ndjson")
_LINES = (".txt", ".text", ".log", ".out", ".conll", ".conllu", ".iob", ".iob2", ".bio")


def show(
    result: Result,
    *,
    json: bool = False,
    csv: bool = False,
    ranked: bool = False,
    top: int | None = None,
    out: Path | None = None,
) -> None:
    whole = ranked or top is not None
    if whole or out is not None or not sys.stdout.isatty():  # else the rows themselves appear
        result = _with_progress(result)
    if whole:
        result = _ranked(result, top)
    elif result.form == "figures" and not csv and out is None:
        result = result.per("file")
    form = "csv" if csv and not json else result.form
    if form in ("images", "sounds", "music"):
        _write_media(result, form, out, json=json)
    elif out is not None:
        _write(result, form, out, json=json)
    elif json:
        _print_lines(_json_lines(result))
        say(result.notes())
    else:
        _print_lines(_lines(result, form))
        if form in ("csv", "cells"):
            say(figure_lines(result))
        elif form in ("lines", "texts"):
            say(chain(total_line(result.summary), result.notes()))


def _with_progress(result: Result) -> Result:
    """Return the same result; while its rows are computed, a bar shows on a terminal how many there are."""

    def rows() -> Iterator[Sequence[Any]]:
        with progress_bars() as begin:
            advance = begin(result.hints.get("rows"), "rows")
            for number, row in enumerate(result.stream(), 1):
                yield row
                if number % _ADVANCE == 0:
                    advance(_ADVANCE)

    return result.with_rows(rows())


def write_plot(result: Result, out: Path) -> None:
    """Write the plot of a result in the format that the file name asks for."""
    save_figure(result.plot(), out)
    say([f"{out}{_seed(result)}"])


def show_report(report: Report, out: Path | None, *, json: bool) -> None:
    named = {"page": str(out)} if report.page and out is not None else {}
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
    if form in ("csv", "cells"):
        yield from csv_lines(_csv(result, header=form == "csv"))
    elif form == "lines":
        index = result.names.index(result.main)
        yield from (str(row[index]) for row in result.stream())
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
    for row in result.stream():
        cells = zip(result.columns, row, strict=True)
        yield dump_json({column.name: plain_value(column.value(cell), cell) for column, cell in cells})
    facts = {name: plain_value(value, value) for name, value in (result.summary | result.about).items()}
    if not result.columns:
        yield dump_json(facts)
    elif facts:
        say([dump_json(facts)])


_PLAIN = frozenset({int, float, str, type(None)})


def _csv(result: Result, *, header: bool) -> Iterator[list[Any]]:
    """Return the visible cells; a vector has one cell per number."""
    visible = [index for index, column in enumerate(result.columns) if column.shown]
    first = next(result.rows(), None)
    if header:
        yield [
            name
            for index in visible
            for name in _csv_names(result.columns[index], () if first is None else getattr(first[index], "shape", ()))
        ]
    for row in result.stream():
        cells = [row[index] for index in visible]
        plain = _PLAIN.issuperset(map(type, cells))  # which a writer of CSV takes as they are
        yield cells if plain else [part for cell in cells for part in _csv_cells(cell)]


def _csv_names(column: Column, shape: tuple[int, ...]) -> list[str]:
    name = column.heading or column.name
    return [f"{name}{number}" for number in range(shape[0])] if len(shape) == 1 else [name]


def _csv_cells(value: Any) -> list[str]:
    if getattr(value, "ndim", 0) == 1:
        return [f"{number:.9g}" for number in value.tolist()]
    if isinstance(value, dict | list):
        return [json.dumps(value, ensure_ascii=False)]
    return ["" if value is None else str(value)]


def checked_out(out: Path | None, *suffixes: str, flag: str = "--out", json: bool = False) -> None:
    """Reject an output file that cannot be written, before anything is computed."""
    if out is None:
        return
    name = _format_of(out)
    if suffixes and not out.name.lower().endswith(suffixes):
        raise ValueError(f"{flag} {out}: expected a name that ends in {' or '.join(suffixes)}")
    ending = Path(name).suffix
    if not suffixes and not name.endswith((*_ROWS, *_RECORDS, *_LINES)) and not ending[1:].isdecimal() and ending:
        # under any other name it would be opened as what it is not: markup in a row would run in a browser
        raise ValueError(
            f"{flag} {out}: this format is not written: choose .csv, .tsv, .jsonl, .txt, .parquet or .npy, any of them "
            "also with .gz"
        )
    if out.is_dir():
        raise ValueError(f"{flag} {out}: this is a directory; name a file in it")
    if not out.resolve().parent.is_dir():
        raise FileNotFoundError(f"{flag} {out}: no directory {out.parent}: create it first")
    if json and name.endswith(_ROWS):
        raise ValueError(f"{flag} {out}: this format cannot hold JSON: leave out --json, or name the file .jsonl")


def _write_media(result: Result, form: str, out: Path | None, *, json: bool) -> None:
    files = {"images": write_images, "sounds": write_sounds, "music": write_music}[form](result, out)
    if json:
        _print_lines(_json_lines(result.replaced(result.main, "file", [str(file) for file, _ in files])))
    else:
        lines = dict.fromkeys(f"{file}: {about}{_seed(result)}" for file, about in files)
        say(chain(lines, result.notes()))


def _write(result: Result, form: str, out: Path, *, json: bool) -> None:
    name, rows = _format_of(out), 0

    def noted() -> Iterator[Sequence[Any]]:
        nonlocal rows
        for row in result.stream():
            rows += 1
            yield row

    with writing(out) as file, _packed(file, out) as content:
        _write_content(result.with_rows(noted()), form, name, content, json=json)
    say([f"{out}: {counted(rows, 'row')}{_seed(result)}"])
    if not json:
        rows_alone = result.form == "table" and name.endswith(_ROWS)
        samples = result.framed or result.form == "texts"
        figures = total_line(result.summary) if samples else ()
        say(figure_lines(result) if rows_alone else chain(figures, result.notes()))


def _packed(file: IO[bytes], out: Path) -> Any:
    """Return the file to write into: `file`, or one that compresses into it."""
    return gzip.GzipFile(fileobj=file, mode="wb") if out.name.lower().endswith(".gz") else nullcontext(file)


def _format_of(out: Path) -> str:
    """Return the name whose end tells the format: x.csv of X.csv.gz."""
    return out.name.lower().removesuffix(".gz")


def _write_content(result: Result, form: str, name: str, file: IO[bytes], *, json: bool) -> None:
    """Write the rows as they are computed, without keeping them; only an array is written at the end."""
    if name.endswith(".npy"):
        import numpy as np

        np.save(file, result.to_numpy())
        return
    if name.endswith(".parquet"):
        _write_parquet(result, file)
        return
    if json or name.endswith(_RECORDS):
        lines = _json_lines(result)
    elif name.endswith(".tsv") and form != "lines":
        lines = csv_lines(_csv(result, header=form != "cells"), delimiter="\t")
    else:
        tabular = name.endswith((".csv", ".tsv")) and form in ("table", "figures", "texts")
        lines = _lines(result, "csv" if tabular else form)
    for line in lines:
        file.write(f"{line}\n".encode("utf-8", "replace"))


_ROWS_IN_MEMORY = 1 << 16  # of a Parquet file


def _write_parquet(result: Result, file: IO[bytes]) -> None:
    """Write blocks of rows to temporary files, and these to one file when the types of all rows are known."""
    import polars

    with TemporaryDirectory(prefix="chainrule-") as folder:
        parts: list[Path] = []
        for block in in_blocks(result.stream(), _ROWS_IN_MEMORY):
            parts.append(Path(folder) / f"{len(parts)}.arrow")
            result.with_rows(block).to_polars().write_ipc(parts[-1])
        if parts:
            polars.concat(map(polars.scan_ipc, parts), how="vertical_relaxed").sink_parquet(file)
        else:
            result.to_polars().write_parquet(file)


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
