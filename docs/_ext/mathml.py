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
    formula.set("xmlns", "http://www.w3.org/1998/Math/MathML")
    return ElementTree.tostring(formula, encoding="unicode")


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


def _markup(node: nodes.Element, as_block: bool) -> str:
    try:
        return to_mathml(node.astext(), as_block=as_block)
    except MathError as error:
        logger.warning("formula: %s in %r", error, node.astext(), location=node)
        return ""


def visit_inline(translator: Any, node: nodes.math) -> None:
    """Write a formula inside a line."""
    translator.body.append(_markup(node, as_block=False))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> None:
    """Write a formula on lines of its own, which scrolls by itself where the screen is narrow."""
    translator.body.append(f'<div class="formula">{_markup(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer; `html_math_renderer = "mathml"` selects it."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
