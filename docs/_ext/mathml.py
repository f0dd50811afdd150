r"""Formulas as MathML, which browsers draw by themselves: the pages load no script from elsewhere.

docutils makes it, and this mends what it reads otherwise than TeX: an index of a letter with an accent, which it puts
below the letter, and `\_` in `\text`. Others are written so that both read the same, such as `\tfrac{1}{2}`;
`tests/test_formulas.py` compares them all.
"""

import re
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)
_SIZES = re.compile(r"\\[bB]igg?[lr]?(?![a-zA-Z])")  # sizes of brackets: MathML stretches them by itself
_NAMESPACE = ' xmlns="http://www.w3.org/1998/Math/MathML"'


def to_mathml(source: str, *, as_block: bool) -> str:
    """A formula as MathML; raises MathError for a command that is not known."""
    text = tex2mathml(_SIZES.sub("", source), as_block=as_block)
    formula = ElementTree.fromstring(
        text.replace(_NAMESPACE, "").replace("&ApplyFunction;", "\N{FUNCTION APPLICATION}")
    )
    for words in formula.iter("mtext"):
        words.text = re.sub(r"\\([_%#&{}])", r"\1", words.text or "")
    for parent in list(formula.iter()):
        for place, node in enumerate(parent):
            parent[place] = _indexed(node)
    for parent in list(formula.iter()):
        _space(parent)
        for place, node in enumerate(parent):
            # Bars of a norm are as high as a letter, but for those of `left` and `right`, the ends of a row.
            inside = parent.tag != "mrow" or place not in (0, len(parent) - 1)
            if node.tag == "mo" and node.text == "‖" and inside:
                node.set("stretchy", "false")
    formula.set("xmlns", "http://www.w3.org/1998/Math/MathML")
    return ElementTree.tostring(formula, encoding="unicode")


_FUNCTIONS = frozenset(
    ("log", "ln", "exp", "max", "min", "sup", "inf", "lim", "arg", "sin", "cos", "tan", "tanh", "det", "dim", "Pr")
)


def _space(parent: ElementTree.Element) -> None:
    """Put the thin spaces of TeX around the names of functions: before a letter or a number, and behind one."""

    def is_name(node: ElementTree.Element) -> bool:
        base = node[0] if node.tag in ("msub", "msup", "msubsup", "munder", "munderover") and len(node) else node
        return base.tag in ("mi", "mo") and (base.text or "").strip() in _FUNCTIONS

    if parent.tag not in ("math", "mrow", "mstyle", "mtd"):
        return  # elsewhere a child is an argument, such as a numerator
    parts: list[ElementTree.Element] = []
    for node in parent:
        last = next((part for part in reversed(parts) if part.text != "\N{FUNCTION APPLICATION}"), None)
        sides = {node.tag, "mo" if last is None else last.tag}
        if last is not None and not sides & {"mo", "mspace"} and (is_name(last) or is_name(node)):
            parts.append(ElementTree.Element("mspace", {"width": "0.1667em"}))
        parts.append(node)
    parent[:] = parts


def _indexed(node: ElementTree.Element) -> ElementTree.Element:
    """`node` with its index to the right, where docutils put the index of an accented letter below the letter."""
    upper = node[1] if node.tag == "msup" else None
    under = node if upper is None else node[0]
    if under.tag != "munderover" or under[2].tag != "mo" or not {"accent", "stretchy"} & set(under[2].keys()):
        return node
    letter = ElementTree.Element("mover", {"accent": "true"})
    letter.extend((under[0], under[2]))
    indexed = ElementTree.Element("msub" if upper is None else "msubsup")
    indexed.extend((letter, under[1]) if upper is None else (letter, under[1], upper))
    return indexed


def equations(source: str) -> list[str]:
    """The equations of one line that `\\qquad` separates, outside of braces and environments."""
    depth, parts = 0, [""]
    for token in re.split(r"(\\qquad|\\(?:begin|end)|\\.|[{}])", source):
        depth += {"{": 1, "}": -1, "\\begin": 1, "\\end": -1}.get(token, 0)
        if token == "\\\\" and not depth:  # several lines, aligned with each other
            return [source]
        if token == "\\qquad" and not depth:
            parts.append("")
        else:
            parts[-1] += token
    return parts


def _markup(node: nodes.Element, source: str, as_block: bool) -> str:
    try:
        return to_mathml(source, as_block=as_block)
    except MathError as error:
        logger.warning("formula: %s in %r", error, source, location=node)
        return ""


def visit_inline(translator: Any, node: nodes.math) -> None:
    """Write a formula inside a line."""
    translator.body.append(_markup(node, node.astext(), as_block=False))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> None:
    """Write equations side by side, or one below the other on a narrow screen, where each scrolls by itself."""
    parts = "".join(_markup(node, part.strip(), as_block=True) for part in equations(node.astext()))
    translator.body.append(f'<div class="formula">{parts}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer; `html_math_renderer = "mathml"` selects it."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
