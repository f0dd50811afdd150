"""Exact models of sequences, one element at a time: p(x | c) = ∏_t p(x_t | x_<t, c).

The map of the library: its parts (`chainrule.models`, `chainrule.layers`, ...) and main classes. They are imported when
they are first used, so that `import chainrule` costs nothing.
"""

from typing import TYPE_CHECKING, Any

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule import coding, data, decoding, diagnostics, heads, layers, metrics, models, tasks, testing, training
    from chainrule.base import AutoregressiveModel, LikelihoodModel
    from chainrule.fitting import fit
    from chainrule.latent import LatentModel
    from chainrule.models.logits_model import from_logits
    from chainrule.models.recurrent_lm import RecurrentLM
    from chainrule.run import Run, load
    from chainrule.tasks import open_run
    from chainrule.tasks.task import Task

__all__ = [
    "AutoregressiveModel",
    "LatentModel",
    "LikelihoodModel",
    "RecurrentLM",
    "Run",
    "Task",
    "__version__",
    "coding",
    "data",
    "decoding",
    "diagnostics",
    "fit",
    "from_logits",
    "heads",
    "layers",
    "load",
    "metrics",
    "models",
    "open_run",
    "tasks",
    "testing",
    "training",
]

_get, __dir__ = attach(__name__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("chainrule")
    return _get(name)
