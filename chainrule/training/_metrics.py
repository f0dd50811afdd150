"""Metrics of a run as JSON lines, for callbacks, and read again; without torch."""

import errno
import json
import math
import os
from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from chainrule.files import naming, replacing
from chainrule.training._callbacks import Callback, Ending

if TYPE_CHECKING:
    from chainrule.training._duration import Position
    from chainrule.training._evaluate import Evaluation
    from chainrule.training._measurements import MetricResult
    from chainrule.training._validation import Findings, Preview

METRICS = "metrics.jsonl"
TIMINGS = "timings.jsonl"
SAMPLES = "samples.jsonl"
EVENTS = ("step", "validation", "watch", "warning")
_LONGEST_RECORD = 1 << 20  # bytes of a line; gradient measurements take a few thousand
_NO_FIGURES = ("event", "best", "perplexity", "warning")  # entries of a validation that are not required numbers

_SAMPLE_SPACING = 1.05  # minimum ratio of the steps of consecutive saved samples
_LONGEST_SAMPLE = 2000  # characters


class Metrics:
    """Writer of `metrics.jsonl`, which is deterministic, and `timings.jsonl`, which holds clock times.

    Two runs of the same steps write the same `metrics.jsonl`, even if they were interrupted: a resumed run drops the
    lines after its checkpoint and writes them again. Samples are a few if validations are many.
    """

    def __init__(
        self, directory: Path, position: "Position", callbacks: Sequence[Callback] = (), *, samples: bool = False
    ):
        for path in (directory / METRICS, directory / TIMINGS, directory / SAMPLES):  # a run may come from elsewhere
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise OSError(f"{path}: expected a file of the run, got a link, folder, device or pipe: remove it")
        self._callbacks = callbacks
        _drop_later(directory / METRICS, position)
        if position.step == 0:
            (directory / TIMINGS).unlink(missing_ok=True)
        self._metrics = _Lines(directory / METRICS)
        self._timings = _Lines(directory / TIMINGS)
        self._last_sample = _drop_later_samples(directory / SAMPLES, position)
        self._samples = _Lines(directory / SAMPLES) if samples else None
        for callback in callbacks:
            callback.begin(directory, position.step)

    def step(self, step: int, elements: int, batch: "Evaluation", gradient_norm: float, learning_rate: float) -> None:
        """Write a step's metrics; `elements` is the total so far, `gradient_norm` the norm before clipping."""
        figures = {
            "nats_per_element": batch.nats_per_element,
            "bits_per_element": batch.bits_per_element,
            "gradient_norm": gradient_norm,
            "learning_rate": learning_rate,
        }
        self._metrics.write({"event": "step", "step": step, "elements": elements} | figures)
        self._events("training", figures, step)

    def validation(
        self,
        step: int,
        evaluation: "Evaluation",
        verdict: "MetricResult | None" = None,
        findings: "Findings | None" = None,
        *,
        best: bool,
    ) -> None:
        """Write a validation's metrics: likelihood, the task's metric on `rows`, extra metrics and a warning."""
        figures = {
            "nats_per_element": evaluation.nats_per_element,
            "bits_per_element": evaluation.bits_per_element,
            "perplexity": evaluation.perplexity if math.isfinite(evaluation.perplexity) else None,
            **({} if verdict is None else {verdict.metric.name: verdict.metric.value}),
            **({} if findings is None else findings.figures),
        }
        read = {"elements": evaluation.elements} | ({} if verdict is None else {"rows": verdict.rows})
        warned = {"warning": findings.warning} if findings is not None and findings.warning else {}
        self._metrics.write({"event": "validation", "step": step} | read | figures | warned | {"best": best})
        self._events("validation", figures, step)

    def watch(self, step: int, look: dict[str, Any]) -> None:
        """Write a gradient measurement, the result of `gradient_monitor.record`."""
        self._metrics.write({"event": "watch", "step": step} | look)
        for index, layer in enumerate(look["layers"]):
            ratios = dict(zip(look["distances"], layer["relative"], strict=True))
            powers = {f"distance_{k}": ratio for k, ratio in ratios.items() if k & (k - 1) == 0}  # always present
            reach = layer["reach"] or look["distances"][-1] + 1
            self._events(f"gradient_layer_{index}", {"norm": layer["norm"], "reach": reach} | powers, step)

    def warning(self, step: int, about: str, text: str) -> None:
        """Write a warning."""
        self._metrics.write({"event": "warning", "step": step, "about": about, "text": text})
        for callback in self._callbacks:
            callback.text(step, "warning", text)

    def sample(self, step: int, preview: "Preview") -> None:
        """Write a sample of a validation; the number of saved samples grows with the logarithm of the steps."""
        for callback in self._callbacks if preview.text and not preview.png else ():
            callback.text(step, "sample", preview.text)
        if self._samples is not None and step >= _SAMPLE_SPACING * self._last_sample:
            self._last_sample = step
            record = {"step": step, "text": "" if preview.png else preview.text[:_LONGEST_SAMPLE]}
            self._samples.write(record | ({"png": b64encode(preview.png).decode()} if preview.png else {}))

    def timing(self, step: int, **figures: float) -> None:
        """Write clock times, and the fraction of the run that is done."""
        self._timings.write({"step": step} | figures)
        self._events("timing", figures, step)

    def sync(self) -> None:
        """Flush all lines to the disk, because a checkpoint must not be ahead of them."""
        self._metrics.sync()

    def close(self, ending: Ending) -> None:
        """Close the files, and send the end of the run to the callbacks."""
        for file in (self._metrics, self._timings, self._samples):
            if file is not None:
                file.close()
        for callback in self._callbacks:
            callback.end(ending)

    def _events(self, group: str, figures: dict[str, Any], step: int) -> None:
        named = {f"{group}/{name}": value for name, value in figures.items() if value is not None}
        for callback in self._callbacks:
            callback.figures(step, named)


class _Lines:
    """Unbuffered file of JSON lines: the operating system has each line as soon as it is written."""

    def __init__(self, path: Path):
        self._path = path
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        self._file = os.fdopen(os.open(path, flags, 0o666), "ab", buffering=0)

    def write(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            reason = error.strerror
            raise OSError(f"{self._path}: cannot be written ({reason}); the last checkpoint is intact") from error

    def sync(self) -> None:
        with naming(self._path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _drop_later(path: Path, position: "Position") -> None:
    limits = {event: position.validated if event == "validation" else position.step for event in EVENTS}
    with replacing(path) as partial, partial.open("wb") as earlier:
        if position.step > 0 and path.exists():
            with path.open("rb") as file:
                for line in lines_of(file):
                    record = parse_record(line)
                    if record is not None and record["step"] <= limits[record["event"]]:
                        earlier.write(line)


def _drop_later_samples(path: Path, position: "Position") -> int:
    """Drop samples after the position, and return the step of the last remaining one, or 0."""
    samples = [sample for sample in read_samples(path) if sample["step"] <= position.validated] if position.step else []
    if path.exists():
        with replacing(path) as partial:
            partial.write_text("".join(json.dumps(sample) + "\n" for sample in samples), encoding="utf-8")
    return max((sample["step"] for sample in samples), default=0)


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


def read_samples(path: Path) -> list[dict[str, Any]]:
    """Return the samples of a `samples.jsonl`, each with "step", "text" and for images "png"; skip damaged lines."""
    return [
        record
        for record in _objects(path)
        if type(record.get("step")) is int
        and isinstance(record.get("text"), str)
        and isinstance(record.get("png", ""), str)
    ]


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
