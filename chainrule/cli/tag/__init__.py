"""The verbs of a run of a tagger."""

from chainrule.cli.command_line import Verb
from chainrule.cli.tag.evaluate import evaluate
from chainrule.cli.tag.info import info
from chainrule.cli.tag.tag import tag
from chainrule.cli.tag.train import train

VERBS: dict[str, Verb] = {"train": train, "tag": tag, "evaluate": evaluate, "info": info}
