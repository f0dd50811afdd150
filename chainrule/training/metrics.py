"""The figures of a run, as JSON lines and, on request, as TensorBoard events."""

import errno
import json
import math
import os
from pathlib import Path
from typing import Any

from chainrule.training.atomic import replacing
from chainrule.training.evaluate import Evaluation
from chainrule.training.findings import Verdict
from chainrule.training.position import Position

METRICS = "metrics.jsonl"
TIMINGS = "timings.jsonl"
_EVENTS = ("step", "validation", "watch", "warning")


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

    def validation(self, step: int, evaluation: Evaluation, verdict: Verdict | None = None, *, best: bool) -> None:
        """A validation's figures; `elements` counts what it read. A judgement of `rows` is under its own name."""
        figures = {
            "nats_per_element": evaluation.nats_per_element,
            "bits_per_element": evaluation.bits_per_element,
            "perplexity": evaluation.perplexity if math.isfinite(evaluation.perplexity) else None,
        } | ({} if verdict is None else {verdict.judgement.name: verdict.judgement.value})
        read = {"elements": evaluation.elements} | ({} if verdict is None else {"rows": verdict.rows})
        self._metrics.write({"event": "validation", "step": step} | read | figures | {"best": best})
        self._events("validation", figures, step)

    def watch(self, step: int, look: dict[str, Any]) -> None:
        """How gradients flow back through time, as `gradient_watch.record` makes it."""
        self._metrics.write({"event": "watch", "step": step} | look)
        for index, layer in enumerate(look["layers"]):
            ratios = dict(zip(look["distances"], layer["relative"], strict=True))
            shown = {f"distance_{k}": ratio for k, ratio in ratios.items() if k & (k - 1) == 0}  # the same in all looks
            reach = layer["reach"] or look["distances"][-1] + 1
            self._events(f"gradient_layer_{index}", {"norm": layer["norm"], "reach": reach} | shown, step)

    def warning(self, step: int, about: str, text: str) -> None:
        """What the person watching was warned of."""
        self._metrics.write({"event": "warning", "step": step, "about": about, "text": text})
        if self._writer is not None:
            self._writer.add_text("warning", text, step)

    def timing(self, step: int, **seconds: float) -> None:
        """What the clock says."""
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
        self._file = path.open("ab", buffering=0)

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


def _drop_later(path: Path, position: Position) -> None:
    limits = {event: position.validated if event == "validation" else position.step for event in _EVENTS}
    with replacing(path) as partial, partial.open("wb") as kept:
        if position.step > 0 and path.exists():
            with path.open("rb") as lines:
                for line in lines:
                    record = _parse(line)
                    if record is not None and record["step"] <= limits[record["event"]]:
                        kept.write(line)


def _parse(line: bytes) -> dict[str, Any] | None:
    """None for the line that a killed process did not finish."""
    if not line.endswith(b"\n"):
        return None
    try:
        record: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return record if record.get("event") in _EVENTS else None


def _tensorboard(directory: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError(
            "tensorboard: expected the package, which is not installed: pip install 'chainrule[tensorboard]'"
        ) from error
    return SummaryWriter(str(directory / "tensorboard"), purge_step=step + 1 if step else None)
