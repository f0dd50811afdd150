"""The figures of a run, as JSON lines and, on request, as TensorBoard events."""

import errno
import json
import math
import os
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

from chainrule.data._atomic import replacing
from chainrule.training._duration import Position
from chainrule.training._evaluate import Evaluation
from chainrule.training._validation import Findings, MetricResult

METRICS = "metrics.jsonl"
TIMINGS = "timings.jsonl"
_LONGEST_RECORD = 1 << 20  # bytes of a line; those of a look at the gradients take some thousand
_LAST = 1 << 16  # bytes at the end of `timings.jsonl` that are read
_EVENTS = ("step", "validation", "watch", "warning")
_NO_FIGURES = ("event", "best", "perplexity", "warning")  # of a validation


class Metrics:
    """Writes `metrics.jsonl`, which holds only what the run computes, and `timings.jsonl`, which holds the clock.

    Two runs of the same steps write the same `metrics.jsonl`, however often they were interrupted: lines beyond the
    checkpoint that a run continues from are dropped, and written again.

    Args:
        directory: the run directory.
        position: where the run begins; lines after it are dropped.
        tensorboard: write events into the folder `tensorboard` too.

    Raises:
        ValueError: TensorBoard was asked for and is not installed.
        OSError: the directory cannot be written to.
    """

    def __init__(self, directory: Path, position: Position, *, tensorboard: bool = False):
        for path in (directory / METRICS, directory / TIMINGS):  # a run may come from elsewhere
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise OSError(f"{path}: expected a file of the run, got a link, folder, device or pipe: remove it")
        self._writer = _tensorboard(directory, position.step) if tensorboard else None
        _drop_later(directory / METRICS, position)
        if position.step == 0:
            (directory / TIMINGS).unlink(missing_ok=True)
        self._metrics = _Lines(directory / METRICS)
        self._timings = _Lines(directory / TIMINGS)

    def step(self, step: int, elements: int, batch: Evaluation, gradient_norm: float, learning_rate: float) -> None:
        """A step's figures; `elements` counts all that were trained on, `gradient_norm` is the norm before clipping."""
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
        evaluation: Evaluation,
        verdict: MetricResult | None = None,
        findings: Findings | None = None,
        *,
        best: bool,
    ) -> None:
        """A validation's figures; `elements` counts what it read. The metric of `rows` is under its own name, and so
        are further figures; a warning that they gave is under `warning`."""
        findings = findings or Findings({})
        figures = {
            "nats_per_element": evaluation.nats_per_element,
            "bits_per_element": evaluation.bits_per_element,
            "perplexity": evaluation.perplexity if math.isfinite(evaluation.perplexity) else None,
            **({} if verdict is None else {verdict.metric.name: verdict.metric.value}),
            **findings.figures,
        }
        read = {"elements": evaluation.elements} | ({} if verdict is None else {"rows": verdict.rows})
        warned = {"warning": findings.warning} if findings.warning else {}
        self._metrics.write({"event": "validation", "step": step} | read | figures | warned | {"best": best})
        self._events("validation", figures, step)

    def watch(self, step: int, look: dict[str, Any]) -> None:
        """How gradients flow back through time, as `gradient_monitor.record` makes it."""
        self._metrics.write({"event": "watch", "step": step} | look)
        for index, layer in enumerate(look["layers"]):
            ratios = dict(zip(look["distances"], layer["relative"], strict=True))
            shown = {f"distance_{k}": ratio for k, ratio in ratios.items() if k & (k - 1) == 0}  # the same in all looks
            reach = layer["reach"] or look["distances"][-1] + 1
            self._events(f"gradient_layer_{index}", {"norm": layer["norm"], "reach": reach} | shown, step)

    def warning(self, step: int, about: str, text: str) -> None:
        """A warning that was shown."""
        self._metrics.write({"event": "warning", "step": step, "about": about, "text": text})
        if self._writer is not None:
            self._writer.add_text("warning", text, step)

    def timing(self, step: int, **seconds: float) -> None:
        """Times by the clock."""
        self._timings.write({"step": step} | seconds)
        self._events("timing", seconds, step)

    def sync(self) -> None:
        """Return when all lines are on the disk: a checkpoint must not be ahead of them."""
        self._metrics.sync()

    def close(self) -> None:
        self._metrics.close()
        self._timings.close()
        if self._writer is not None:
            self._writer.close()

    def _events(self, group: str, figures: dict[str, Any], step: int) -> None:
        if self._writer is not None:
            for name, value in figures.items():
                if value is not None:
                    self._writer.add_scalar(f"{group}/{name}", value, step)


class _Lines:
    """A file of JSON lines, unbuffered: a line is in the hands of the system as soon as it is written."""

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
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a `metrics.jsonl`; a last line cut short by a crash is left out."""
    with path.open("rb") as file:
        for number, line in enumerate(_lines(file), start=1):
            if line.endswith(b"\n") or len(line) == _LONGEST_RECORD:
                record = _parse(line)
                if record is None:
                    raise ValueError(
                        f"{path}: line {number}: expected a record of training, got {line[:60]!r}: damaged"
                    )
                yield record


def read_elapsed(path: Path) -> float | None:
    """Seconds of training that the last whole line of a `timings.jsonl` tells; None where absent."""
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


def check_tensorboard() -> None:
    """Raise ValueError where TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        raise ValueError(_NO_TENSORBOARD)


_NO_TENSORBOARD = "tensorboard: expected the package, which is not installed: pip install tensorboard"


def _drop_later(path: Path, position: Position) -> None:
    limits = {event: position.validated if event == "validation" else position.step for event in _EVENTS}
    with replacing(path) as partial, partial.open("wb") as kept:
        if position.step > 0 and path.exists():
            with path.open("rb") as file:
                for line in _lines(file):
                    record = _parse(line)
                    if record is not None and record["step"] <= limits[record["event"]]:
                        kept.write(line)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file; of one that is longer than any record, pieces that are none."""
    return iter(partial(file.readline, _LONGEST_RECORD), b"")


def _parse(line: bytes) -> dict[str, Any] | None:
    """None for the line that a killed process did not finish, or that is no record."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or record.get("event") not in _EVENTS or type(record.get("step")) is not int:
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


def _tensorboard(directory: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError(_NO_TENSORBOARD) from error
    return SummaryWriter(str(directory / "tensorboard"), purge_step=step + 1 if step else None)
