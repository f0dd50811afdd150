"""The figures of a run, as JSON lines and for callbacks."""

import errno
import json
import math
import os
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chainrule.data._atomic import replacing
from chainrule.training._callbacks import Callback, Ending
from chainrule.training._duration import Position
from chainrule.training._evaluate import Evaluation
from chainrule.training._records import EVENTS, METRICS, SAMPLES, TIMINGS, lines_of, parse_record, read_samples
from chainrule.training._validation import Findings, MetricResult, Preview

_SAMPLE_SPACING = 1.05  # of the steps of two samples that are kept
_LONGEST_SAMPLE = 2000  # characters


class Metrics:
    """Writes `metrics.jsonl`, which holds only what the run computes, and `timings.jsonl`, which holds the clock.

    Two runs of the same steps write the same `metrics.jsonl`, however often they were interrupted: lines beyond the
    checkpoint that a run continues from are dropped, and written again.

    Args:
        directory: the run directory.
        position: where the run begins; lines after it are dropped.
        callbacks: receive the same figures.
        samples: keep samples in `samples.jsonl`, few of them where validations are many.

    Raises:
        OSError: the directory cannot be written to.
    """

    def __init__(
        self, directory: Path, position: Position, callbacks: Sequence[Callback] = (), *, samples: bool = False
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
        for callback in self._callbacks:
            callback.text(step, "warning", text)

    def sample(self, step: int, preview: Preview) -> None:
        """A sample drawn at a validation; of many only as many as grow with the logarithm of the steps are kept."""
        for callback in self._callbacks if preview.text and not preview.png else ():
            callback.text(step, "sample", preview.text)
        if self._samples is not None and step >= _SAMPLE_SPACING * self._last_sample:
            self._last_sample = step
            record = {"step": step, "text": "" if preview.png else preview.text[:_LONGEST_SAMPLE]}
            self._samples.write(record | ({"png": b64encode(preview.png).decode()} if preview.png else {}))

    def timing(self, step: int, **seconds: float) -> None:
        """Times by the clock."""
        self._timings.write({"step": step} | seconds)
        self._events("timing", seconds, step)

    def sync(self) -> None:
        """Return when all lines are on the disk: a checkpoint must not be ahead of them."""
        self._metrics.sync()

    def close(self, ending: Ending) -> None:
        """Close the files, and tell the callbacks what ended the run."""
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


def _drop_later(path: Path, position: Position) -> None:
    limits = {event: position.validated if event == "validation" else position.step for event in EVENTS}
    with replacing(path) as partial, partial.open("wb") as kept:
        if position.step > 0 and path.exists():
            with path.open("rb") as file:
                for line in lines_of(file):
                    record = parse_record(line)
                    if record is not None and record["step"] <= limits[record["event"]]:
                        kept.write(line)


def _drop_later_samples(path: Path, position: Position) -> int:
    """Drop samples that come again; returns the step of the last one that stays, 0 without any."""
    kept = [sample for sample in read_samples(path) if sample["step"] <= position.validated] if position.step else []
    if path.exists():
        with replacing(path) as partial:
            partial.write_text("".join(json.dumps(sample) + "\n" for sample in kept), encoding="utf-8")
    return max((sample["step"] for sample in kept), default=0)
