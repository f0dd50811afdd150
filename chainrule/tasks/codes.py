"""How much of a model's code is in use, for any task that has models with a code."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.diagnostics.active_units import LatentUse
    from chainrule.latent import CodeModel


class CodeWatch:
    """Tells at each validation how much of the code is in use.

    It warns where the posterior was collapsed twice in a row: at the very beginning it always is.
    """

    def __init__(self) -> None:
        self._collapsed = 0

    def look(self, model: "CodeModel", x: "Tensor", lengths: "Tensor | None" = None) -> str:
        """What is seen of held-out rows (N, ...), in a line or two; nothing of fewer than two."""
        from chainrule.diagnostics.active_units import active_units

        if len(x) < 2:
            return ""
        use = active_units(model, x, lengths=lengths)
        self._collapsed = self._collapsed + 1 if use.collapsed else 0
        return f"{use}\nwarning: the posterior collapsed: {use.remedies[0]}" if self._collapsed > 1 else str(use)


def use_figures(use: "LatentUse") -> dict[str, Any]:
    """The use of a code, ready for JSON."""
    return {
        "collapsed": use.collapsed,
        "remedies": list(use.remedies),
        "active": use.ranked,
        "kl": None if use.kl is None else use.kl.tolist(),
        "variance": use.variances.tolist(),
    }


def use_table(use: "LatentUse", rows: str) -> str:
    """The use of the code of a variational model as a table, below a line about the rows that it was measured on."""
    assert use.kl is not None
    lines = [f"{rows}: {use}", *use.remedies, f"{'dimension':>9} {'KL, nats':>9}  variance of the mean"]
    lines += [f"{place:>9} {use.kl[place]:>9.3f}  {use.variances[place]:.4f}" for place in use.ranked]
    return "\n".join(lines)
