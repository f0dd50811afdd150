"""How much of a model's code is in use, for any task that has models with a code."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.latent import CodeModel
    from chainrule.training.validation import Findings


def code_findings(model: "CodeModel", x: "Tensor", lengths: "Tensor | None" = None) -> "Findings":
    """Active units, and the KL divergence in nats a row, of held-out rows (N, ...); nothing of fewer than two.

    Args:
        model: to look at.
        x: the rows.
        lengths: (N,) real elements of each row.
    """
    from chainrule.diagnostics.active_units import active_units
    from chainrule.training.validation import Findings

    if len(x) < 2:
        return Findings({})
    use = active_units(model, x, lengths=lengths)
    figures: dict[str, float] = {"active_units": use.count}
    if use.kl is not None:
        figures["kl"] = float(use.kl.sum())
    return Findings(figures, str(use), f"the posterior collapsed: {use.remedies[0]}" if use.collapsed else "")
