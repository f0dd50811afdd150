"""Reports of a run to the guard, the metrics files and the display."""

import errno
import html
import sys
import textwrap
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from time import monotonic
from typing import Any, TextIO, cast

import torch
from torch import Tensor

from chainrule.printing import printable
from chainrule.training._callbacks import Ending
from chainrule.training._duration import Position
from chainrule.training._evaluate import Evaluation, bits
from chainrule.training._gradient_monitor import GradientAlarms, GradientWarning, Guard, Profile, record
from chainrule.training._measurements import MetricResult
from chainrule.training._metrics import Metrics
from chainrule.training._validation import Findings, Preview


class Display:
    """Display that shows nothing; subclasses draw, and decide how often."""

    def step(self, step: int, progress: float, nats_per_element: float, rate: float, seconds_left: float) -> None:
        """Show the progress, nats per element of the last steps, elements per second and the remaining time."""
        nats = f"{nats_per_element:.3f} nats {bits(nats_per_element):.3f} bits/element"
        self._draw(progress, f"step {step:,}  {nats}  {rate:,.0f} elements/s  {_clock(seconds_left)} left")

    def validation(
        self, step: int, evaluation: Evaluation, verdict: MetricResult | None = None, *, best: bool, sample: str | None
    ) -> None:
        """Show the result of a validation and a sample."""
        self.note(_validation_line(step, evaluation, verdict, best), "bold" if best else "")
        if sample:
            self.note(textwrap.indent(printable(sample), "    "), "dim")

    def _draw(self, progress: float, figures: str) -> None:
        """Show the figures of a step."""

    def note(self, text: str, style: str = "") -> None:
        """Print a line, with a style if the display supports it."""

    def close(self) -> None:
        """Draw the final state."""


@dataclass(frozen=True)
class StepFigures:
    """Metrics of a step, with loss and norm still on the device."""

    step: int
    elements: int
    batch_elements: int
    nats: Tensor
    gradient_norm: Tensor
    learning_rate: float
    progress: float


class Report:
    """Collector of step metrics, which it reads several at a time on a GPU, because reading synchronises the device.

    Args:
        metrics: the metrics files; None in processes that write none.
        display: the display.
        guard: stops the run at the first non-finite number.
        alarms: warn of gradients that vanish or explode.
        device: device of the metrics.
    """

    def __init__(
        self, metrics: Metrics | None, display: Display, guard: Guard, alarms: GradientAlarms, device: torch.device
    ):
        self._metrics, self._display, self._guard, self._alarms = metrics, display, guard, alarms
        self._at_once = 1 if device.type == "cpu" else 16
        self._pending: list[StepFigures] = []
        self._recent: deque[tuple[float, int, float]] = deque(maxlen=32)  # seconds, elements, nats
        self._mark = monotonic()
        self._last_warning = ""

    def step(self, figures: StepFigures, training_seconds: float, *, now: bool = False) -> float | None:
        """Add a step's metrics, read `now` or together with later ones; return seconds per step if measured."""
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
        """Read and forward all pending metrics, and return their sum."""
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
        """Forward a gradient measurement."""
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
        """Forward the result of a validation."""
        if self._metrics is not None:
            self._metrics.validation(position.step, evaluation, verdict, findings, best=best)
            if preview is not None:
                self._metrics.sample(position.step, preview)
        parts = (preview, None if verdict is None else verdict.metric, findings)
        sample = "\n".join(part.text for part in parts if part is not None and part.text) or None
        self._display.validation(position.step, evaluation, verdict, best=best, sample=sample)
        warning = "" if findings is None else findings.warning
        if warning and warning != self._last_warning:
            self._display.note(f"step {position.step:,}  warning: {warning}")
        self._last_warning = warning

    def timing(
        self, position: Position, *, progress: float, start_up_seconds: float, validating_seconds: float
    ) -> None:
        """Write the timings up to the end of a validation."""
        if self._metrics is not None:
            self._metrics.timing(
                position.step,
                progress=min(progress, 1.0),
                elapsed=position.elapsed,
                start_up_seconds=start_up_seconds,
                training_seconds=position.training_seconds,
                validating_seconds=validating_seconds,
                saving_seconds=position.saving_seconds,
                training_elements_per_second=self._rate(),
            )

    def note(self, text: str) -> None:
        """Show a line."""
        self._display.note(text)

    def sync(self) -> None:
        """Flush all metrics to the disk."""
        self.flush()
        if self._metrics is not None:
            self._metrics.sync()

    def resume_clock(self) -> None:
        """Exclude the time since the last step from the speed."""
        self._mark = monotonic()

    def close(self, ending: Ending) -> None:
        """Close the files and the display."""
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
        """Return the elements per second of training over the last steps."""
        seconds = sum(seconds for seconds, _, _ in self._recent)
        return sum(elements for _, elements, _ in self._recent) / seconds if seconds else 0.0


@contextmanager
def _unless_closed() -> Iterator[None]:
    """Ignore that the terminal was closed: the run goes on, or is being saved."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise


class _Terminal:
    """A terminal that may be closed while the run goes on."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        with _unless_closed():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with _unless_closed():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Lines(Display):
    """Display of plain lines on standard error, without a terminal: one every ten seconds, and each validation."""

    def __init__(self, every: float = 10.0):
        self._every = every
        self._next = monotonic() + every

    def _draw(self, progress: float, figures: str) -> None:
        if monotonic() >= self._next:
            self._next = monotonic() + self._every
            self.note(f"{progress:4.0%}  {figures}")

    def note(self, text: str, style: str = "") -> None:
        with _unless_closed():
            print(text, file=sys.stderr, flush=True)


class Bar(Display):
    """Display of a progress bar on a terminal, with validations above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        self._console = Console(file=cast(TextIO, _Terminal(sys.stderr)), highlight=False)
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


def make_display(*, enabled: bool) -> Display:
    """Choose a display: a curve in a notebook, a bar on a terminal where rich is installed, plain lines elsewhere."""
    if not enabled:
        return Display()
    if in_notebook():
        return LiveCurve()
    return Bar() if sys.stderr.isatty() and find_spec("rich") is not None else Lines()


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


_WIDTH, _HEIGHT, _MARGIN = 480.0, 200.0, 36.0
_MOST_POINTS, _REDRAW_SECONDS = 240, 0.5
_TRAINING, _VALIDATION = "#0072b2", "#d55e00"


def in_notebook() -> bool:
    """Return true if this process is the kernel of a notebook."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None


class LiveCurve(Display):
    """Display of a learning curve in a notebook: training as a line, validations as dots."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._html = HTML
        self._training: list[tuple[int, float]] = []
        self._validations: list[tuple[int, float]] = []
        self._lines: list[str] = []
        self._figures, self._drawn = "starting", 0.0
        self._handle: Any = display(HTML(self.page()), display_id=True)

    def step(self, step: int, progress: float, nats_per_element: float, rate: float, seconds_left: float) -> None:
        self._training.append((step, nats_per_element))
        if len(self._training) > 2 * _MOST_POINTS:  # drop every second point, to bound the memory
            self._training = self._training[::2]
        super().step(step, progress, nats_per_element, rate, seconds_left)

    def validation(
        self, step: int, evaluation: Evaluation, verdict: MetricResult | None = None, *, best: bool, sample: str | None
    ) -> None:
        self._validations.append((step, evaluation.nats_per_element))
        super().validation(step, evaluation, verdict, best=best, sample=None)

    def page(self) -> str:
        """Render the curve and the last lines as HTML."""
        lines = "<br>".join(html.escape(line) for line in [*self._lines[-3:], self._figures])
        return f"{curve(self._training, self._validations)}<pre style='margin:0'>{lines}</pre>"

    def note(self, text: str, style: str = "") -> None:
        self._lines.append(text)
        self._show()

    def close(self) -> None:
        self._show()

    def _draw(self, progress: float, figures: str) -> None:
        self._figures = f"{progress:4.0%}  {figures}"
        if monotonic() - self._drawn > _REDRAW_SECONDS:
            self._show()

    def _show(self) -> None:
        self._drawn = monotonic()
        self._handle.update(self._html(self.page()))


def curve(training: list[tuple[int, float]], validations: list[tuple[int, float]]) -> str:
    """Draw nats per element by step as SVG: a line for training, dots for validations.

    >>> svg = curve([(1, 3.0), (2, 2.0)], [(2, 2.5)])
    >>> svg.count("<polyline"), svg.count("<circle"), "2.5" in svg
    (1, 3, True)
    """
    points = [*training, *validations]
    if not points:
        return ""
    last = max(step for step, _ in points)
    low, high = min(nats for _, nats in points), max(nats for _, nats in points)
    wide, tall = (_WIDTH - 2 * _MARGIN) / last, (_HEIGHT - 2 * _MARGIN) / ((high - low) or 1.0)

    def point(step: int, nats: float) -> tuple[str, str]:
        return f"{_MARGIN + wide * step:.1f}", f"{_HEIGHT - _MARGIN - tall * (nats - low):.1f}"

    line = " ".join(",".join(point(*each)) for each in training)
    dots = "".join(
        '<circle cx="{}" cy="{}" r="3.5" fill="{}"><title>step {}: {:.4f} nats</title></circle>'.format(
            *point(*each), _VALIDATION, *each
        )
        for each in validations
    )
    legend = (("training", _TRAINING, _WIDTH - 150), ("validation", _VALIDATION, _WIDTH - 80))
    words = "".join(
        f'<circle cx="{x - 8:g}" cy="14" r="3.5" fill="{colour}"/><text x="{x:g}" y="18">{name}</text>'
        for name, colour, x in legend[: 1 + bool(validations)]
    )
    return (
        f'<svg role="img" aria-label="learning curve, nats per element by step" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" '
        f'style="max-width:{_WIDTH:g}px;width:100%" font-family="sans-serif" font-size="11" fill="currentColor">'
        f'<text x="2" y="18">{high:.3g} nats/element</text><text x="2" y="{_HEIGHT - 22:g}">{low:.3g}</text>'
        f'<text x="{_WIDTH - _MARGIN:g}" y="{_HEIGHT - 6:g}" text-anchor="end">step {last:,}</text>'
        f'<polyline points="{line}" fill="none" stroke="{_TRAINING}" stroke-width="1.5"/>{dots}{words}</svg>'
    )
