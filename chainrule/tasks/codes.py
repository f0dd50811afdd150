"""How much of a model's code is in use, told at each validation, for any task that has models with a code."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

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
