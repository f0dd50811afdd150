"""A live learning curve in a notebook while a run trains."""

import html
import sys
from time import monotonic
from typing import Any

from chainrule.training._evaluate import Evaluation
from chainrule.training._report import Display
from chainrule.training._validation import MetricResult

_WIDTH, _HEIGHT, _MARGIN = 480.0, 200.0, 36.0
_MOST_POINTS, _REDRAW_SECONDS = 240, 0.5
_TRAINING, _VALIDATION = "#0072b2", "#d55e00"


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None


class LiveCurve(Display):
    """A curve that grows: nats per element in training as a line, at validations as dots."""

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
        if len(self._training) > 2 * _MOST_POINTS:  # evenly thinned, so that memory stays bounded
            self._training = self._training[::2]
        super().step(step, progress, nats_per_element, rate, seconds_left)

    def validation(
        self, step: int, evaluation: Evaluation, verdict: MetricResult | None = None, *, best: bool, sample: str | None
    ) -> None:
        self._validations.append((step, evaluation.nats_per_element))
        super().validation(step, evaluation, verdict, best=best, sample=None)

    def page(self) -> str:
        """The curve and the last lines as HTML."""
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
    """An SVG of nats per element by step: a line for training, dots for validations.

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

    def place(step: int, nats: float) -> tuple[str, str]:
        return f"{_MARGIN + wide * step:.1f}", f"{_HEIGHT - _MARGIN - tall * (nats - low):.1f}"

    line = " ".join(",".join(place(*point)) for point in training)
    dots = "".join(
        '<circle cx="{}" cy="{}" r="3.5" fill="{}"><title>step {}: {:.4f} nats</title></circle>'.format(
            *place(*point), _VALIDATION, *point
        )
        for point in validations
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
