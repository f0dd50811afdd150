"""A file of texts with labels, or of texts alone, row by row."""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

from chainrule.option_error import UserError, option
from chainrule_app.printing import listed
from chainrule_app.readers.delimited import DelimitedFile, Row
from chainrule_app.readers.files_in_turn import FilesInTurn
from chainrule_app.readers.origin import STDIN, HeldRows
from chainrule_app.readers.records import Nested, record_rows
from chainrule_app.readers.sources import holds_records, plain_name
from chainrule_app.readers.tables.frame_table import FrameTable
from chainrule_app.readers.tables.layout import HEADER, find_layout, header_evidence

TEXT_NAMES = ("text", "sentence", "review", "content", "comment", "message", "document", "tweet", "title", "body")
LABEL_NAMES = ("label", "class", "category", "sentiment", "target", "rating", "labels", "y")
_QUOTED_ROWS = 20  # that say whether all cells are quoted
_LOOKED_AT = 1000  # rows read to decide which of two columns is the label


@dataclass(frozen=True)
class LabelledText:
    """A row: the number of the line where it ends, its text, and its label; "" where the file has none."""

    line: int
    text: str
    label: str


@dataclass(frozen=True)
class Columns:
    """Columns to read from a file, counted from 0; `label` is None without labels, names without a header."""

    text: int
    label: int | None
    header: bool
    text_name: str | None = None
    label_name: str | None = None


class LabelledFile:
    r"""Texts and their labels, as often as they are asked for.

    A .csv file, compressed or not, is read with quotes and a comma, semicolon, tab or bar between cells. Each line of
    any other file is a row with tabs between cells, and a quote is a character like others, unless it encloses every
    cell. See `DelimitedFile`, and `find_layout` for lines before the first row. The keys of records (JSON Lines,
    Parquet) are a header.

    The first row is a header where it has the columns asked for by name, or one of the usual names (text, sentence,
    review, ...; label, class, sentiment, ...); or where `header_evidence` speaks for it. Without the usual names, the
    label is the column of two with fewer different cells.
    """

    def __init__(
        self,
        source: str | Path | FilesInTurn,  # the file, or several; "-" is standard input, for texts alone
        *,
        text_column: str | None = None,  # name, or number from 1, of the column of texts
        label_column: str | None = None,  # the same of the labels
        labelled: bool = True,  # whether labels are wanted. Without, a file with one column is as good
        several: bool = False,  # whether a text may have no label
        like: Columns | None = None,  # the columns of another file
    ):
        self._source, self.path, path = source, str(source), str(source)
        self._several = several
        self._file = DelimitedFile(source)
        named = source.paths[0] if isinstance(source, FilesInTurn) else path
        self._width: int | None = None
        self._delimiter, self._before = None, 0
        self._records = named != STDIN and holds_records(named)
        if self._records:
            self._delimiter = ","  # in what follows, records are rows of CSV whose first one is a header
        elif plain_name(named).endswith(".csv"):
            layout = find_layout(self._file.beginning())
            self._delimiter, self._before = layout.delimiter, layout.before
        elif self.path != STDIN and self._all_quoted():
            self._delimiter = "\t"
        if self.path == STDIN and labelled:
            raise ValueError(
                f"{path}: labelled texts are read twice, which standard input cannot be: write it to a file first"
            )
        self._skip_first = False
        self._begun: Iterator[Row] | None = None  # standard input behind its header: it is read once
        if self.path == STDIN:  # the column is said, or each line is a text
            self._plain = text_column is None
            index = _number(text_column)
            if text_column is not None and index is None:
                self._begun = self._cells()
                first = [cell.strip() for cell in next(self._begun, (1, []))[1]]
                _check_names(self._file.name, [text_column], first)
                index = first.index(text_column)
            self.columns = Columns(index or 0, None, header=False)
            return
        beginning = list(islice(self._cells(), _LOOKED_AT))
        if not beginning:
            raise ValueError(f"{path}: expected rows of text, got only empty lines")
        self._plain = not labelled and text_column is None and all(len(cells) == 1 for _, cells in beginning)
        rows = [cells for _, cells in beginning]
        self._width = len(rows[0])
        self.columns = _find_columns(
            self.path,
            rows,
            text_column,
            label_column,
            labelled,
            like,
            has_keys=self._records,
            may_guess=not self._records and self._delimiter is not None,
        )
        # a first line such as "title" may be a text in a file of lines, but for a run whose files have headers
        self._skip_first = self._plain and self.columns.header and like is not None and like.header

    def __iter__(self) -> Generator[LabelledText, None, None]:
        """Yield the rows; an empty text is kept."""
        if self._plain and self._delimiter is None:
            skip = self._skip_first
            for line, text in self._file.lines():
                if skip and text:
                    skip = False
                    continue
                yield LabelledText(line, text.strip(), "")
            return
        last = max(self.columns.text, -1 if self.columns.label is None else self.columns.label)
        for line, cells in self._begun or islice(self._cells(), int(self.columns.header), None):
            if len(cells) <= last:
                raise ValueError(
                    f"{self._file.origin.at(line)}: expected at least {last + 1} columns, got {len(cells)}"
                    + (": add the missing cells" if self._delimiter else ": put a tab between text and label")
                )
            if self._width is not None and len(cells) > self._width:
                remedy = (
                    "put a cell that contains the separator into double quotes"
                    if self._delimiter
                    else "if a text contains a tab, replace it by a blank"
                )
                raise ValueError(
                    f"{self._file.origin.at(line)}: expected {self._width} columns as in the first row, got "
                    f"{len(cells)}: {remedy}"
                )
            for index, what in ((self.columns.text, "text"), (self.columns.label, "label")):
                is_list = what == "label" and index is not None and cells[index][:1] == "["
                if index is not None and isinstance(cells[index], Nested) and not is_list:
                    raise UserError(
                        f"{self._file.origin.at(line)}: the {what} is a list or an object, got {cells[index]!s:.60}",
                        f"name another column with {option(f'{what}_column')}, or write it as a text",
                    )
            label = "" if self.columns.label is None else cells[self.columns.label]
            label = label if isinstance(label, Nested) else label.strip()
            if self.columns.label is not None and not any(map(str.strip, cells)):
                continue  # as spreadsheets have them at the end
            if self.columns.label is not None and not (label or self._several):
                raise ValueError(f"{self._file.origin.at(line)}: the label is empty: add one, or remove the row")
            yield LabelledText(line, cells[self.columns.text].strip(), label)

    def _cells(self) -> Iterator[Row]:
        if self._records:
            names, rows = record_rows(self._source)
            return chain([(0, names)], rows)
        if self._delimiter is None:
            return self._file.plain_rows()
        return self._file.quoted_rows(self._delimiter, before=self._before)

    def _all_quoted(self) -> bool:
        """Return whether each cell of the first lines is in double quotes, which then are no part of the texts."""
        with closing(self._file.plain_rows()) as rows:
            cells = [cell.strip() for _, cells in islice(rows, _QUOTED_ROWS) for cell in cells if len(cells) > 1]
        return len(cells) > 1 and all(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in cells)


class LabelledItems:
    """Texts in memory and their labels, as they are: rows of strings, or two columns of a table."""

    def __init__(
        self,
        source: HeldRows | FrameTable,
        *,
        text_column: str | None = None,
        label_column: str | None = None,
        labelled: bool = True,
        several: bool = False,
        like: Columns | None = None,
    ):
        self._source, self._several = source, several
        if isinstance(source, HeldRows):
            self.columns = Columns(0, 1 if labelled else None, header=True, text_name="text", label_name="label")
            return
        beginning = [[cell or "" for cell in cells] for _, cells in islice(source.rows(), _LOOKED_AT)]
        rows = [source.names, *beginning]
        self.columns = _find_columns(
            str(source), rows, text_column, label_column, labelled, like, has_keys=True, may_guess=False
        )

    def __iter__(self) -> Iterator[LabelledText]:
        """Yield the rows; an empty text is kept."""
        source, columns = self._source, self.columns
        for index, row in source.rows() if isinstance(source, FrameTable) else source:
            if columns.label is None:
                yield LabelledText(index, row[columns.text] or "", "")
                continue
            if len(row) <= columns.label:
                raise ValueError(f"{source}: expected pairs of a text and its label, got only strings")
            label = row[columns.label]
            if not (label or self._several):
                raise ValueError(f"{source.origin.at(index)}: the label is empty: add one, or remove the row")
            yield LabelledText(index, row[columns.text] or "", label or "")


TextsSource: TypeAlias = str | Path | FilesInTurn | HeldRows | FrameTable


def open_texts(source: TextsSource, **options: Any) -> LabelledFile | LabelledItems:
    """Open a file of texts, or texts in memory; the options are those of `LabelledFile`."""
    if isinstance(source, HeldRows | FrameTable):
        return LabelledItems(source, **options)
    return LabelledFile(source, **options)


def _find_columns(
    path: str,
    rows: list[list[str]],
    text: str | None,
    label: str | None,
    labelled: bool,
    like: Columns | None,
    *,
    has_keys: bool,  # the first row holds the keys of records
    may_guess: bool,  # whether a first row of other names may be a header of texts alone
) -> Columns:
    first = [_unquoted(cell.strip()) for cell in rows[0]]
    if like is not None:
        text = like.text_name if text is None and (has_keys or like.text_name in first) else text
        label = like.label_name if labelled and label is None and (has_keys or like.label_name in first) else label
    names = [name for name in (text, label) if name is not None and _number(name) is None]
    _check_names(path, names, first)
    lower = [cell.lower() for cell in first]
    usual = {
        kind: next((lower.index(name) for name in usual_names if name in lower), None)
        for kind, usual_names in (("text", TEXT_NAMES), ("label", LABEL_NAMES))
    }
    several = [cell for cell in first if cell.lower() in LABEL_NAMES]
    if labelled and label is None and len(several) > 1 and not {"label", "labels"} & {*lower}:
        raise UserError(
            f"{path}: several columns may hold the labels ({', '.join(several)})",
            f"name one with {option('label_column')}",
        )
    header = has_keys or bool(names) or (usual["text"] is not None and (usual["label"] is not None or len(first) != 2))
    header = header or (usual["label"] is not None and len(first) == 2)
    width = len(first)
    if may_guess and not header and not labelled and like is not None and text is None and (width > 1 or like.header):
        header = len(rows) > 1 and header_evidence(rows) > 0
        if header and width > 1:
            return Columns(_prose(path, first, rows), None, header)

    def column_index(option: str | None, kind: str) -> int | None:
        if option is None:
            return usual[kind] if header else None
        number = _number(option)
        index = first.index(option) if number is None else number
        if index >= width:
            raise ValueError(f"{path} line 1: expected at least {index + 1} columns, got {width}")
        return index

    at_text, at_label = column_index(text, "text"), column_index(label, "label")
    if like is not None and not header and width > max(like.text, like.label or 0):
        at_text = like.text if at_text is None else at_text
        at_label = like.label if at_label is None else at_label
    if not labelled:
        at_label = None
    if width == 1 and at_label is None and not labelled:
        return Columns(0, None, header, first[0] if header else None)
    if width == 1:
        raise ValueError(f"{path} line 1: expected a text, a tab and a label, got one column")
    if width == 2:
        if at_text is None and at_label is None:
            at_label = _fewer(rows[int(header) :])
            at_text = 1 - at_label
        elif at_text is None:
            at_text = 1 - (at_label or 0)
        elif labelled and at_label is None:
            at_label = 1 - at_text
    if at_text is None or (labelled and at_label is None):
        what = "text" if at_text is None else "label"
        raise UserError(
            f"{path}: {width} columns ({listed(map(repr, first), 80)})",
            f"name the {what} column with {option(f'{what}_column')}, or by its number",
        )
    if at_text == at_label:
        raise UserError(
            f"{path}: {option('text_column')} and {option('label_column')}: expected two columns, got one twice"
        )
    at_label = at_label if labelled else None
    if at_label is not None:
        header = header or _names_columns(rows, at_text, at_label)
    own_names = (first[at_text], None if at_label is None else first[at_label]) if header else (None, None)
    return Columns(at_text, at_label, header, *own_names)


def _check_names(path: str, names: Iterable[str], header: list[str]) -> None:
    for name in names:
        if name not in header:
            listing = listed(map(repr, header), 80) or "nothing"
            raise ValueError(
                f"{path} line 1: expected a header with the column {name!r}, got {listing}: "
                "name another column, or give its number"
            )


def _names_columns(rows: list[list[str]], text: int, label: int) -> bool:
    """Return whether the first row names the columns, although by none of the usual names."""
    pairs = [[cells[text].strip(), cells[label].strip()] for cells in rows if len(cells) > max(text, label)]
    return all(pairs[0]) and header_evidence(pairs, texts=0) >= HEADER


def _prose(path: str, names: list[str], rows: list[list[str]]) -> int:
    """Return the only column of texts of several words under a header of unknown names."""
    texts = [
        index
        for index in range(len(names))
        if 2 * sum(len(row[index].split()) > 1 for row in rows[1:] if len(row) == len(names)) >= len(rows) - 1
    ]
    if len(texts) != 1:
        raise UserError(
            f"{path}: the header has none of the names of the training file ({', '.join(map(repr, names))[:80]}): ",
            f"name the text column with {option('text_column')}, or by its number",
        )
    return texts[0]


def _unquoted(name: str) -> str:
    """Return a name without the double quotes around it, which some programs write around names alone."""
    return name[1:-1] if len(name) > 2 and name[0] == name[-1] == '"' else name


def _fewer(rows: Iterable[list[str]]) -> int:
    """Choose the column with fewer different cells; of equals the one with the shorter ones."""
    pairs = [cells for cells in rows if len(cells) == 2]
    if not pairs:
        return 1
    kinds = [
        (len(Counter(cells[index] for cells in pairs)), sum(len(cells[index]) for cells in pairs)) for index in (0, 1)
    ]
    return 0 if kinds[0] < kinds[1] else 1


def _number(column: str | None) -> int | None:
    """Return a column given by its number from 1, counted from 0; None for one given by name."""
    if column is None or not column.isascii() or not column.isdigit() or int(column) < 1:
        return None
    return int(column) - 1
