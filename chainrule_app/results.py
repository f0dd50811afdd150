"""Results as data: named, typed columns with their unit and the way they were measured.

A capability of a run returns a `Result`. The command line renders it as a table, JSON lines or CSV; a notebook shows it
as HTML; a program takes its rows or converts it to a frame.
"""

import html
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import inf
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal

from chainrule.files import write_text
from chainrule.option_error import OptionError
from chainrule_app.heavy import np
from chainrule_app.result_table import SHOWN_WIDTH, cell_text, table_lines
from chainrule_app.result_table import Column as Column

if TYPE_CHECKING:
    from chainrule_app.tasks.likelihood_record import LikelihoodRecord

Form = Literal["table", "figures", "csv", "cells", "lines", "texts", "images", "sounds", "music"]
_SHOWN_ROWS = 20  # of a result in a notebook or an interactive session


class Result:
    """Rows with named columns, read once from their source and kept; several threads may read them.

    A pickled result holds all rows and figures, but neither its plot nor the rows of `per`, which need the run.

    Args:
        columns: of each row.
        rows: one value a column; they may be computed while they are read.
        about: facts that hold for all rows: the unit, the way of measurement, the seed.
        summary: figures of all rows together; called after the last row.
        notes: sentences for people about all rows; called after the last row.
        rank: the column by which `top` sorts, greatest first; empty if rows have no rank.
        main: the column that `values` returns; the first where it is empty.
        form: the form in which people want the rows: an aligned table, a table where rows are sorted and otherwise the
            figures of `per("file")` alone, CSV with or without (cells) a header, the main column a line each, whole
            texts with a heading above each of several, or files of images, sounds or music.
        framed: whether the rows are data like the fitted ones, returned as the same kind of frame.
        hints: how to write files: "file", their default name; "columns" of a grid of images; "one_line", whether
            each text is a line, which needs no heading; "index", the column that is the index of a pandas frame;
            "item", the column with the index of the item of each row; "rows", how many rows there will be, if that
            is known; "batchwise", whether `Task.answered` computes the rows; "shard", how many batches make a shard.
        likelihood: the likelihood of all rows together, with its unit; called after the last row.
        figure: a function that draws a result with these columns as a matplotlib figure.
        views: by their name, functions that make the results of `per`: rows of other parts of the same data.

    >>> scores = Result([Column("text"), Column("nats", 2)], [("a", 1.5), ("b", 2.5)], rank="nats")
    >>> scores["nats"], scores[0], len(scores)
    ([1.5, 2.5], {'text': 'a', 'nats': 1.5}, 2)
    >>> print(scores.top(1))
    text  nats
    b     2.50
    """

    def __init__(
        self,
        columns: Sequence[Column],
        rows: Iterable[Sequence[Any]],
        *,
        about: Mapping[str, Any] | None = None,
        summary: Callable[[], Mapping[str, Any]] | None = None,
        notes: Callable[[], Iterable[str]] = tuple,
        rank: str = "",
        main: str = "",
        form: Form = "table",
        framed: bool = False,
        hints: Mapping[str, Any] | None = None,
        likelihood: "Callable[[], LikelihoodRecord] | None" = None,
        figure: "Callable[[Result], Any] | None" = None,
        views: "Mapping[str, Callable[[], Result]] | None" = None,
    ):
        self.columns = tuple(columns)
        self.about, self.hints = dict(about or {}), dict(hints or {})
        self.rank, self.form = rank, form
        self.main = main or (self.columns[0].name if self.columns else "")
        self.likelihood, self.notes, self._figure = likelihood, notes, figure
        self._source, self._kept = iter(rows), list[Sequence[Any]]()
        self._summary, self.framed, self.views = summary, framed, dict(views or {})
        self._lock = RLock()

    def __getstate__(self) -> dict[str, Any]:
        """Return all that a pickle holds: what was computed, in the place of what computes it."""
        state = {name: value for name, value in vars(self).items() if name not in ("_lock", "_source", "views")}
        summary, notes = self.summary, tuple(self.notes())  # which reads all rows
        likelihood = None if self.likelihood is None else partial(_same, self.likelihood())
        computed = {"_summary": partial(_same, summary), "notes": partial(_same, notes), "likelihood": likelihood}
        return state | computed | {"_kept": list(self._kept), "_figure": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=RLock(), _source=iter(()), views={})

    def __copy__(self) -> "Result":
        other = object.__new__(type(self))
        vars(other).update(vars(self), _lock=RLock())
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> "Result":
        other = object.__new__(type(self))
        other.__setstate__(deepcopy(self.__getstate__(), memo))
        other.views, other._figure = dict(self.views), self._figure  # which compute from the run, as before
        return other

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def summary(self) -> dict[str, Any]:
        """Return figures of all rows together."""
        self._read_all()
        return dict(self._summary()) if self._summary is not None else {}

    def rows(self) -> Iterator[Sequence[Any]]:
        """Yield the rows; each is kept for later calls."""
        index = 0
        while self._has(index):
            yield self._kept[index]
            index += 1

    def stream(self) -> Iterator[Sequence[Any]]:
        """Yield the rows as they are computed without keeping them: for results larger than memory, once."""
        yield from self._kept
        yield from self._source

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as mappings from column names to values."""
        return map(self.record, self.rows())

    def record(self, row: Sequence[Any]) -> dict[str, Any]:
        """Map column names to the values of a row."""
        return {column.name: column.value(cell) for column, cell in zip(self.columns, row, strict=True)}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.records()

    def __len__(self) -> int:
        self._read_all()
        return len(self._kept)

    def __getitem__(self, key: int | slice | str) -> Any:
        """Return the row at an index as a mapping, the rows of a slice, or the values of a named column."""
        self._read_all()
        if isinstance(key, slice):
            return self.with_rows(self._kept[key])
        if isinstance(key, str):
            if key not in self.names:
                raise KeyError(f"no column {key!r}: expected one of {', '.join(self.names)}")
            index = self.names.index(key)
            return [self.columns[index].value(row[index]) for row in self._kept]
        return self.record(self._kept[key])

    @property
    def values(self) -> list[Any]:
        """Return the values of the main column."""
        values: list[Any] = self[self.main]
        return values

    def top(self, n: int | None = None) -> "Result":
        """Return the rows with the greatest rank first, all or the first n.

        Raises:
            ValueError: the rows have no rank.
        """
        if not self.rank:
            raise ValueError(f"these rows have no rank; their columns are {', '.join(self.names)}")
        index, rows = self.names.index(self.rank), list(self.rows())
        rows.sort(key=lambda row: -inf if row[index] is None else row[index], reverse=True)
        return self.with_rows(rows[:n])

    def per(self, part: str) -> "Result":
        """Return the same data with other rows: one for each line or element of a text, or the summary alone.

        Raises:
            ValueError: the data have no such parts.
        """
        if not self.views:
            raise OptionError("per", "these rows have no other parts")
        if part not in self.views:
            raise OptionError("per", f"expected one of {', '.join(self.views)}, got {part!r}")
        return self.views[part]()

    def with_rows(
        self, rows: Iterable[Sequence[Any]], summary: Callable[[], Mapping[str, Any]] | None = None
    ) -> "Result":
        """Return other rows with the same columns and facts, and a summary of their own if it is given."""
        other = copy(self)
        other._source, other._kept, other._summary = iter(rows), [], summary or (lambda: self.summary)
        return other

    def replaced(self, name: str, other: str, values: Sequence[Any]) -> "Result":
        """Return the same rows with one column replaced."""
        index = self.names.index(name)
        rows = ([*row[:index], value, *row[index + 1 :]] for row, value in zip(self.rows(), values, strict=True))
        changed = self.with_rows(rows)
        changed.columns = (*self.columns[:index], Column(other), *self.columns[index + 1 :])
        return changed

    def of_items(self, number: int) -> "Result":
        """Return the same rows with the index of their item instead of its line in, or the name of, a file."""
        if "item" in self.hints:
            return self.replaced("line", "index", self[self.hints["item"]])
        name = next((name for name in ("line", "input", "file", "image") if name in self.names), "")
        named = [place for place in self[name] if isinstance(place, int | str)] if name else []
        places = {place: index for index, place in enumerate(dict.fromkeys(named))}
        if len(places) != number or len(named) < len(self):
            return self
        return self.replaced(name, "index", [places[place] for place in named])

    def cells(self) -> dict[str, list[Any]]:
        """Return the cells of each column, as they are written to a file."""
        rows = list(self.rows())
        return {name: [row[index] for row in rows] for index, name in enumerate(self.names)}

    def plot(self) -> Any:
        """Plot the rows: a matplotlib figure, which a notebook shows and `savefig` writes.

        A text is coloured by surprise, also where the rows are lines, and so are the cells of a table. Labels and
        predicted cells are bars or intervals, vectors are points in the plane of their greatest variance. `history`
        draws learning curves, and the evaluation of a classifier its confusion matrix. A forecast, the translation of a
        sentence and the caption of an image show paths and attention.

        Raises:
            ValueError: there is no picture of these rows, or there are too many of them.
            ImportError: matplotlib is not installed.
        """
        if self._figure is None:
            raise OptionError("plot", f"there is no picture of rows of {', '.join(self.names) or 'figures alone'}")
        self._read_all()
        figure = self._figure(self)
        figure._repr_png_ = partial(_png, figure)  # without it, a notebook shows only figures of pyplot
        return figure

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the values of each column."""
        return {name: self[name] for name in self.names}

    def to_numpy(self, column: str = "") -> Any:
        """Return the values of one column, by default the main one, as an array."""
        return np.asarray(self[column or self.main])

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame; times become its index.

        Raises:
            ImportError: pandas is not installed.
        """
        import pandas

        frame = pandas.DataFrame(self.to_dict(), columns=self.names)
        return frame.set_index(self.hints["index"]) if "index" in self.hints else frame

    def to_polars(self) -> Any:
        """Return a polars DataFrame; a column of values of different kinds, such as numbers and dates, holds texts."""
        import polars

        return polars.DataFrame({name: _of_one_kind(values) for name, values in self.to_dict().items()}, strict=False)

    def __repr__(self) -> str:
        rows, more = self._head()
        lines = table_lines(self.columns, rows, SHOWN_WIDTH) if self.columns else self._facts(more=False)
        return "\n".join([*lines, *(["…"] if more else [])])

    def _repr_html_(self) -> str:
        if not self.columns:
            return f"<pre>{html.escape(repr(self))}</pre>"
        rows, more = self._head()
        visible = [(index, column) for index, column in enumerate(self.columns) if column.shown]
        head = "".join(f"<th>{html.escape(column.heading or column.name)}</th>" for _, column in visible)
        body = "".join(
            "<tr>"
            + "".join(f"<td>{html.escape(cell_text(row[index], column.digits))}</td>" for index, column in visible)
            + "</tr>"
            for row in rows
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if visible else ""
        below = [*(["…"] if more else []), *self._facts(more=more)]
        return table + "".join(f"<p>{html.escape(line)}</p>" for line in below)

    def _facts(self, *, more: bool) -> list[str]:
        """List the figures of all rows (unless there are `more`) and the facts."""
        figures = {} if more else {name: cell_text(value, 4) for name, value in self.summary.items()}
        facts = figures | {name: cell_text(value, width=None) for name, value in self.about.items()}
        return [f"{name.replace('_', ' ')}: {text}" for name, text in facts.items()]

    def _head(self) -> tuple[list[Sequence[Any]], bool]:
        """Return the first rows, and whether there are more."""
        rows = list(islice(self.rows(), _SHOWN_ROWS + 1))
        return rows[:_SHOWN_ROWS], len(rows) > _SHOWN_ROWS

    def _has(self, index: int) -> bool:
        """Tell if there is a row at an index, at most one after those that are kept; read and keep it if so."""
        with self._lock:
            if index == len(self._kept):
                self._kept += islice(self._source, 1)
            return index < len(self._kept)

    def _read_all(self) -> None:
        with self._lock:
            self._kept += self._source


def _of_one_kind(values: list[Any]) -> list[Any]:
    """Return values of different kinds as texts, which polars would cast to one of the kinds; others as they are."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) < 2 or all(issubclass(kind, int | float) and kind is not bool for kind in kinds):
        return values
    return [None if value is None else str(value) for value in values]


def _same(value: Any) -> Any:
    return value


def _png(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


@dataclass(frozen=True)
class Report:
    """Findings of an inspection: figures, sentences, and a page for people.

    Args:
        findings: all figures, ready for JSON.
        lines: the findings in words.
        page: HTML; empty without a page.
    """

    findings: dict[str, Any]
    lines: tuple[str, ...]
    page: str = ""

    def save(self, path: str | Path) -> None:
        """Write the page, whole or not at all, to a path or URL."""
        from chainrule_app.readers.outgoing import outgoing

        with outgoing() as local:
            write_text(local(path, "path"), self.page)

    def __repr__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        if not self.page:
            return f"<pre>{html.escape(repr(self))}</pre>"
        frame = 'title="Page of the report" style="width:100%;height:42em;border:0"'
        return f'<iframe srcdoc="{html.escape(self.page)}" {frame}></iframe>'
