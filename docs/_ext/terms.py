"""Terms of the glossary linked where a page first uses them, in a paragraph: no author has to remember it."""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

PLAIN = {
    "cell", "chunk", "conditional", "context", "density", "element", "gate", "head", "ordering", "state", "surprise",
    "prefix", "causal", "mixture of logistics", "posterior", "coverage", "temperature", "embedding",
}  # fmt: skip
"""Words that a page uses in their ordinary sense too: an author links them, with {term}."""


def pattern(terms: list[str]) -> re.Pattern[str]:
    """The terms as whole words, the longest first; an abbreviation in capitals is one only so."""
    ways = [
        re.escape(term) if term.isupper() else f"(?i:{re.escape(term)})"
        for term in sorted(terms, key=len, reverse=True)
    ]
    return re.compile(rf"(?<![\w-])(?:{'|'.join(ways)})s?(?![\w-])")


def link(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Replace the first use of each term in a paragraph by a link to its entry."""
    entries = {name: place for (kind, name), place in app.env.domains["std"].data["objects"].items() if kind == "term"}
    names = {name.lower(): name for name in entries if name not in PLAIN}
    if app.builder.format != "html" or not names or page.startswith(("glossary", "changelog", "command_line", "api")):
        return
    found, words, seen = [], pattern(list(names.values())), set[str]()
    for paragraph in doctree.findall(nodes.paragraph):
        for text in [node for node in paragraph.children if isinstance(node, nodes.Text)]:
            parts, at = [], 0
            for match in words.finditer(text.astext()):
                said = match.group().lower()
                name = names.get(said) or names.get(said.removesuffix("s"))
                if name is None or name in seen:
                    continue
                seen.add(name)
                target, label = entries[name]
                uri = f"{app.builder.get_relative_uri(page, target)}#{label}"
                shown = nodes.reference("", match.group(), refuri=uri, classes=["term"], internal=True)
                parts += [nodes.Text(text.astext()[at : match.start()]), shown]
                at = match.end()
            if parts:
                found.append((text, [*parts, nodes.Text(text.astext()[at:])]))
    for text, parts in found:
        text.parent.replace(text, parts)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register it."""
    app.connect("doctree-resolved", link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
