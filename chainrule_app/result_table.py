"""Columns of a result, and their cells as lines for people."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from chainrule.printing import one_line

SHOWN_WIDTH = 60  # characters of a cell where people read it, and of one that others are aligned with
_ALIGNED_ROWS = 64  # by which the columns of a table are as wide as they are


@dataclass(frozen=True)
class Column:
    """One column of a result.

    Args:
        name: of the column, and its key in JSON.
        digits: after the decimal point where people read the number; None shows it in full.
        shown: whether a table has it, on the screen or as CSV; JSON and frames have all columns.
        heading: above the column where people read it; the name where it is empty.
        parse: makes the value of a cell, where rows hold cells of text as they are written to a file.
    """

    name: str
    digits: int | None = None
    shown: bool = True
    heading: str = ""
    parse: Callable[[str], Any] | None = field(default=None, repr=False)  # it may hold a whole schema

    def value(self, cell: Any) -> Any:
        return cell if self.parse is None or cell is None else self.parse(cell)


def table_lines(
    columns: Sequence[Column], rows: Iterable[Sequence[Any]], width: int | None, *, line_width: int | None = None
) -> Iterator[str]:
    """Render a heading and rows as lines, aligned by the first rows and streamed.

    >>> print(*table_lines([Column("text"), Column("nats", 2)], [("a", 1.5), ("bcdef", 12.5)], None), sep="\\n")
    text    nats
    a       1.50
    bcdef  12.50
    """
    visible = [position for position, column in enumerate(columns) if column.shown]

    def cells(row: Sequence[Any]) -> list[str]:
        return [cell_text(row[index], columns[index].digits, width) for index in visible]

    rows = iter(rows)
    first = list(islice(rows, _ALIGNED_ROWS))
    heading = [columns[position].heading or columns[position].name for position in visible]
    texts = list(map(cells, first))
    sizes = [min(SHOWN_WIDTH, max(map(len, column))) for column in zip(heading, *texts, strict=True)]
    numbers = [bool(first) and all(is_number(row[position]) for row in first) for position in visible]
    for row in chain([heading], texts, map(cells, rows)):
        line = "  ".join(
            cell.rjust(size) if number else cell.ljust(size)
            for cell, size, number in zip(row, sizes, numbers, strict=True)
        ).rstrip()
        yield fitted(line, line_width)


def fitted(line: str, width: int | None) -> str:
    """Cut a line of a table to the width of a terminal; None cuts nothing."""
    return line if width is None or len(line) <= width else line[: width - 1] + "…"


def cell_text(value: Any, digits: int | None = None, width: int | None = SHOWN_WIDTH) -> str:
    """Render a value as one line for people, at most `width` characters.

    >>> cell_text(2.34567, 2), cell_text(-0.001, 2), cell_text(7), cell_text(None), cell_text("a\\nb")
    ('2.35', '0.00', '7', '', 'a\\\\nb')
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:z.{digits}f}" if digits is not None else f"{value:z.6g}"  # z: no -0.00
    shape = getattr(value, "shape", ())
    text = f"array{tuple(shape)}" if len(shape) else str(value)
    text = one_line(text)
    return text if width is None or len(text) <= width else text[: width - 1] + "…"


def is_number(value: Any) -> bool:
    """Tell if a value is a number, or missing."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
