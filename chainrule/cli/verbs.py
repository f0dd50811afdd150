"""The verbs of the command line, and which of them a task has."""

from collections.abc import Callable, Mapping
from typing import Any

from chainrule.cli.check import check_verb
from chainrule.cli.compare import compare_verb
from chainrule.cli.embed import embed_verb
from chainrule.cli.evaluate import evaluate_verb
from chainrule.cli.info import info_verb
from chainrule.cli.inspect import inspect_verb
from chainrule.cli.interpolate import interpolate_verb
from chainrule.cli.predict import predict_verb
from chainrule.cli.reconstruct import reconstruct_verb
from chainrule.cli.sample import sample_verb
from chainrule.cli.score import score_verb
from chainrule.cli.train import train_verb
from chainrule.tasks import TASKS, task_class
from chainrule.tasks.abilities import Evaluates, Interpolates, Predicts, Reconstructs
from chainrule.tasks.commands import Verb
from chainrule.tasks.task import Task

VERBS: dict[str, Callable[[type[Task[Any]]], Verb | None]] = {
    "train": train_verb,
    "sample": sample_verb,
    "score": score_verb,
    "inspect": inspect_verb,
    "check": check_verb,
    "info": info_verb,
    "compare": compare_verb,
    "embed": embed_verb,
    "reconstruct": reconstruct_verb,
    "interpolate": interpolate_verb,
    "evaluate": evaluate_verb,
}
# Of verbs that the first task lacks: the ability that they need.
_NEEDED: dict[str, type] = {"evaluate": Evaluates, "reconstruct": Reconstructs, "interpolate": Interpolates}


def verbs_of(task: type[Task[Any]]) -> Mapping[str, Verb]:
    """The verbs that a task has, by name."""
    return {name: verb for name in (*VERBS, predicting(task)) if (verb := verb_of(task, name)) is not None}


def predicting(task: type[Task[Any]]) -> str:
    """The name of the verb by which a task predicts."""
    return (issubclass(task, Predicts) and task.verb) or task.name


def verb_of(task: type[Task[Any]], name: str) -> Verb | None:
    """One verb of a task; None where the task lacks it."""
    if name == predicting(task):
        return predict_verb(task)
    return VERBS[name](task) if name in VERBS else None


def all_verbs() -> dict[str, type[Task[Any]]]:
    """Every verb, and the task whose options its help shows where no run is named: the first that has it."""
    shown: dict[str, type[Task[Any]]] = {}
    for task in map(task_class, TASKS):
        for name in VERBS:
            if name not in shown and issubclass(task, _NEEDED.get(name, Task)):
                shown[name] = task
    for task in map(task_class, TASKS):
        if issubclass(task, Predicts):
            shown.setdefault(predicting(task), task)
    return shown
