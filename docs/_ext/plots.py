"""Plots in the colours of the page: an SVG that a cell drew becomes part of it, and black the colour of its text.

The colours of `docs/course/_style.py` and `chainrule.figures` have a light and a dark variant in `_static/pages.css`.
Notebooks keep the picture with its white ground.
"""

import re
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

COLOURS = {
    "blue": ("#2563a8", "#0072b2", "#1f77b4"),
    "orange": ("#d9730d", "#d55e00", "#ff7f0e"),
    "green": ("#2f8f4e", "#009e73", "#2ca02c"),
    "red": ("#c0392b", "#d1242f", "#d62728"),
    "purple": ("#7b4fa3", "#9467bd"),
    "grey": ("#7a7a7a", "#6b7078"),
}


def following(svg: str, alt: str) -> str:
    """The SVG of matplotlib as part of a page."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)  # nothing refers to them, and other plots have them too
    svg = svg.replace('style="fill: #ffffff"', 'style="fill: none"')  # the ground of figure and axes
    svg = re.sub(r"#000000|#1b1d21", "currentColor", svg)
    for name, colours in COLOURS.items():
        for colour in colours:
            svg = svg.replace(colour, f"var(--{name})")
    said = f'role="img" aria-label="{escape(alt)}"' if alt else 'role="img" aria-label="Plot of the cell above"'
    return f'<div class="plot">{svg.replace("<svg ", f"<svg {said} ", 1)}</div>'


def inline(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Put each SVG that a cell drew into the page."""
    if app.builder.format != "html":
        return
    for image in list(doctree.findall(nodes.image)):
        path = Path(app.srcdir, image["uri"]).resolve()
        if path.suffix == ".svg" and "jupyter_execute" in path.parts:
            image.replace_self(
                nodes.raw("", following(path.read_text(encoding="utf-8"), image.get("alt", "")), format="html")
            )


def setup(app: Sphinx) -> dict[str, Any]:
    """Register it."""
    app.connect("doctree-resolved", inline)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
