"""The report of `chainrule inspect` on a model with a code, of images, of rows of a table or of sentences."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from chainrule.data.images.source import Pixels
from chainrule.diagnostics.active_units import LatentUse
from chainrule.diagnostics.principal_plane import principal_plane
from chainrule.diagnostics.report.render import render

MOST_DIMENSIONS = 24  # in the table
# Told apart by most who see few colours, on a light and on a dark page (after Okabe and Ito 2008).
_COLOURS = (
    "#0072b2",
    "#d98c00",
    "#009e73",
    "#cc79a7",
    "#d55e00",
    "#56b4e9",
    "#a89a00",
    "#8c564b",
    "#7a52c7",
    "#6b8e23",
)
_OTHERS = "#888888"
_SIDE = 640.0  # units of the map's longer side
_MARGIN = 12.0


@dataclass(frozen=True)
class Cells:
    """A table to show: rows of text under headings.

    Args:
        headings: of the columns.
        rows: cells.
        shares: of each row, the length of a bar before its last cell, from 0 to 1; `None` draws none.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    shares: Sequence[float] | None = None


Exhibit = Pixels | Cells


@dataclass(frozen=True)
class Traversal:
    """One dimension of the code, from one end of its range to the other.

    Args:
        dimension: its number.
        strip: images side by side, or a row of text for each step.
    """

    dimension: int
    strip: Exhibit


@dataclass(frozen=True)
class CodeReport:
    """Everything that the page shows.

    Args:
        title: the name of the run.
        model: a line about it.
        noun: name of one input: image, row, sentence.
        use: that the model makes of its code.
        pairs: inputs and their reconstructions.
        pairs_words: sentences about them.
        error: of the reconstructions: of each pixel, drawn, or by column or position.
        error_words: sentences about it.
        traversals: of the active dimensions.
        traversal_words: sentences about them.
        labels: the label of each input; `None` where none is known.
        labelled_by: name of the labels.
        command: makes the page again.
    """

    title: str
    model: str
    noun: str
    use: LatentUse
    pairs: Exhibit
    pairs_words: str
    error: Exhibit
    error_words: str
    traversals: Sequence[Traversal]
    traversal_words: str
    labels: Sequence[str] | None
    labelled_by: str
    command: str


def code_page(report: CodeReport) -> str:
    """The whole page; the same arguments give the same page."""
    plane, shares = principal_plane(report.use.codes)
    keys = _keys(report.labels)
    known = report.labels or [""] * len(plane)
    points, height = _points(plane)
    return render(
        "code.html",
        report=report,
        rows=_rows(report.use),
        left_out=max(len(report.use.variances) - MOST_DIMENSIONS, 0),
        points=[(x, y, keys.get(label, _OTHERS)) for (x, y), label in zip(points, known, strict=True)],
        keys=keys.items(),
        height=height,
        width=_SIDE,
        shares=shares,
    )


def _rows(use: LatentUse) -> list[tuple[int, float | None, float, bool, float]]:
    """Number, KL, variance, whether it is active, and the share of the greatest, of the dimensions with most."""
    weight = use.variances if use.kl is None else use.kl
    most = max(float(weight.max()), 1e-12)
    return [
        (
            place,
            None if use.kl is None else float(use.kl[place]),
            float(use.variances[place]),
            bool(use.active[place]),
            100 * float(weight[place]) / most,
        )
        for place in weight.argsort(descending=True, stable=True).tolist()[:MOST_DIMENSIONS]
    ]


def _keys(labels: Sequence[str] | None) -> dict[str, str]:
    """The colour of each label, of the first ones where there are many."""
    names = sorted(
        set(labels or ()), key=lambda name: (not name.isdecimal(), name.zfill(9) if name.isdecimal() else name)
    )
    return dict(zip(names, _COLOURS, strict=False))


def _points(plane: Tensor) -> tuple[list[tuple[float, float]], float]:
    """Where each code is drawn, both axes in one scale, and the height of the map."""
    low, high = plane.min(0).values, plane.max(0).values
    spans = (high - low).clamp_min(1e-9)
    scale = (_SIDE - 2 * _MARGIN) / float(spans.max())
    width, height = (float(span) * scale for span in spans)
    left = (_SIDE - width) / 2
    above = max(0.0, _SIDE / 8 - _MARGIN - height / 2)  # codes in a line are to be seen too
    bottom = above + height + _MARGIN
    points = [(round(left + x, 1), round(bottom - y, 1)) for x, y in ((plane - low) * scale).tolist()]
    return points, bottom + above + _MARGIN
