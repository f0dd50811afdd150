"""Clock times and samples that training recorded in a run directory, read again."""

import json
import math
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

TIMINGS = "timings.jsonl"
SAMPLES = "samples.jsonl"
_LONGEST_RECORD = 1 << 20  # bytes of a line


_LAST = 1 << 16  # bytes to read at the end of `timings.jsonl`


def read_elapsed(path: Path) -> float | None:
    """Return the elapsed seconds in the last whole line of a `timings.jsonl`, or None."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST))
        lines = file.read(_LAST).splitlines()
    for line in reversed(lines):
        try:
            elapsed = json.loads(line)["elapsed"]
        except (ValueError, RecursionError, KeyError, TypeError):
            continue
        if type(elapsed) in (int, float) and abs(elapsed) < math.inf:
            return float(elapsed)
    return None


def read_timings(path: Path) -> list[dict[str, Any]]:
    """Return the records of a `timings.jsonl`; skip damaged lines."""
    if not path.is_file():
        return []
    records = []
    with path.open("rb") as file:
        for line in iter(partial(file.readline, _LONGEST_RECORD), b""):
            with suppress(ValueError, RecursionError):
                records.append(json.loads(line))
    return [record for record in records if isinstance(record, dict) and type(record.get("step")) is int]
