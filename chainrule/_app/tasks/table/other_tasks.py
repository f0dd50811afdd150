"""Tables that another task is meant for: dates at regular steps, or texts with labels."""

from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from shlex import quote

from chainrule.data import _series, _tables
from chainrule.data._delimited import types_flag

_LARGEST = 1 << 26  # bytes of a file that is looked at
_ROWS, _CELLS = 1000, 1 << 18  # that are looked at, at most
_DATED = 0.9  # of the rows
_FEWEST_DATES = 8
_LONG_SERIES = 100  # rows that suit the default horizon of 24
_WORDS = 3  # of an average text
_OFTEN = 8  # rows that have the same label, on average


def suggestion(path: str | Path, header: bool | None) -> str:
    """Suggest the command of another task, if the rows of a table look like its data."""
    if Path(path).stat().st_size > _LARGEST:
        return ""
    names, columns = _first_rows(path, header)
    if (date := _dates(columns)) is not None and (target := _target(names, columns)) is not None:
        return _suggested(path, "a series with dates", "forecast", _series_flags(path, target, header), names[date])
    if (flags := _labelled(path, names, columns)) is not None:
        text = next((name for name, cells in zip(names, columns, strict=True) if _is_prose(cells)), "")
        return _suggested(path, "texts with labels", "classify", flags, text)
    return ""


def _suggested(path: str | Path, what: str, task: str, flags: Sequence[str], column: str) -> str:
    command = " ".join(["chainrule train", quote(str(path)), f"--task {task}", *flags])
    skip = f" (or, for a table of the other columns, {types_flag({column: 'skip'})})" if column else ""
    return f"{path} looks like {what}: {command}{skip}"


def _dates(columns: Sequence[Sequence[str]]) -> int | None:
    """Find the first column of almost distinct dates."""
    from chainrule.data._tables.cell_column import is_date_like

    for index, cells in enumerate(columns):
        fewest = max(_FEWEST_DATES, _DATED * len(cells))
        if len(set(cells)) >= fewest and sum(map(is_date_like, cells)) >= _DATED * len(cells):
            return index
    return None


def _target(names: Sequence[str], columns: Sequence[Sequence[str]]) -> str | None:
    """Find the last numeric column."""
    numeric = [name for name, cells in zip(names, columns, strict=True) if _is_numeric(cells)]
    return numeric[-1] if numeric else None


def _series_flags(path: str | Path, target: str, header: bool | None) -> list[str]:
    found = header in (None, _tables.TableFile(path).header)
    flags = [f"--target {quote(target)}", *([] if found else [f"--header {'yes' if header else 'no'}"])]
    for fill in (False, True):
        try:
            rows = len(_series.read_series(path, target, header=header, fill=fill).values)
        except ValueError:
            continue
        short = rows < _LONG_SERIES
        return [*flags, *["--fill"] * fill, *[f"--horizon {max(rows // 6, 1)}"] * short]
    return flags  # the task says what is wrong with the file


def _labelled(path: str | Path, names: Sequence[str], columns: Sequence[Sequence[str]]) -> list[str] | None:
    """Return the flags for a file of texts and labels; None for any other table."""
    from chainrule.data._labelled import LabelledFile

    texts = [name for name, cells in zip(names, columns, strict=True) if _is_prose(cells)]
    labels = [name for name, cells in zip(names, columns, strict=True) if _are_labels(cells)]
    columns_of: list[tuple[str | None, str | None]] = [(None, None)]
    if len(texts) == len(labels) == 1:
        columns_of.append((texts[0], labels[0]))
    for text, label in columns_of:
        try:
            with closing(iter(LabelledFile(path, text_column=text, label_column=label))) as read:
                rows = list(islice(read, _ROWS))
        except ValueError:
            continue
        if _is_prose([row.text for row in rows]) and _are_labels([row.label for row in rows]):
            return [f"--text-column {quote(text)}", f"--label-column {quote(label)}"] if text and label else []
    return None


def _first_rows(path: str | Path, header: bool | None) -> tuple[list[str], list[Sequence[str]]]:
    """Read the column names and the first cells of a table; empty if it cannot be read."""
    try:
        file = _tables.TableFile(path, header=header)
        with closing(file.rows()) as read:
            most = min(_ROWS, _CELLS // len(file.names))
            rows = [cells for _, cells in islice(read, most)]
        return (file.names, list(zip(*rows, strict=True))) if rows else ([], [])
    except ValueError:
        return [], []


def _is_numeric(cells: Sequence[str]) -> bool:
    """Tell if all present cells are numbers, at least two of them distinct."""
    from chainrule.data._tables.cell_column import MISSING, as_number

    numbers = [as_number(cell) for cell in cells if cell not in MISSING]
    return None not in numbers and len(set(numbers)) > 1


def _is_prose(cells: Sequence[str]) -> bool:
    """Tell if cells are texts of several words, most of them distinct."""
    return sum(len(cell.split()) for cell in cells) >= _WORDS * len(cells) and 2 * len(set(cells)) > len(cells)


def _are_labels(cells: Sequence[str]) -> bool:
    """Tell if cells have few distinct values, each frequent."""
    return 1 < len(set(cells)) <= len(cells) / _OFTEN
