"""Formulas as MathML, which browsers draw by themselves: the pages load no script from elsewhere."""

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)
_SIZES = re.compile(r"\\[bB]igg?[lr]?(?![a-zA-Z])")  # sizes of brackets: MathML stretches them by itself


def _markup(node: nodes.Element, as_block: bool) -> str:
    try:
        return tex2mathml(_SIZES.sub("", node.astext()), as_block=as_block)
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
