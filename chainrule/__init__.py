"""Exact models of sequences, one element at a time: p(x | c) = ∏_t p(x_t | x_<t, c).

The map of the library: its parts (`chainrule.models`, `chainrule.layers`, ...) and main classes. They are imported when
they are first used, so that `import chainrule` costs nothing.
"""

from typing import TYPE_CHECKING, Any

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule import coding, data, decoding, diagnostics, heads, layers, metrics, models, testing, training
    from chainrule._app.fitting import fit, load
    from chainrule._app.listing import runs
    from chainrule._app.results import Report, Result
    from chainrule._app.run import Run
    from chainrule._app.tasks import open_run
    from chainrule._app.tasks.table.comparison import compare_tables
    from chainrule._base import AutoregressiveModel, LikelihoodModel
    from chainrule._executor import Executor
    from chainrule._latent import LatentModel
    from chainrule.interchange import import_model
    from chainrule.models._logits_model import from_logits
    from chainrule.models._recurrent_lm import RecurrentLM

__all__ = [
    "AutoregressiveModel",
    "Executor",
    "LatentModel",
    "LikelihoodModel",
    "RecurrentLM",
    "Report",
    "Result",
    "Run",
    "__version__",
    "coding",
    "compare_tables",
    "data",
    "decoding",
    "diagnostics",
    "fit",
    "from_logits",
    "heads",
    "import_model",
    "layers",
    "load",
    "metrics",
    "models",
    "open_run",
    "runs",
    "testing",
    "training",
]

_get, __dir__ = attach(__name__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        found = globals()[name] = version("chainrule")  # read from the package's folder once
        return found
    return _get(name)
