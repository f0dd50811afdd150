"""How flags, commands, times, sizes, rows and data are written on a terminal; data must not reach it as commands."""

import codecs
import csv
import io
import json
import math
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from cyclopts import Parameter

from chainrule.option_error import OptionError, as_keyword
from chainrule.printing import OVERRIDES, printable
from chainrule_app.heavy import np
from chainrule_app.printing import WRITE_OPTION, writable
from chainrule_app.readers.text import shown

if TYPE_CHECKING:
    import numpy.typing as npt

Switch = Annotated[bool, Parameter(negative=())]
"""A flag without a value and without a --no- form."""


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


_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], low: float, high: float) -> str:
    """Draw a bar for each value, clipped to low and high.

    >>> sparkline([0.0, 1.0, 2.0, 3.0, 9.0], 0.0, 3.0)
    '▁▃▆██'
    """
    step = (high - low) / len(_BARS) or 1.0
    return "".join(_BARS[min(max(int((value - low) / step), 0), len(_BARS) - 1)] for value in values)


def loudness_line(amplitudes: "npt.ArrayLike", width: int = 60) -> str:
    """Draw the loudness of a sound as `width` bars; each step up is 6 decibels, twice the amplitude.

    >>> loudness_line([0.0, 0.01, 0.3, -0.9], width=4)
    '▁▂▇█'
    """
    parts = [np.abs(part) for part in np.array_split(np.asarray(amplitudes), width) if len(part)]
    return sparkline([math.log2(max(float(part.max()), 2.0**-10)) for part in parts], -len(_BARS), 0)


_UNSAFE_IN_JSON = re.compile(f"[\x7f-\x9f\ud800-\udfff\u2028\u2029{OVERRIDES}]")  # JSON escapes U+0000 to U+001F itself


class SafeOutput:
    """Standard output that sends data to a terminal as harmless text."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._shown = printable if stream.isatty() else writable
        self._held = ""  # a carriage return, until it is known whether a line feed follows

    def write(self, text: str) -> int:
        whole = self._held + text
        self._held = "\r" if whole.endswith("\r") else ""
        self._stream.write(self._shown(whole.removesuffix("\r") if self._held else whole))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """End the output; the stream itself stays open."""
        self._stream.write(self._shown(self._held))
        self._held = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_ALIKE = dict(zip("−–—⁻‘’“”·•×→←⊢▁▂▃▄▅▆▇█░▒▓␣\xa0", "----''\"\"**x><|12345678.:#_ ", strict=True))

_ALIKE |= dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹₂", "01234567892", strict=True))
_ALIKE |= {"…": "...", "⋯": "...", "≤": "<=", "≥": ">=", "±": "+-", "‖": "||", "∂": "d", "√": "sqrt", "∞": "inf"}
_ALIKE |= {"α": "alpha", "β": "beta", "ε": "epsilon", "χ": "chi"}
"""ASCII for signs of our own texts; a sparkline counts from 1 to 8."""


class Substitution:
    r"""Error handler of an encoder that writes ASCII for what the encoding lacks, and never stops.

    Signs of our own texts, such as the minus sign, become their ASCII form. Other characters are data: they become
    question marks, and `lost` counts them; in JSON they are escaped, and nothing is lost.

    >>> stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    >>> substitution = Substitution.of(stream, "example")
    >>> stream.write("−1…2 é"), stream.flush(), stream.buffer.getvalue(), substitution.lost
    (6, None, b'-1...2 ?', 1)
    """

    def __init__(self) -> None:
        self.lost = 0
        self.json = False  # whether what is written is JSON

    @classmethod
    def of(cls, stream: TextIO, name: str) -> "Substitution":
        """Register a new handler by name, and let the stream use it if it encodes."""
        handler = cls()
        codecs.register_error(name, handler)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=name)
        return handler

    def __call__(self, error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        return "".join(map(self._written, error.object[error.start : error.end])), error.end

    def _written(self, character: str) -> str:
        if self.json:
            return json.dumps(character)[1:-1]
        if character not in _ALIKE:
            self.lost += 1
        return _ALIKE.get(character, "?")


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
