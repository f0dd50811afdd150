"""The verbs of a run on a table."""

from chainrule.cli.command_line import Verb
from chainrule.cli.table.check import check
from chainrule.cli.table.info import info
from chainrule.cli.table.sample import sample
from chainrule.cli.table.score import score
from chainrule.cli.table.train import train

VERBS: dict[str, Verb] = {"train": train, "sample": sample, "score": score, "check": check, "info": info}
