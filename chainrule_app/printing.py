"""Texts for streams: what can be written, options as their user writes them, and lists of names."""

import csv
import json
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, is_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from chainrule.option_error import OptionError, WriteOption, as_keyword
from chainrule.printing import OVERRIDES

if TYPE_CHECKING:
    pass

_UNWRITABLE = re.compile("[\ud800-\udfff]")
WRITE_OPTION: ContextVar[WriteOption] = ContextVar("WRITE_OPTION", default=as_keyword)
"""How notes write options: as keyword arguments, but as flags in a command line."""


def spelled(name: str, value: str | None = None) -> str:
    """Write an option for a note as its user does; errors refer to one by `chainrule.option_error.option`.

    >>> spelled("max_length"), spelled("fit", "crop")
    ('max_length', 'fit="crop"')
    """
    return WRITE_OPTION.get()(name, value)


def writable(text: str) -> str:
    r"""`text` as it is, but for halves of surrogate pairs.

    >>> writable("\ud800\u200f") == "\\ud800\u200f"
    True
    """
    return _UNWRITABLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def listed(names: Iterable[str], width: int = 200) -> str:
    """Join as many whole names as fit into `width` characters, at least one, and count the others.

    >>> listed(["churn", "label", "age"], 14), listed(["churn", "label"])
    ('churn, label and 1 more', 'churn, label')
    """
    names, shown = list(names), 0
    while shown < len(names) and (not shown or len(", ".join(names[: shown + 1])) <= width):
        shown += 1
    more = f" and {len(names) - shown} more" if shown < len(names) else ""
    return ", ".join(names[:shown]) + more


URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+([^/].*)", re.DOTALL)  # a `Path` has one slash where the URL has two
_USER = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]+:/+)[^\s/@'\"]+@")
_QUERY = re.compile(r"\b((?:https?|ftp):/+[^\s?'\"]*)\?[^\s'\"]*")
TREES = ("url-objects", "url-work")  # folders of copies of what is behind URLs, and of what is written for them


def is_url(path: str | Path) -> bool:
    """Return whether a path is a URL; one letter before the colon is a drive.

    >>> is_url("s3://bucket/a.csv"), is_url(Path("s3://bucket/a.csv")), is_url("a.csv"), is_url("C:/a.csv")
    (True, True, False, False)
    """
    return URL.fullmatch(str(path)) is not None


def public(text: str) -> str:
    """Return a text without what URLs in it hold of credentials: names before an @, and the query of a web address.

    >>> public("no https://me:key@host/a.csv?signature=1 here")
    'no https://host/a.csv here'
    """
    return _QUERY.sub(r"\1", _USER.sub(r"\1", text))


def shown(path: str | Path) -> str:
    """Return a path or a text with it as users know it: the URL of a copy, and no credentials of a URL.

    >>> shown("rows.csv"), shown(Path("s3://bucket/a.csv"))
    ('rows.csv', 's3://bucket/a.csv')
    """
    text = str(path)
    if _may_be_copy(text):
        from chainrule_app.readers.copies import root

        copies = rf"{re.escape(str(root()))}/(?:{'|'.join(TREES)})/(?:\.[0-9a-f]{{16}}/)?"
        text = re.sub(copies + r"([a-z][a-z0-9+.-]+)/(?:(\S*?/)query-[0-9a-f]{12}/)?", r"\1://\2", text)
    match = URL.fullmatch(text)
    return public(f"{match[1].lower()}://{match[2]}" if match else text)


def url_of(path: str | Path) -> str | None:
    """Return the URL that a path is, or that it is a copy of; else None."""
    found = shown(path) if is_url(path) or _may_be_copy(str(path)) else ""
    return found if is_url(found) else None


def _may_be_copy(text: str) -> bool:
    return any(tree in text for tree in TREES)


def flag(name: str) -> str:
    """Return the flag of a field."""
    return "--" + name.replace("_", "-")


def flags_of(values: Mapping[str, Any]) -> str:
    """Format options as flags."""
    return " ".join(_written(name, value) for name, value in values.items())


def spelled_all(values: Mapping[str, Any]) -> str:
    """Write options and their values as their user does: as keyword arguments, or as flags.

    >>> spelled_all({"dropout": 0.5, "cell": "gru"})
    "dropout=0.5, cell='gru'"
    """
    if WRITE_OPTION.get() is as_keyword:
        return ", ".join(f"{name}={value!r}" for name, value in values.items())
    return flags_of(values)


def _written(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return flag(name if value else f"no_{name}")
    if isinstance(value, float) and float(f"{value:g}") == value:  # short where nothing is lost
        return f"{flag(name)} {value:g}"
    return f"{flag(name)} {value}"


def quoted(path: Path) -> str:
    """Quote a path for the shell, that of a copy as its URL."""
    return shlex.quote(shown(path))


def resume_command(run: Path) -> str:
    return f"chainrule train --resume --out {quoted(run)}"


def size_of(size: float) -> str:
    """Format a number of bytes in a suitable unit.

    >>> size_of(1234567)
    '1.23 MB'
    """
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_DURATION = re.compile("".join(rf"(?:(?P<{unit}>\d+(?:\.\d+)?){unit})?" for unit in _UNITS))


def parse_duration(text: str) -> float:
    """Parse a duration in seconds; a bare number is seconds.

    >>> parse_duration("1h30m"), parse_duration("90s"), parse_duration("45")
    (5400.0, 90.0, 45.0)
    """
    compact = text.strip().lower()
    compact = f"{compact}s" if re.fullmatch(r"\d+(\.\d+)?", compact) else compact
    match = _DURATION.fullmatch(compact)
    seconds = sum(float(value) * _UNITS[unit] for unit, value in match.groupdict().items() if value) if match else 0.0
    if not 0 < seconds <= 366 * 86400:
        raise OptionError("budget", f"expected a time such as 90s, 3m or 1h30m, got {text!r}")
    return seconds


def format_duration(seconds: float) -> str:
    """Format seconds as a short text.

    >>> format_duration(5400), format_duration(200.4), format_duration(2.34)
    ('1h30m', '3m20s', '2.3s')
    """
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    parts = {"d": whole // 86400, "h": whole // 3600 % 24, "m": whole // 60 % 60, "s": whole % 60}
    return "".join(f"{value}{unit}" for unit, value in parts.items() if value)


def counted(number: int, noun: str) -> str:
    """Format a number with its noun."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def format_passes(passes: float, data: str) -> str:
    """Format passes over data.

    >>> format_passes(1.0, "text"), format_passes(12.345, "rows"), format_passes(1234.5, "rows")
    ('1 pass over the text', '12 passes over the rows', '1,234 passes over the rows')
    """
    number = f"{passes:,.0f}" if passes >= 99.5 else f"{passes:.2g}"
    return f"{number} pass{'es' * (passes != 1)} over the {data}"


def csv_lines(rows: Iterable[Iterable[Any]], delimiter: str = ",") -> Iterator[str]:
    r"""Yield rows of cells as lines of CSV, without the line ends; a carriage return in a cell is quoted, too.

    >>> list(csv_lines([["a", "b, c", "d\re"], [1, None, 0.5]]))
    ['a,"b, c","d\re"', '1,,0.5']
    """
    written: list[str] = []
    writer = csv.writer(SimpleNamespace(write=written.append), delimiter=delimiter, lineterminator="\r\n")
    for row in rows:
        writer.writerow(row)
        yield written.pop().removesuffix("\r\n")


BeginBar = Callable[[int | None, str], Callable[[int], None]]


@contextmanager
def progress_bars() -> Iterator[BeginBar]:
    """Provide a function that starts a progress bar and returns one that advances it; silent without a terminal."""
    if not sys.stderr.isatty():
        yield lambda total, word: lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    # Redirected, standard output would go to the bar's console, and miss the file or pipe that it belongs to.
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as progress:

        def begin(total: int | None, word: str) -> Callable[[int], None]:
            bar = progress.add_task(word, total=total)
            return lambda count: progress.advance(bar, count)

        yield begin


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Align rows, the heading first, as lines; columns in `left` are text, the others numbers.

    >>> aligned([["", "a", "b"], ["total", "10", "2"]])
    ['        a  b', 'total  10  2']
    """
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(size) if index in left else cell.rjust(size)
            for index, (cell, size) in enumerate(zip(row, sizes, strict=True))
        ).rstrip()
        for row in rows
    ]


def measured_part(rows: int, all_rows: int) -> str:
    """Return the words before "held-out sentences".

    >>> measured_part(64, 1014), measured_part(872, 872)
    ('64 of the 1,014 ', 'the ')
    """
    return "the " if rows >= all_rows else f"{rows:,} of the {all_rows:,} "


_UNSAFE_IN_JSON = re.compile(f"[\x7f-\x9f\ud800-\udfff\u2028\u2029{OVERRIDES}]")  # JSON escapes U+0000 to U+001F itself


"""ASCII for signs of our own texts; a sparkline counts from 1 to 8."""


def shortened(text: str, width: int) -> str:
    """Shorten a text to `width` characters by dropping its middle."""
    if len(text) <= width:
        return text
    last = (width - 3) * 2 // 5
    return f"{text[: width - 3 - last]} … {text[len(text) - last :]}"


def dump_json(record: Any) -> str:
    r"""Encode a record as JSON that is harmless on a terminal and exact when read."""
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(record, ensure_ascii=False))


def plain_value(value: Any, cell: Any) -> Any:
    """Convert a value for JSON; values without a JSON type, such as dates, become text."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value if isinstance(value, int | float | str | list | dict | None) else str(cell)
