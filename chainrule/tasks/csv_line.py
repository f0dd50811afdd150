"""Cells as a line of CSV."""

import csv
import io
from collections.abc import Iterable


def csv_line(cells: Iterable[str]) -> str:
    """Cells separated by commas, quoted where they must be, without the line end.

    >>> csv_line(["a", "b, c"])
    'a,"b, c"'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()
