"""How the command line shows a result: a table, CSV, lines, JSON or files. The one place that does it for all verbs.

- A table is aligned by its first rows and streamed; the facts and figures about all rows follow it.
- `--json` prints an object a row. Figures and facts of all rows are one more object: on standard error, so that
  standard output has rows alone, or on standard output if a result has no rows.
- Images and sounds go into files, and a line on standard error names them.
"""

import csv
import gzip
import heapq
import io
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from chainrule.results import Column, Report, Result, cell_text, is_number
from chainrule.tasks.display import csv_line, dump_json

_ALIGNED_ROWS = 64  # by which the columns of a table are as wide as they are
_WIDEST = 60  # characters of a cell that others are aligned with


def show(
    result: Result,
    *,
    json: bool = False,
    csv: bool = False,
    ranked: bool = False,
    top: int | None = None,
    out: Path | None = None,
) -> None:
    """Print a result, or write it to a file, whole or not at all.

    Args:
        result: rows may raise while they are computed: then nothing is written to `out`.
        json: print JSON, an object a line.
        csv: print CSV, all columns of it.
        ranked: the rows of the greatest rank first.
        top: only so many rows, those of the greatest rank.
        out: the file to write.

    Raises:
        ValueError: the rows cannot be ranked, or not be written to a file of that name.
    """
    if ranked or top is not None:
        result = _ranked(result, top)
    form = "csv" if csv and not json else result.form
    if out is not None or form in ("images", "sounds"):
        _write(result, form, out, json=json)
    elif json:
        _print_lines(_json_lines(result))
        _say(result.notes())
    else:
        _print_lines(_lines(result, form))
        if form in ("csv", "cells", "lines"):
            _say(result.notes())


def write_plot(result: Result, out: Path) -> None:
    """Write the picture of a result as the name of the file says, whole or not at all."""
    from chainrule.data.atomic import write_text
    from chainrule.tasks.page import save_figure

    picture = result.plot(out.suffix.lower())
    write_text(out, picture) if isinstance(picture, str) else save_figure(picture, out)
    seed = f" (seed {result.about['seed']})" if "seed" in result.about else ""
    _say([f"{out}{seed}"])


def show_report(report: Report, out: Path | None, *, json: bool) -> None:
    """Write the page of a report to `out`, and print the findings."""
    from chainrule.tasks.page import write_page

    named = {"page": str(out)} if report.page and out is not None else {}
    if report.page and out is not None:
        write_page(out, report.page)
    if json:
        print(dump_json(report.findings | named))
    else:
        _print_lines(chain(report.lines, (f"page: {page}" for page in named.values())))


def _ranked(result: Result, top: int | None) -> Result:
    if not result.rank:
        raise ValueError(f"--{'sort' if top is None else 'top'}: these rows have no order: leave it out")
    if top is None:
        return result.top()
    place = result.names.index(result.rank)
    best = heapq.nlargest(top, result.stream(), key=lambda row: row[place])  # the others are not kept
    return result.with_rows(best)


def _lines(result: Result, form: str) -> Iterator[str]:
    """The lines that people read."""
    if form in ("csv", "cells"):
        if form == "csv":
            yield csv_line(_csv_names(result))
        yield from map(csv_line, _csv_rows(result))
    elif form == "lines":
        place = result.names.index(result.main)
        yield from (str(row[place]) for row in result.stream())
    else:
        if result.columns:
            yield from _table(result)
        yield from _figures(result)


def _table(result: Result) -> Iterator[str]:
    rows = result.stream()
    width = shutil.get_terminal_size((120, 24)).columns if sys.stdout.isatty() else None
    shown = [place for place, column in enumerate(result.columns) if column.shown]

    def cells(row: Sequence[Any]) -> list[str]:
        return [cell_text(row[place], result.columns[place].digits, width) for place in shown]

    first = list(islice(rows, _ALIGNED_ROWS))
    heading = [result.columns[place].heading or result.columns[place].name for place in shown]
    texts = list(map(cells, first))
    sizes = [min(_WIDEST, max(map(len, column))) for column in zip(heading, *texts, strict=True)]
    numbers = [all(is_number(row[place]) for row in first) for place in shown]
    for line in chain([heading], texts, map(cells, rows)):
        yield "  ".join(
            cell.rjust(size) if number else cell.ljust(size)
            for cell, size, number in zip(line, sizes, numbers, strict=True)
        ).rstrip()


def _figures(result: Result) -> Iterator[str]:
    """Figures of all rows, facts and notes, below a table; figures alone are a line each, nested ones a table."""
    figures = {name: value for name, value in result.summary.items() if value is not None}
    plain = {name: value for name, value in figures.items() if not isinstance(value, dict | list)}
    if plain and result.columns:
        yield ", ".join(f"{_words(name)} {_figure(value)}" for name, value in plain.items())
    elif plain:
        size = max(map(len, plain))
        yield from (f"{_words(name):<{size}}  {_figure(value)}" for name, value in plain.items())
    for name, value in figures.items():
        if name not in plain and value:
            yield f"{_words(name)}:"
            yield from (f"  {line}" for line in _nested(value))
    yield from (f"{_words(name)}: {value}" for name, value in result.about.items())
    yield from result.notes()


def _nested(value: Any) -> Iterator[str]:
    """A mapping of mappings, or a list of them, as a table; any other as a line for each part."""
    rows = (
        [{"": name} | row if isinstance(row, dict) else row for name, row in value.items()]
        if (isinstance(value, dict) and all(isinstance(row, dict) for row in value.values()))
        else value
    )
    if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
        names = list(dict.fromkeys(name for row in rows for name in row))
        cells = [[row.get(name) for name in names] for row in rows]
        yield from _table(Result([Column(name, 4, heading=_words(name)) for name in names], cells))
    elif isinstance(rows, dict):
        yield from (f"{name}  {_figure(part)}" for name, part in rows.items())
    else:
        yield ", ".join(map(_figure, rows))


def _words(name: str) -> str:
    return name.replace("_", " ")


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4f}" if abs(value) >= 1e-3 or value == 0 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _json_lines(result: Result) -> Iterator[str]:
    for row in result.stream():
        yield _json(result.record(row))
    facts = result.summary | result.about
    if not result.columns:
        yield _json(facts)
    elif facts:
        _say([_json(facts)])


def _json(values: Mapping[str, Any]) -> str:
    return dump_json({name: _plain(value) for name, value in values.items()})


def _plain(value: Any) -> Any:
    """A value as JSON takes it."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value if isinstance(value, int | float | str | list | dict | None) else str(value)


def _csv_names(result: Result) -> list[str]:
    """The names of the columns; a vector has one for each of its numbers."""
    return [name for column, size in _widths(result) for name in _numbered(column.heading or column.name, size)]


def _numbered(name: str, size: int | None) -> list[str]:
    return [name] if size is None else [f"{name}{number}" for number in range(size)]


def _widths(result: Result) -> Iterator[tuple[Any, int | None]]:
    first = next(result.rows(), None)
    for place, column in enumerate(result.columns):
        if not column.shown:
            continue
        shape = () if first is None else getattr(first[place], "shape", ())
        yield column, shape[0] if len(shape) == 1 else None


def _csv_rows(result: Result) -> Iterator[list[str]]:
    for row in result.stream():
        cells: list[str] = []
        for value in (value for value, column in zip(row, result.columns, strict=True) if column.shown):
            if getattr(value, "ndim", 0) == 1:
                cells += [f"{number:.9g}" for number in value.tolist()]
            elif isinstance(value, dict | list):
                cells.append(json.dumps(value, ensure_ascii=False))
            else:
                cells.append("" if value is None else str(value))
        yield cells


def checked_out(out: Path | None, *suffixes: str, flag: str = "--out") -> None:
    """Refuse a file that cannot be written before anything is computed for it.

    Raises:
        ValueError: its name has another ending than `suffixes`, if there are any, or it is a directory.
        FileNotFoundError: its directory does not exist.
    """
    if out is None:
        return
    if suffixes and out.suffix.lower() not in suffixes:
        raise ValueError(f"{flag} {out}: expected a name that ends in {' or '.join(suffixes)}")
    if out.is_dir():
        raise ValueError(f"{flag} {out}: this is a directory; name a file in it")
    if not out.resolve().parent.is_dir():
        raise FileNotFoundError(f"{flag} {out}: there is no directory {out.parent}: make it first")


def _write(result: Result, form: str, out: Path | None, *, json: bool) -> None:
    from chainrule.data.atomic import write_bytes
    from chainrule.tasks.media import write_images, write_sounds

    seed = f" (seed {result.about['seed']})" if "seed" in result.about else ""
    if form in ("images", "sounds"):
        files = (write_images if form == "images" else write_sounds)(result, out)
        if json:
            _print_lines(_json_lines(result.replaced(result.main, "file", [str(file) for file, _ in files])))
        else:
            lines = dict.fromkeys(f"{file}: {about}{seed}" for file, about in files)
            _say(chain(lines, result.notes()))
        return
    assert out is not None
    write_bytes(out, _file_content(result, form, out.name.lower(), json=json))
    _say([f"{out}: {len(result):,} row{'s' * (len(result) != 1)}{seed}", *result.notes()])


def _file_content(result: Result, form: str, name: str, *, json: bool) -> bytes:
    if name.endswith(".npy"):
        import numpy as np

        if json:
            raise ValueError("--json: an array in a .npy file holds no JSON: leave one of them out")
        file = io.BytesIO()
        np.save(file, result.to_numpy())
        return file.getvalue()
    if name.endswith(".parquet"):
        file = io.BytesIO()
        try:
            result.to_polars().write_parquet(file)
        except ImportError:
            raise ValueError(
                f"--out {name}: Parquet is written by polars, which is not installed: pip install polars"
            ) from None
        return file.getvalue()
    tabular = name.endswith((".csv", ".csv.gz", ".tsv"))
    lines = _json_lines(result) if json else _lines(result, "csv" if tabular and form == "table" else form)
    if name.endswith(".tsv") and form != "lines" and not json:
        text = io.StringIO()
        csv.writer(text, delimiter="\t", lineterminator="\n").writerows([_csv_names(result), *_csv_rows(result)])
        return text.getvalue().encode("utf-8", "replace")
    content = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
    return gzip.compress(content) if name.endswith(".gz") else content


def _print_lines(lines: Iterator[str]) -> None:
    for line in lines:
        print(line)


def _say(lines: Any) -> None:
    for line in lines:
        print(line, file=sys.stderr)
