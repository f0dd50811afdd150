"""The report of an inspection: one HTML page that needs nothing else, neither a network nor scripts."""

import math
from dataclasses import dataclass

from torch import Tensor

from chainrule.diagnostics.clipping import Clipping
from chainrule.diagnostics.inspection import Inspection
from chainrule.diagnostics.report.layer_figures import layer_table
from chainrule.diagnostics.report.plots import clipping_plot, layer_plots
from chainrule.diagnostics.report.read_text import ReadText
from chainrule.diagnostics.report.render import render
from chainrule.diagnostics.report.rules import RULES
from chainrule.diagnostics.report.surprise_text import surprise_text
from chainrule.diagnostics.report.traces import traces


@dataclass(frozen=True)
class Subject:
    """The run that is inspected, in words.

    Args:
        title: the name of the run.
        model: a line about it.
        command: makes the page again.
    """

    title: str
    model: str
    command: str


def report_page(inspection: Inspection, read: ReadText, subject: Subject, clipping: Clipping | None = None) -> str:
    """The whole page. The same arguments give the same page; all that comes from the text is escaped.

    Args:
        inspection: of a model's recurrence on the rows of `read`.
        read: the text, row for row.
        subject: the run.
        clipping: of the training; `None` where it is unknown.

    Raises:
        ImportError: matplotlib is missing.
    """
    layers, surprise = range(len(inspection.layers)), inspection.surprise
    given = dict.fromkeys(layer.verdict.rule for layer in inspection.layers)
    return render(
        "recurrence.html",
        inspection=inspection,
        read=read,
        subject=subject,
        reading=reading_line(read, inspection.flow.lengths, mean_surprise(inspection)),
        remarks=remarks(inspection, read),
        table=layer_table(inspection),
        plots=[layer_plots(inspection, index) for index in layers],
        traces=[traces(inspection, index, read) for index in layers],
        clipping=clipping,
        clipping_plot=None if clipping is None else clipping_plot(clipping),
        surprise=None if surprise is None else surprise_text(surprise, read, inspection.flow.lengths),
        rules={name: RULES[name] for name in [*given, *(name for name in RULES if name not in given)]},
    )


def reading_line(read: ReadText, lengths: Tensor, bits: float) -> str:
    """The text that was read, and how surprising it was.

    Args:
        read: the text.
        lengths: (B,) elements of its rows.
        bits: per element; NaN where they are unknown.
    """
    rows, count, longest = len(lengths), int(lengths.sum()), int(lengths.max())
    each = f"{longest}" if rows * longest == count else f"up to {longest}"
    elements = "pieces of words" if read.level == "bpe" else f"{read.element}s"
    shape = f"{rows} row{'s' * (rows != 1)} of {each}, {count:,} {elements}"
    return f"{read.name}: {shape}" + ("" if math.isnan(bits) else f", {bits:.3f} bits each")


def mean_surprise(inspection: Inspection) -> float:
    """Bits per element over the rows that are finite; NaN for a bare layer."""
    if inspection.surprise is None:
        return math.nan
    total, count = 0.0, 0
    for row, length in enumerate(inspection.flow.lengths.tolist()):
        bits: Tensor = inspection.surprise[row, :length].double()
        if bits.isfinite().all():
            total, count = total + float(bits.sum()), count + length
    return total / count if count else math.nan


def remarks(inspection: Inspection, read: ReadText) -> list[str]:
    """Remarks on the figures: unknown symbols, rows left out, the property."""
    lines = []
    if read.unknown:
        lines.append(f"{read.unknown} of the {read.element}s were never seen in training and are read as unknown.")
    for row, step in inspection.flow.nonfinite:
        lines.append(f"Row {row + 1} is left out of all means: not finite from step {step + 1} on.")
    if read.note:
        lines.append(read.note)
    return lines
