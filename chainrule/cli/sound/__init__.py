"""The verbs of a run on sounds."""

from chainrule.cli.command_line import Verb
from chainrule.cli.sound.check import check
from chainrule.cli.sound.info import info
from chainrule.cli.sound.inspect import inspect
from chainrule.cli.sound.sample import sample
from chainrule.cli.sound.score import score
from chainrule.cli.sound.train import train

VERBS: dict[str, Verb] = {
    "train": train,
    "sample": sample,
    "score": score,
    "inspect": inspect,
    "check": check,
    "info": info,
}
