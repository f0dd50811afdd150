"""Progress of a run on the screen."""

import sys
import textwrap
from abc import ABC, abstractmethod
from time import monotonic
from typing import Any

from chainrule.training import units
from chainrule.training.evaluate import Evaluation
from chainrule.training.validation_metric import Verdict


class Display(ABC):
    """Shows a run while it lasts. Figures come often; a subclass decides how often it draws them."""

    def step(self, step: int, progress: float, nats_per_element: float, rate: float, seconds_left: float) -> None:
        """Show the fraction done, nats per element of the last steps, elements per second and the time left."""
        nats = f"{nats_per_element:.3f} nats {units.bits(nats_per_element):.3f} bits/element"
        self._draw(progress, f"step {step:,}  {nats}  {rate:,.0f} elements/s  {_clock(seconds_left)} left")

    def validation(
        self, step: int, evaluation: Evaluation, verdict: Verdict | None = None, *, best: bool, sample: str | None
    ) -> None:
        """Show the result of a validation, and a text with it."""
        self.note(_validation_line(step, evaluation, verdict, best), "bold" if best else "")
        if sample:
            self.note(_indented(sample), "dim")

    @abstractmethod
    def _draw(self, progress: float, figures: str) -> None: ...

    @abstractmethod
    def note(self, text: str, style: str = "") -> None:
        """Print a line, in a style where the screen has styles."""

    def close(self) -> None:
        """Leave the screen as it should stay."""
        return


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
    """A bar on a terminal, plain lines elsewhere, nothing where it is not wanted."""
    if not shown:
        return Silent()
    return Bar() if sys.stderr.isatty() else Lines()


def _validation_line(step: int, evaluation: Evaluation, verdict: Verdict | None, best: bool) -> str:
    figures = f"{evaluation.nats_per_element:.4f} nats {evaluation.bits_per_element:.4f} bits/element"
    measured = ""
    if verdict is not None:
        part = "" if verdict.whole else f" ({verdict.rows:,} rows)"
        measured = f"  {verdict.metric.name} {verdict.metric.value:.4g}{part}"
    mark = "  best so far" if best else ""
    return f"step {step:,}  held out: {figures}{measured}{mark}"


def _indented(sample: str) -> str:
    """A model may draw anything: control characters would reach the terminal as commands."""
    shown = "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in sample)
    return textwrap.indent(shown, "    ")


def _clock(seconds: float) -> str:
    """
    >>> _clock(61), _clock(3723)
    ('1:01', '1:02:03')
    """
    minutes, second = divmod(max(0, round(seconds)), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"
