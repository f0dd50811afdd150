"""One element's distribution."""

from chainrule.heads.categorical import Categorical
from chainrule.heads.draw import draw
from chainrule.heads.stack import stack

__all__ = ["Categorical", "draw", "stack"]
