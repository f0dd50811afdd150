"""HTML for screen readers: captions of the sidebar have a level, lines of long signatures are no definitions, and an
empty corner of a table is no header."""

import re
from typing import Any

from sphinx.application import Sphinx

_AFTER_THEME = 900
_LINES = re.compile(r"<dl>\n((?:<dd>.*</dd>\n)+)</dl>")  # of a signature: definitions without terms
_CORNER = re.compile(r"<th( [^>]*)?>(?:<p></p>)?</th>")


def repair(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Repair the contents and the sidebar of a page."""
    for name in ("furo_navigation_tree", "body"):
        if name in context:
            text = context[name].replace(' role="heading">', ' role="heading" aria-level="2">')
            context[name] = _CORNER.sub(r"<td\1></td>", _LINES.sub(_lines, text))


def _lines(found: re.Match[str]) -> str:
    lines = found[1].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")
    return f'<span class="sig-lines">\n{lines}</span>'


def setup(app: Sphinx) -> dict[str, Any]:
    """Register it."""
    app.connect("html-page-context", repair, priority=_AFTER_THEME)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
