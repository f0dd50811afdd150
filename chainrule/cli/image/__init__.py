"""The verbs of a run on pictures."""

from chainrule.cli.command_line import Verb
from chainrule.cli.image.check import check
from chainrule.cli.image.info import info
from chainrule.cli.image.inspect import inspect
from chainrule.cli.image.sample import sample
from chainrule.cli.image.score import score
from chainrule.cli.image.train import train

VERBS: dict[str, Verb] = {
    "train": train,
    "sample": sample,
    "score": score,
    "inspect": inspect,
    "check": check,
    "info": info,
}
