"""How much of a model's code is in use, for any task that has models with a code."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.diagnostics.code_figures import CodeFigures
    from chainrule.diagnostics.collapse import CodeTraining
    from chainrule.latent import CodeModel
    from chainrule.tasks.config import RunConfig

_ROWS = 64  # read together


def code_figures(model: "CodeModel", x: "Tensor", lengths: "Tensor | None" = None) -> "CodeFigures":
    """The codes of rows, and how much of them is in use; the draws of a layered code are seeded.

    Args:
        model: in evaluation mode.
        x: (N, ...).
        lengths: (N,) real elements of each row, where rows may be shorter.
    """
    import torch

    from chainrule.diagnostics.code_figures import pooled_figures
    from chainrule.latent import LatentModel

    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(0)
    codes = []
    with torch.no_grad():
        for rows in torch.arange(len(x)).split(_ROWS):
            part, own = x[rows].to(device), None if lengths is None else lengths[rows].to(device)
            terms = model.kl_terms(part, generator, lengths=own) if isinstance(model, LatentModel) else None
            codes.append((model.codes(part, lengths=own).float().cpu(), None if terms is None else terms.float().cpu()))
    return pooled_figures(codes)


def code_training(config: "RunConfig", weakening: Mapping[str, str]) -> "CodeTraining":
    """What of a run's options the use of its code depends on.

    Args:
        config: of the run.
        weakening: of models whose decoder sees what it writes: the options by which it sees less.
    """
    from chainrule.diagnostics.collapse import CodeTraining

    options = asdict(config.options)
    known = {name: options[name] for name in ("beta", "free_bits", "kl_warmup") if name in options}
    return CodeTraining(**known, weakening=weakening.get(config.model, ""))


class CodeWatch:
    """Tells at each validation how much of the code is in use.

    It warns where the posterior was collapsed twice in a row: at the very beginning it always is.

    Args:
        config: of the run.
        weakening: see `code_training`.
    """

    def __init__(self, config: "RunConfig", weakening: Mapping[str, str]):
        self._config, self._weakening, self._collapsed = config, weakening, 0

    def look(self, model: "CodeModel", x: "Tensor", lengths: "Tensor | None" = None) -> str:
        """What is seen of held-out rows, in a line or two."""
        from chainrule.diagnostics.collapse import code_verdict

        said, remedy = code_verdict(code_figures(model, x, lengths), code_training(self._config, self._weakening))
        self._collapsed = self._collapsed + 1 if remedy else 0
        return f"{said}\nwarning: the posterior collapsed. {remedy}" if self._collapsed > 1 else said
