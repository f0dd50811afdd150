"""The report of an inspection: one HTML page that needs nothing else, neither a network nor scripts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from torch import Tensor

from chainrule.diagnostics.clipping import Clipping
from chainrule.diagnostics.inspection import Inspection
from chainrule.diagnostics.report.heat_map import traces
from chainrule.diagnostics.report.layer_figures import layer_table
from chainrule.diagnostics.report.pictures import clipping_picture, layer_pictures
from chainrule.diagnostics.report.plain_page import POLICY
from chainrule.diagnostics.report.read_text import ReadText, visible
from chainrule.diagnostics.report.rules import RULES
from chainrule.diagnostics.report.surprise_text import surprise_text


@dataclass(frozen=True)
class Subject:
    """What was inspected, in words.

    Args:
        title: the name of the run.
        model: what it is.
        command: that makes the page again.
    """

    title: str
    model: str
    command: str


def report_page(inspection: Inspection, read: ReadText, subject: Subject, clipping: Clipping | None = None) -> str:
    """The whole page. The same arguments give the same page; all that comes from the text is escaped.

    Args:
        inspection: of a model's recurrence on the rows of `read`.
        read: the text, row for row.
        subject: what was inspected.
        clipping: of the training; `None` where nothing is known of it.

    Raises:
        ImportError: matplotlib is missing.
    """
    layers = "".join(_layer(inspection, index, read) for index in range(len(inspection.layers)))
    body = [
        f"<h1>Inside {_said(subject.title)}</h1>",
        f'<p class="lead">{_said(subject.model)}; {_said(reading_line(inspection, read))}</p>',
        *(f'<p class="note">{_said(line)}</p>' for line in remarks(inspection, read)),
        _verdicts(inspection),
        _table(inspection),
        layers,
        _training(clipping),
        _surprise(inspection, read),
        _meanings(inspection),
        _rules(inspection),
        f'<p class="note">Made by <code>{_said(subject.command)}</code></p>',
    ]
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>Inside {_said(subject.title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(filter(None, body))
        + "\n</main>\n</body>\n</html>\n"
    )


def _said(text: str) -> str:
    """What a user named, as HTML: a file's name may hold anything."""
    return escape(visible(text, blanks=False))


def reading_line(inspection: Inspection, read: ReadText) -> str:
    """What was read, and how surprising it was."""
    lengths = inspection.flow.lengths
    rows, count, longest = len(lengths), int(lengths.sum()), int(lengths.max())
    each = f"{longest}" if rows * longest == count else f"up to {longest}"
    elements = "pieces of words" if read.level == "bpe" else f"{read.element}s"
    shape = f"{rows} row{'s' * (rows != 1)} of {each}, {count:,} {elements}"
    bits = mean_surprise(inspection)
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
    """What a reader should know of the figures: unknown symbols, rows left out, the property."""
    lines = []
    if read.unknown:
        lines.append(
            f"{read.unknown} of the {read.element}s were never seen in training and stand for an unknown symbol."
        )
    for row, step in inspection.flow.nonfinite:
        lines.append(f"Row {row + 1} is left out of all means: not finite from step {step + 1} on.")
    if read.note:
        lines.append(read.note)
    return lines


def _verdicts(inspection: Inspection) -> str:
    items = "".join(
        f'<p class="verdict"><a href="#layer-{number}">Layer {number}</a>: {_verdict(inspection, number - 1)}</p>'
        for number in range(1, len(inspection.layers) + 1)
    )
    return f'<section aria-label="verdicts">{items}</section>'


def _verdict(inspection: Inspection, index: int) -> str:
    verdict = inspection.layers[index].verdict
    return f'{escape(verdict.sentence)}. <a href="#rule-{verdict.rule}">rule: {verdict.rule}</a>'


def _table(inspection: Inspection) -> str:
    head = "".join(f'<th scope="col">layer {number}</th>' for number in range(1, len(inspection.layers) + 1))
    rows = "".join(
        f'<tr><th scope="row">{escape(figure.name)}</th>{_cells(values)}</tr>'
        for figure, values in layer_table(inspection)
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="figures of the layers">'
        f"<table><thead><tr><td></td>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        '<p class="note"><a href="#figures">What these mean</a></p>'
    )


def _cells(values: Sequence[str]) -> str:
    return "".join(f"<td>{escape(value)}</td>" for value in values)


def _layer(inspection: Inspection, index: int, read: ReadText) -> str:
    layer = inspection.layers[index]
    repeated = f'<p class="verdict">{_verdict(inspection, index)}</p>' if len(inspection.layers) > 1 else ""
    return (
        f'<section id="layer-{index + 1}"><h2>Layer {index + 1}: {escape(layer.description)}, '
        f"{layer.hidden_size} units</h2>{repeated}"
        f"{layer_pictures(inspection, index)}"
        f"<h3>{'Gates and state' if layer.gate_means else 'State'} over the text</h3>"
        f"{traces(inspection, index, read)}</section>"
    )


def _training(clipping: Clipping | None) -> str:
    if clipping is None:
        return '<section id="clipping"><h2>Clipping in training</h2><p>No step of training is recorded.</p></section>'
    picture = clipping_picture(clipping).replace("<figure>", '<figure class="single">', 1)
    return (
        f'<section id="clipping"><h2>Clipping in training</h2><p>{escape(clipping.sentence())}</p>{picture}</section>'
    )


def _surprise(inspection: Inspection, read: ReadText) -> str:
    if inspection.surprise is None:
        return ""
    return (
        '<section id="surprise"><h2>Surprise</h2><p>Each '
        f"{escape(read.element)} is coloured by −log<sub>2</sub> of the probability that the model gave it, in bits. "
        "A row begins without any past, so that its first elements surprise more.</p>"
        f"{surprise_text(inspection.surprise, read, inspection.flow.lengths)}</section>"
    )


def _meanings(inspection: Inspection) -> str:
    items = [
        ("‖δ‖", "the norm of δ_t = ∂L/∂h_t: everything of the loss that reaches the state h_t, through all later steps")
    ]
    items += [
        ("‖g‖", "the part of it that arrives at step t itself: from the loss, below the top layer from the layer above")
    ]
    items += [
        ("influence", "how far changing an input moves the state k steps later, mean, as a part of its largest; "
         "by change it cannot be told from rounding below about 10⁻⁶")
    ]  # fmt: skip
    items += [(figure.name, figure.meaning) for figure, _ in layer_table(inspection)]
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(meaning)}</dd>" for name, meaning in items)
    return (
        '<section id="figures"><h2>What the figures mean</h2><p>Norms are Euclidean and spectral, on logarithmic axes; '
        f"curves are means over rows, by the distance to the row's last step.</p><dl>{listed}</dl></section>"
    )


def _rules(inspection: Inspection) -> str:
    given = list(dict.fromkeys(layer.verdict.rule for layer in inspection.layers))
    listed = "".join(
        f'<dt id="rule-{name}">{name}</dt><dd>Given to {escape(RULES[name].condition)}. {escape(RULES[name].meaning)} '
        f"{escape(RULES[name].remedy)}</dd>"
        for name in [*given, *(name for name in RULES if name not in given)]
    )
    return (
        '<section id="rules"><h2>Rules of the verdicts</h2><p>The first that applies, in the order of the '
        f"documentation; those of this model come first here.</p><dl>{listed}</dl></section>"
    )
