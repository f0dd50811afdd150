"""Figures of a run: to the guard, to the files of figures, and to the person watching."""

import sys
import textwrap
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from chainrule._printing import printable
from chainrule.training._callbacks import Ending
from chainrule.training._duration import Position
from chainrule.training._evaluate import Evaluation, bits
from chainrule.training._gradient_monitor import GradientAlarms, GradientWarning, Guard, Profile, record
from chainrule.training._metrics import Metrics
from chainrule.training._validation import Findings, MetricResult, Preview


class Display(ABC):
    """Shows a run while it lasts. Figures come often; a subclass decides how often it draws them."""

    def step(self, step: int, progress: float, nats_per_element: float, rate: float, seconds_left: float) -> None:
        """Show the fraction done, nats per element of the last steps, elements per second and the time left."""
        nats = f"{nats_per_element:.3f} nats {bits(nats_per_element):.3f} bits/element"
        self._draw(progress, f"step {step:,}  {nats}  {rate:,.0f} elements/s  {_clock(seconds_left)} left")

    def validation(
        self, step: int, evaluation: Evaluation, verdict: MetricResult | None = None, *, best: bool, sample: str | None
    ) -> None:
        """Show the result of a validation, and a text with it."""
        self.note(_validation_line(step, evaluation, verdict, best), "bold" if best else "")
        if sample:
            self.note(textwrap.indent(printable(sample), "    "), "dim")

    @abstractmethod
    def _draw(self, progress: float, figures: str) -> None: ...

    @abstractmethod
    def note(self, text: str, style: str = "") -> None:
        """Print a line, in a style where the screen has styles."""

    def close(self) -> None:
        """Leave the screen as it should stay."""
        return


@dataclass(frozen=True)
class StepFigures:
    """A step, its loss and norm still on the device."""

    step: int
    elements: int
    batch_elements: int
    nats: Tensor
    gradient_norm: Tensor
    learning_rate: float
    progress: float


class Report:
    """Collects the figures of steps and passes them on, on a GPU several at once: reading one makes the GPU wait.

    Args:
        metrics: the files; None in processes that write none.
        display: shown to the user.
        guard: stops the run at the first figure that is not finite.
        alarms: warn of gradients that vanish or explode.
        device: where the figures come from.
    """

    def __init__(
        self, metrics: Metrics | None, display: Display, guard: Guard, alarms: GradientAlarms, device: torch.device
    ):
        self._metrics, self._display, self._guard, self._alarms = metrics, display, guard, alarms
        self._at_once = 1 if device.type == "cpu" else 16
        self._pending: list[StepFigures] = []
        self._recent: deque[tuple[float, int, float]] = deque(maxlen=32)  # seconds, elements, nats
        self._mark = monotonic()

    def step(self, figures: StepFigures, training_seconds: float, *, now: bool = False) -> float | None:
        """Take a step's figures, to be read `now` or together; seconds a step, where newly measured.

        Raises:
            NonFiniteLossError: a loss or a gradient is not finite.
        """
        self._pending.append(figures)
        if len(self._pending) < self._at_once and not now:
            return None
        count = len(self._pending)
        read = self.flush()
        mark = monotonic()
        seconds, self._mark = mark - self._mark, mark
        self._recent.append((seconds, read.elements, read.nats))
        self._draw(figures, training_seconds)
        return seconds / count

    def flush(self) -> Evaluation:
        """Read and pass on all figures, and return their sum; raises as `step` does."""
        pending, self._pending = self._pending, []
        if not pending:
            return Evaluation(0.0, 0)
        values = torch.stack([torch.stack((figures.nats, figures.gradient_norm)) for figures in pending]).tolist()
        for figures, (nats, norm) in zip(pending, values, strict=True):
            self._guard.step(figures.step, nats, norm, figures.learning_rate)
            if self._metrics is not None:
                batch = Evaluation(nats, figures.batch_elements)
                self._metrics.step(figures.step, figures.elements, batch, norm, figures.learning_rate)
            warning = self._alarms.step(figures.step, norm)
            if warning is not None:
                self._warn(figures.step, warning)
        return Evaluation(sum(nats for nats, _ in values), sum(figures.batch_elements for figures in pending))

    def watch(self, step: int, profiles: list[Profile]) -> None:
        """Pass on a look at the gradients of a step whose figures were read."""
        if self._metrics is not None:
            self._metrics.watch(step, record(profiles))
        for warning in self._alarms.look(profiles):
            self._warn(step, warning)

    def validation(
        self,
        position: Position,
        evaluation: Evaluation,
        verdict: MetricResult | None,
        findings: Findings | None,
        *,
        best: bool,
        preview: Preview | None,
    ) -> None:
        """Pass on the result of a validation."""
        if self._metrics is not None:
            self._metrics.validation(position.step, evaluation, verdict, findings, best=best)
            if preview is not None:
                self._metrics.sample(position.step, preview)
        shown = (preview, None if verdict is None else verdict.metric, findings)
        sample = "\n".join(part.text for part in shown if part is not None and part.text) or None
        self._display.validation(position.step, evaluation, verdict, best=best, sample=sample)
        if findings is not None and findings.warning:
            self._display.note(f"step {position.step:,}  warning: {findings.warning}")

    def timing(self, position: Position, *, start_up_seconds: float, validating_seconds: float) -> None:
        """Write down where the time went until the end of a validation.

        Args:
            position: its `elapsed` and `training_seconds` are of the whole run.
            start_up_seconds: all that came before the first step of this process.
            validating_seconds: of this validation, its saving left out.
        """
        if self._metrics is not None:
            self._metrics.timing(
                position.step,
                elapsed=position.elapsed,
                start_up_seconds=start_up_seconds,
                training_seconds=position.training_seconds,
                validating_seconds=validating_seconds,
                saving_seconds=position.saving_seconds,
                training_elements_per_second=self._rate(),
            )

    def note(self, text: str) -> None:
        """Tell the person watching."""
        self._display.note(text)

    def sync(self) -> None:
        """Return when all figures are on the disk."""
        self.flush()
        if self._metrics is not None:
            self._metrics.sync()

    def resume_clock(self) -> None:
        """Leave the time since the last step out of the speed: it was not spent on training."""
        self._mark = monotonic()

    def close(self, ending: Ending) -> None:
        """Close files and screen."""
        self._display.close()
        if self._metrics is not None:
            self._metrics.close(ending)

    def _warn(self, step: int, warning: GradientWarning) -> None:
        if self._metrics is not None:
            self._metrics.warning(step, warning.about, warning.text)
        self._display.note(f"step {step:,}  warning: {warning.text}")

    def _draw(self, figures: StepFigures, training_seconds: float) -> None:
        left = training_seconds * (1 - figures.progress) / figures.progress
        recent = Evaluation(sum(nats for _, _, nats in self._recent), sum(elements for _, elements, _ in self._recent))
        self._display.step(figures.step, figures.progress, recent.nats_per_element, self._rate(), left)

    def _rate(self) -> float:
        """Elements per second over the last steps, everything but training left out."""
        seconds = sum(seconds for seconds, _, _ in self._recent)
        return sum(elements for _, elements, _ in self._recent) / seconds if seconds else 0.0


class Silent(Display):
    """Shows nothing."""

    def _draw(self, progress: float, figures: str) -> None:
        pass

    def note(self, text: str, style: str = "") -> None:
        pass


class Lines(Display):
    """Plain lines on standard error, where no terminal is: one every ten seconds, and each validation."""

    def __init__(self, every: float = 10.0):
        self._every = every
        self._next = monotonic() + every

    def _draw(self, progress: float, figures: str) -> None:
        if monotonic() >= self._next:
            self._next = monotonic() + self._every
            self.note(f"{progress:4.0%}  {figures}")

    def note(self, text: str, style: str = "") -> None:
        print(text, file=sys.stderr, flush=True)


class Bar(Display):
    """A progress bar on a terminal, with each validation written above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        self._console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.description}", markup=False),
            console=self._console,
            refresh_per_second=4,
        )
        self._task: Any = self._bar.add_task("starting", total=1.0)
        self._bar.start()

    def _draw(self, progress: float, figures: str) -> None:
        self._bar.update(self._task, completed=progress, description=figures)

    def note(self, text: str, style: str = "") -> None:
        self._console.print(text, style=style or None, markup=False)

    def close(self) -> None:
        self._bar.stop()


def make_display(*, shown: bool) -> Display:
    """A curve in a notebook, a bar on a terminal, plain lines elsewhere, nothing where it is not wanted."""
    from chainrule.training._live import LiveCurve, in_notebook

    if not shown:
        return Silent()
    if in_notebook():
        return LiveCurve()
    return Bar() if sys.stderr.isatty() else Lines()


def _validation_line(step: int, evaluation: Evaluation, verdict: MetricResult | None, best: bool) -> str:
    figures = f"{evaluation.nats_per_element:.4f} nats {evaluation.bits_per_element:.4f} bits/element"
    measured = ""
    if verdict is not None:
        part = "" if verdict.whole else f" ({verdict.rows:,} rows)"
        measured = f"  {verdict.metric.name} {verdict.metric.value:.4g}{part}"
    mark = ""
    if best:
        mark = "  best so far" if verdict is None or not verdict.margin else "  kept"
    return f"step {step:,}  held out: {figures}{measured}{mark}"


def _clock(seconds: float) -> str:
    """
    >>> _clock(61), _clock(3723)
    ('1:01', '1:02:03')
    """
    minutes, second = divmod(max(0, round(seconds)), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"
