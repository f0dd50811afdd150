"""The report of `chainrule inspect` on a model that writes while it looks at something."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from torch import Tensor

from chainrule.data.images.png import png
from chainrule.data.images.source import Pixels
from chainrule.diagnostics.picture_attention import lit_picture
from chainrule.diagnostics.report.indexed_png import data_address
from chainrule.diagnostics.report.plain_page import plain_page

_PICTURE_WIDTH = 144  # pixels on the page


@dataclass(frozen=True)
class AttentionReport:
    """What there is to show.

    Args:
        title: name of the run.
        model: a line about it.
        parts: parameters of each of its parts.
        finding: a sentence about its attention.
        examples: sections in HTML, as `sentence_section` and `picture_section` make them.
        command: that makes the page again.
    """

    title: str
    model: str
    parts: dict[str, int]
    finding: str
    examples: Sequence[str]
    command: str


def attention_page(report: AttentionReport) -> str:
    """The whole page; the same arguments give the same page."""
    total = max(sum(report.parts.values()), 1)
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{count:,}</td><td>{count / total:.1%}</td></tr>"
        for name, count in report.parts.items()
    )
    finding = report.finding[:1].upper() + report.finding[1:]
    body = [
        f"<h1>Inside {escape(report.title)}</h1>",
        f'<p class="lead">{escape(report.model)}</p>',
        '<section id="parts"><h2>Parts</h2><table><thead><tr><th>part</th><th>parameters</th><th>share</th></tr>'
        f"</thead><tbody>{rows}</tbody></table></section>",
        f'<section id="attention"><h2>Attention</h2><p>{escape(finding)}.</p></section>',
        *report.examples,
        f'<p class="note">Made by <code>{escape(report.command)}</code></p>',
    ]
    return plain_page(f"Inside {report.title}", body)


def sentence_section(
    title: str,
    lines: dict[str, str],
    source: Sequence[str],
    target: Sequence[str],
    bits: Sequence[float],
    weights: Tensor | None,
) -> str:
    """A table with a row for each symbol written and a column for each symbol read, darker where attended to more.

    Args:
        title: of the section.
        lines: texts above the table, by name.
        source: S symbols.
        target: T symbols.
        bits: of each symbol written.
        weights: (T, S) attention; None where the model has none: then the symbols written are listed with their bits.
    """
    read = () if weights is None else source
    head = "".join(f"<th>{escape(symbol)}</th>" for symbol in read)
    rows = []
    for place, (symbol, surprise) in enumerate(zip(target, bits, strict=True)):
        cells = "" if weights is None else "".join(map(_cell, weights[place].tolist()))
        rows.append(f"<tr><td>{escape(symbol)}</td>{cells}<td>{surprise:.2f}</td></tr>")
    return (
        f"<section><h2>{escape(title)}</h2>{_told(lines)}"
        f'<div class="scroll"><table><thead><tr><th></th>{head}<th>bits</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def picture_section(
    title: str,
    lines: dict[str, str],
    picture: Pixels,
    words: Sequence[str],
    bits: Sequence[float],
    weights: Tensor | None,
) -> str:
    """The picture, and once more for each word with the places that were looked at left bright.

    Args:
        title: of the section.
        lines: texts above the pictures, by name.
        picture: (3, S, S), values from 0 to 255.
        words: T of them.
        bits: of each word.
        weights: (T, P) attention over a square grid of P places; None where the model has none.
    """
    figures = [_figure("picture", "", picture.transpose(1, 2, 0))]
    for place, (word, surprise) in enumerate(zip(words, bits, strict=True)):
        shown = None if weights is None else lit_picture(picture, weights[place])
        most = "" if weights is None else f", weight up to {float(weights[place].max()):.2f}"
        figures.append(_figure(word, f"{surprise:.2f} bits{most}", shown))
    return (
        f"<section><h2>{escape(title)}</h2>{_told(lines)}"
        f'<div style="display:flex;flex-wrap:wrap;gap:0.5rem">{"".join(figures)}</div></section>'
    )


def _told(lines: dict[str, str]) -> str:
    return "".join(f'<p><span class="row">{escape(name)}</span> {escape(text)}</p>' for name, text in lines.items())


def _cell(weight: float) -> str:
    shade = f"background:color-mix(in srgb, var(--blue) {min(weight, 1.0):.0%}, transparent)"
    return f'<td style="{shade}" title="{weight:.3f}"></td>'


def _figure(word: str, note: str, pixels: Pixels | None) -> str:
    style = f"width:{_PICTURE_WIDTH}px;display:block"
    image = "" if pixels is None else f'<img src="{data_address(png(pixels))}" alt="{escape(word)}" style="{style}">'
    return f'<figure><figcaption>{escape(word)}</figcaption>{image}<span class="note">{note}</span></figure>'
