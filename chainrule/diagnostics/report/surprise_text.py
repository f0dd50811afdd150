"""The text that was read, each element coloured by its surprise in bits."""

import math
from html import escape

from torch import Tensor

from chainrule.diagnostics.report.read_text import ReadText, visible

LEVELS = 10  # the darkest; page.css has a class for each
MOST_ELEMENTS = 8000  # shown of a very long text, to keep the page small


def surprise_text(surprise: Tensor, read: ReadText, lengths: Tensor) -> str:
    """HTML of all rows and a legend. surprise: (B, T), bits."""
    real = [surprise[row, : int(length)] for row, length in enumerate(lengths.tolist())]
    known = sorted(bits for row in real for bits in row.tolist() if math.isfinite(bits))
    if not known:
        return "<p>No row is finite.</p>"
    top = max(4, math.ceil(known[int(0.98 * (len(known) - 1))]))
    left, parts = MOST_ELEMENTS, []
    for number, (row, bits) in enumerate(zip(read.rows, real, strict=True), 1):
        if left <= 0:
            parts.append(f"<p>{len(read.rows) - number + 1} more rows are not shown.</p>")
            break
        elements = [
            f"{escape(between)}{_element(piece, value, top, read.narrow)}"
            for (between, piece), value in zip(row.pieces(), bits.tolist()[:left], strict=False)
        ]
        left -= len(elements)
        mean = float(bits.mean())
        parts.append(
            f'<h3 class="row">row {number}, {mean:.2f} bits a {escape(read.element)}</h3>'
            f'<p class="surprise" dir="ltr">{"".join(elements)}</p>'
        )
    return _legend(top) + "\n".join(parts)


def _element(piece: str, bits: float, top: int, narrow: bool) -> str:
    level = min(LEVELS, round(LEVELS * bits / top)) if math.isfinite(bits) else LEVELS
    shown = escape(visible(piece, blanks=piece.isspace() and not narrow))
    value = f"{bits:.1f}" if math.isfinite(bits) else "∞"
    kept = "\n" * piece.count("\n")  # the line still ends
    return f'<b class="s{level}" tabindex="-1" data-b="{value}">{shown}</b>{kept}'


def _legend(top: int) -> str:
    swatches = "".join(f'<b class="s{level}">&nbsp;</b>' for level in range(LEVELS + 1))
    return (
        f'<p class="legend">0 bits <span class="swatches" aria-hidden="true">{swatches}</span> {top} bits or more. '
        "Point at an element, or tap it, for its number.</p>"
    )
