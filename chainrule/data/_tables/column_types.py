"""The kinds of columns that a user names: `COLUMN=KIND` separated by commas, as a shell takes them."""

import csv
import io
from collections.abc import Mapping
from shlex import quote


def parse_types(text: str) -> dict[str, str]:
    """Return the kinds of columns that a user named.

    A pair with a comma in it stands in double quotes, as in a CSV file.
    """
    try:
        cells = next(csv.reader([text], skipinitialspace=True, strict=True), [])
    except csv.Error:
        raise ValueError(f"--types: expected pairs of double quotes, got {text!r:.80}") from None
    pairs = [cell.rpartition("=") for cell in cells if cell.strip()]
    for name, _, kind in pairs:
        if not name.strip() or not kind.strip():
            raise ValueError(
                f"--types: expected COLUMN=KIND, separated by commas, got {name or kind!r}: "
                "put a pair with a comma in it into double quotes"
            )
    return {name.strip(): kind.strip() for name, _, kind in pairs}


def types_flag(types: Mapping[str, str]) -> str:
    """Return the flag that names these kinds, to be pasted into a shell.

    >>> print(types_flag({"price (€)": "skip", "a, b": "real"}), types_flag({"age": "real"}))
    --types 'price (€)=skip,"a, b=real"' --types age=real
    """
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow([f"{name}={kind}" for name, kind in types.items()])
    return f"--types {quote(written.getvalue())}"
