"""Exact models of sequences, one element at a time: p(x | c) = ∏_t p(x_t | x_<t, c).

The map of the library: its parts (`chainrule.models`, `chainrule.layers`, ...) and main classes. They are imported when
they are first used, so that `import chainrule` costs nothing. `fit`, `load`, `Run` and a few more come from the
application, `chainrule_app`, which needs the extra `app`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule import coding, data, decoding, diagnostics, heads, layers, metrics, models, testing, training
    from chainrule._base import AutoregressiveModel, LikelihoodModel, TrainableModel
    from chainrule._executor import Executor
    from chainrule._latent import CodeModel, LatentModel
    from chainrule.models._logits_model import from_logits
    from chainrule.models._recurrent_lm import RecurrentLM

APPLICATION = ("Report", "Result", "Run", "fit", "import_model", "load", "open_run", "runs")

__all__ = [
    "AutoregressiveModel",
    "CodeModel",
    "Executor",
    "LatentModel",
    "LikelihoodModel",
    "RecurrentLM",
    "Report",
    "Result",
    "Run",
    "TrainableModel",
    "__version__",
    "coding",
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
    if name in APPLICATION:
        try:
            value = getattr(import_module("chainrule_app"), name)
        except ModuleNotFoundError as error:
            raise ImportError(
                f"chainrule.{name} needs the package {error.name!r}: pip install 'chainrule[app]'", name=error.name
            ) from None
    elif name == "__version__":
        from importlib.metadata import version

        value = version("chainrule")  # read from the package's folder once
    else:
        return _get(name)
    globals()[name] = value
    return value
