"""Readers of `metrics.jsonl`, `timings.jsonl` and `samples.jsonl`, without torch."""

import json
import math
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

METRICS = "metrics.jsonl"
TIMINGS = "timings.jsonl"
SAMPLES = "samples.jsonl"
EVENTS = ("step", "validation", "watch", "warning")
_LONGEST_RECORD = 1 << 20  # bytes of a line; gradient measurements take a few thousand
_LAST = 1 << 16  # bytes to read at the end of `timings.jsonl`
_NO_FIGURES = ("event", "best", "perplexity", "warning")  # entries of a validation that are not required numbers


def read_metrics(path: Path, event: str = "") -> Iterator[dict[str, Any]]:
    """Yield the records of a `metrics.jsonl`, only of an `event` if set; skip a last line truncated by a crash."""
    others = tuple(f'{{"event": "{name}"'.encode() for name in EVENTS if event and name != event)
    with path.open("rb") as file:
        for number, line in enumerate(lines_of(file), start=1):
            if line.startswith(others):
                continue
            if line.endswith(b"\n") or len(line) == _LONGEST_RECORD:
                record = parse_record(line)
                if record is None:
                    raise ValueError(
                        f"{path}: line {number}: expected a record of training, got {line[:60]!r}: damaged"
                    )
                yield record


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
        if _is_figure(elapsed):
            return float(elapsed)
    return None


def read_samples(path: Path) -> list[dict[str, Any]]:
    """Return the samples of a `samples.jsonl`, each with "step", "text" and for images "png"; skip damaged lines."""
    return [
        record
        for record in _objects(path)
        if type(record.get("step")) is int
        and isinstance(record.get("text"), str)
        and isinstance(record.get("png", ""), str)
    ]


def read_timings(path: Path) -> list[dict[str, Any]]:
    """Return the records of a `timings.jsonl`; skip damaged lines."""
    return [record for record in _objects(path) if type(record.get("step")) is int]


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    if path.is_file():
        with path.open("rb") as file:
            for line in lines_of(file):
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(record, dict):
                    yield record


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file, in pieces if they are longer than any record."""
    return iter(partial(file.readline, _LONGEST_RECORD), b"")


def parse_record(line: bytes) -> dict[str, Any] | None:
    """Parse a line; return None for a truncated line or one that is not a record."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or record.get("event") not in EVENTS or type(record.get("step")) is not int:
        return None
    return record if _has_figures(record) else None


def _has_figures(record: dict[str, Any]) -> bool:
    match record["event"]:
        case "step":
            return _is_figure(record.get("gradient_norm"))
        case "validation":
            figures = {name: value for name, value in record.items() if name not in _NO_FIGURES}
            named = {"nats_per_element", "bits_per_element"} <= figures.keys()
            perplexity = record.get("perplexity")
            return named and all(map(_is_figure, figures.values())) and (perplexity is None or _is_figure(perplexity))
    return True


def _is_figure(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < math.inf
