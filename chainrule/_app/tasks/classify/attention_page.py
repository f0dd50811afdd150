"""Texts with their words shaded by attention, as a page or an image."""

from collections.abc import Sequence
from math import exp
from typing import TYPE_CHECKING

from markupsafe import Markup

from chainrule._app.pages.page import Page, Text, marked
from chainrule._app.tasks.classify.labelling import LabelledAnswer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DARKEST = 5  # times an even share
_COLUMNS = 90  # characters of a line of an image


_LEGEND = (
    "Darker words receive more attention: pale words an even share of their text, the darkest five times as much or "
    "more. Point at a word for its share."
)


def attention_page(answers: Sequence[LabelledAnswer], names: Sequence[str], lead: str) -> Page:
    """Build a page of texts whose words are shaded by attention."""
    texts = [Text(_shaded(answer, names[answer.best]), "attended") for answer in answers]
    return Page("Where the classifier looked", lead, [Text(_LEGEND, "legend"), *texts])


def _shaded(answer: LabelledAnswer, label: str) -> Markup:
    assert answer.attention is not None
    words = [
        marked('<i style="--a:{:.0f}%" title="{:.3f}">{}</i>', 100 * strength, weight, token)
        for token, weight, strength in zip(answer.tokens, answer.attention, _strengths(answer.attention), strict=True)
    ] or [Markup('<small class="note">empty: label frequencies of training</small>')]
    head = '<b>{}</b> {:.1f}% <small class="note">line {}</small><br>'
    return marked(head, label, 100 * exp(answer.log_probs[answer.best]), answer.row.line) + Markup("\n").join(words)


def attention_figure(answers: Sequence[LabelledAnswer], names: Sequence[str]) -> "Figure":
    """Draw the shaded texts with matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError(
            "--plot: images require matplotlib: pip install matplotlib, or name a file that ends in .html"
        ) from None
    rows: list[tuple[int, float, str, float]] = []  # column, line, word, strength
    line = 0.0
    for answer in answers:
        assert answer.attention is not None
        rows.append((0, line, f"{names[answer.best]} {exp(answer.log_probs[answer.best]):.1%}", -1))
        line, column = line + 1, 0
        for token, strength in zip(answer.tokens, _strengths(answer.attention), strict=True):
            if column and column + len(token) > _COLUMNS:
                line, column = line + 1, 0
            rows.append((column, line, token, strength))
            column += len(token) + 1
        line += 1.6
    figure = Figure(figsize=(10, max(0.26 * line + 0.2, 1)))
    figure.set_layout_engine("none")  # whatever the settings of the user are
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.01, 0, 0.98, 1))
    axes.set(xlim=(0, _COLUMNS + 2), ylim=(line, -0.6))
    axes.axis("off")
    for column, at, word, strength in rows:
        shade = None if strength < 0 else {"facecolor": (0.12, 0.44, 0.92, strength), "linewidth": 0, "pad": 1.5}
        weight = "bold" if strength < 0 else "normal"
        text = word.replace("$", r"\$")  # no mathematics
        axes.text(column, at, text, family="monospace", size=9, va="center", bbox=shade, weight=weight)
    return figure


def _strengths(weights: Sequence[float]) -> list[float]:
    """Scale weights to opacities: 0.8 from five times an even share, proportional below.

    >>> [round(strength, 3) for strength in _strengths([0.125] * 8)] == [0.16] * 8, _strengths([0.75, 0.25, 0, 0, 0, 0])
    (True, [0.72, 0.24, 0.0, 0.0, 0.0, 0.0])
    """
    return [round(0.8 * min(weight * len(weights) / _DARKEST, 1.0), 3) for weight in weights]
