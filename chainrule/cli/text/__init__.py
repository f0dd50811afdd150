"""The verbs of a run on a text."""

from chainrule.cli.command_line import Verb
from chainrule.cli.text.check import check
from chainrule.cli.text.info import info
from chainrule.cli.text.inspect import inspect
from chainrule.cli.text.sample import sample
from chainrule.cli.text.score import score
from chainrule.cli.text.train import train

VERBS: dict[str, Verb] = {
    "train": train,
    "sample": sample,
    "score": score,
    "inspect": inspect,
    "check": check,
    "info": info,
}
