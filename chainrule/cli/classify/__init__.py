"""The verbs of a run of a classifier."""

from chainrule.cli.classify.classify import classify
from chainrule.cli.classify.evaluate import evaluate
from chainrule.cli.classify.info import info
from chainrule.cli.classify.train import train
from chainrule.cli.command_line import Verb

VERBS: dict[str, Verb] = {"train": train, "classify": classify, "evaluate": evaluate, "info": info}
