"""The verbs of a run on captioned pictures."""

from chainrule.cli.caption.caption import caption
from chainrule.cli.caption.evaluate import evaluate
from chainrule.cli.caption.info import info
from chainrule.cli.caption.train import train
from chainrule.cli.command_line import Verb

VERBS: dict[str, Verb] = {"train": train, "caption": caption, "evaluate": evaluate, "info": info}
