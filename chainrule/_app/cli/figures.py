"""Figures of all rows of a result as lines for people: a figure a line, nested ones as tables."""

import math
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from chainrule._app.results import Column, Result, table_lines

_ACRONYMS = {word.lower(): word for word in ("BLEU", "CRPS", "ELBO", "F1", "KL", "MAE", "RMSE")}


def cell_width() -> int | None:
    """The characters of a cell at most: a terminal has an end, a file has none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def figure_lines(result: Result) -> Iterator[str]:
    """Figures of all rows, facts and notes, below a table; figures alone are a line each, nested ones a table."""
    figures = {name: value for name, value in result.summary.items() if value is not None}
    plain = {_words(name): _figure(value) for name, value in figures.items() if not isinstance(value, dict | list)}
    if plain and result.columns:
        yield ", ".join(f"{name} {value}" for name, value in plain.items())
    elif plain:
        size = max(map(len, plain))
        yield from (f"{name:<{size}}  {value}" for name, value in plain.items())
    for name, value in figures.items():
        if isinstance(value, dict | list) and value:
            yield f"{_words(name)}:"
            yield from (f"  {line}" for line in _nested(value))
    yield from (f"{_words(name)}: {value}" for name, value in result.about.items())
    yield from result.notes()


def _nested(value: dict[str, Any] | list[Any]) -> Iterator[str]:
    """A mapping of mappings, or a list of them, as a table; any other as a line for each part."""
    rows = list(value.values()) if isinstance(value, dict) else value
    if all(isinstance(row, dict) for row in rows):
        named = isinstance(value, dict)
        # Of a matrix the columns are data, as its rows are.
        matrix = isinstance(value, dict) and all(row.keys() == value.keys() for row in rows)
        columns = {name: [row.get(name) for row in rows] for row in rows for name in row}
        headings = [Column("")] * named + [
            Column(name, _digits(cells), heading=name if matrix else _words(name)) for name, cells in columns.items()
        ]
        yield from table_lines(headings, zip(*[list(value)] * named, *columns.values(), strict=True), cell_width())
    elif isinstance(value, dict):
        yield from (f"{name}  {_figure(part)}" for name, part in value.items())
    else:
        yield ", ".join(map(_figure, value))


def _words(name: str) -> str:
    return " ".join(_ACRONYMS.get(word, word) for word in name.split("_"))


def _digits(values: Sequence[Any]) -> int | None:
    """The digits after the decimal point that show numbers of about the same size; None if their sizes differ."""
    sizes = [abs(value) for value in values if isinstance(value, float) and value and math.isfinite(value)]
    if not sizes:
        return 4
    place = math.floor(math.log10(max(sizes)))
    if place < -6 or max(sizes) / min(sizes) > 1e4:
        return None
    return max(0, min(4, 5 - place)) if place >= -1 else 3 - place


def _figure(value: Any) -> str:
    if isinstance(value, float):
        digits = _digits([value])
        return f"{value:.4g}" if digits is None else f"{value:,.{digits}f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
