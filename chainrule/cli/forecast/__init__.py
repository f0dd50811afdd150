"""The verbs of a run on series."""

from chainrule.cli.command_line import Verb
from chainrule.cli.forecast.check import check
from chainrule.cli.forecast.evaluate import evaluate
from chainrule.cli.forecast.forecast import forecast
from chainrule.cli.forecast.info import info
from chainrule.cli.forecast.train import train

VERBS: dict[str, Verb] = {
    "train": train,
    "forecast": forecast,
    "evaluate": evaluate,
    "check": check,
    "info": info,
}
