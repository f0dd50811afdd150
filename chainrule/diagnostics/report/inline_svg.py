"""A figure as SVG inside a page: colours of the page's own, names that cannot meet those of other figures."""

import re
from html import escape
from io import StringIO
from typing import TYPE_CHECKING

from chainrule.diagnostics.panels import BLUE, GREEN, GRID, INK, MUTED, ORANGE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {INK: "ink", MUTED: "muted", GRID: "grid", BLUE: "blue", ORANGE: "orange", GREEN: "green"}


def inline_svg(figure: "Figure", name: str, description: str) -> str:
    """The SVG of a figure; the same figure gives the same text.

    Args:
        figure: drawn in the colours of `chainrule.diagnostics.panels`, which become the page's `--ink`, `--blue`...
        name: different for each figure of a page.
        description: of the picture in words, for those who do not see it.
    """
    import matplotlib as mpl

    buffer = StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "chainrule"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = _own_names(svg, name)
    for colour, variable in COLOURS.items():
        svg = svg.replace(colour, f"var(--{variable})")
    svg = re.sub(r" font-family: [^;\"]*;| transform=\"rotate\(-0 [^\"]*\"", "", svg)
    svg = re.sub(r"\n\s*", "\n", svg)
    head = f'<svg role="img" aria-label="{escape(description)}"'
    opening = r'<svg((?: xmlns(?::\w+)?="[^"]*"| version="[^"]*")+)?'
    return re.sub(opening, head, _without_size(svg), count=1).strip()


def _own_names(svg: str, name: str) -> str:
    """Names that something refers to get a prefix; the others go."""
    used = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg))
    kept = {name for pair in used for name in pair if name}
    svg = re.sub(r' id="([^"]*)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in kept else "", svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    return re.sub(r'(?:xlink:)?href="#', f'href="#{name}-', svg)


def _without_size(svg: str) -> str:
    """Only the shape is kept: the page says how wide a picture is."""
    opening, rest = svg.split(">", 1)
    return re.sub(r' (?:width|height)="[^"]*"', "", opening) + ">" + rest
