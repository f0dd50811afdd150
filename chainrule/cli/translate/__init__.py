"""The verbs of a run of a translator."""

from chainrule.cli.command_line import Verb
from chainrule.cli.translate.check import check
from chainrule.cli.translate.evaluate import evaluate
from chainrule.cli.translate.info import info
from chainrule.cli.translate.train import train
from chainrule.cli.translate.translate import translate

VERBS: dict[str, Verb] = {
    "train": train,
    "translate": translate,
    "evaluate": evaluate,
    "check": check,
    "info": info,
}
