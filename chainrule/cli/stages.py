"""The verbs of the command line, and the first parse of a line, which finds the task and the model.

The first parse uses the flags of all tasks together, and so tells switches from flags with a value. The data, `--task`,
`--model` or the run named there then select the options of the second parse.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from inspect import Parameter as Argument
from inspect import Signature
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, cast, get_args

from cyclopts import App, CycloptsError, Parameter

from chainrule.cli.compare import compare_verb
from chainrule.cli.compress import compress, decompress
from chainrule.cli.info import check, info
from chainrule.cli.signature import Offered, as_flags
from chainrule.cli.train import train_verb
from chainrule.cli.verbs import embed, evaluate, inspect, interpolate, predict_verb, reconstruct, sample, score
from chainrule.tasks import TASKS, task_class
from chainrule.tasks.abilities import Predicts
from chainrule.tasks.display import Verb, resume_command
from chainrule.tasks.run_directory import CONFIG, read_config, task_of
from chainrule.tasks.task import Task

VERBS: dict[str, Callable[[type[Task[Any]]], Verb | None]] = {
    "train": train_verb,
    "sample": sample,
    "score": score,
    "inspect": inspect,
    "check": check,
    "info": info,
    "compare": compare_verb,
    "embed": embed,
    "reconstruct": reconstruct,
    "interpolate": interpolate,
    "evaluate": evaluate,
    "compress": compress,
    "decompress": decompress,
}
RUN_BY_FLAG = ("compress", "decompress")  # verbs that also work without a run: --run names it


def verbs_of(task: type[Task[Any]]) -> Mapping[str, Verb]:
    """The verbs that a task has, by name."""
    return {name: verb for name in (*VERBS, predicting(task)) if (verb := verb_of(task, name)) is not None}


def predicting(task: type[Task[Any]]) -> str:
    """The name of a task's verb of prediction."""
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
        for name, verb in VERBS.items():
            if not isinstance(verb, Offered) or issubclass(task, verb.ability):
                shown.setdefault(name, task)
    for task in map(task_class, TASKS):
        if issubclass(task, Predicts):
            shown.setdefault(predicting(task), task)
    return shown


_AS_TEXT = {"--level", "--reading"}  # given with a table, they say that it is to be read as a text


@dataclass(frozen=True)
class FirstParse:
    """A verb's command line, parsed without types.

    Args:
        words: the positional arguments.
        flags: the values of those that are, by name; True for a switch.
    """

    words: tuple[str, ...]
    flags: dict[str, Any]


def first_parse(verb: str, arguments: Sequence[str]) -> FirstParse:
    """Parse the arguments of a verb with the flags of all tasks.

    A line that cannot be parsed here is left to the second parse, which reports the error.
    """
    names, switches = _flags_of(verb)

    def read(*words: str, **flags: Any) -> FirstParse:
        return FirstParse(words, {names[name]: value for name, value in flags.items() if value not in (None, False)})

    made: Any = read  # a function may have a signature, but its type knows none
    made.__signature__ = Signature(
        [
            Argument("words", Argument.VAR_POSITIONAL, annotation=Annotated[str, Parameter(allow_leading_hyphen=True)]),
            *(
                Argument(name, Argument.KEYWORD_ONLY, default=None, annotation=_untyped(flag, flag in switches))
                for name, flag in names.items()
            ),
        ]
    )
    made.__annotations__ = {}
    app = App(help_flags=[], version_flags=[], default_command=read, result_action="return_value")
    try:
        found = app(list(arguments), exit_on_error=False, print_error=False)
    except CycloptsError:
        return FirstParse((), {})
    assert isinstance(found, FirstParse)
    return found


def verb_asked_for(name: str, arguments: Sequence[str]) -> tuple[type[Task[Any]], Verb | None]:
    """The task that a command line is about, and its verb; None where that task has no such verb.

    `train` names the task, or the run that goes on, or data that tell the task. The other verbs name a run first, or by
    a flag.

    Raises:
        ValueError: --task names none, or standard input is to be trained on.
    """
    reading = first_parse(name, arguments)
    if name != "train":
        run = reading.flags.get("--run") if name in RUN_BY_FLAG else next(iter(reading.words), None)
        known = None if run is None else task_of(Path(run))
        task = task_class(known) if known in TASKS and known is not None else all_verbs()[name]
        return task, verb_of(task, name)
    if "-" in reading.words:
        raise ValueError(
            "train -: training reads its data several times, and again on --resume, which standard input does not "
            "allow: write it to a file and give its name"
        )
    task = _task_to_train(reading)
    model = reading.flags.get("--model") or _model_to_resume(reading)
    return task, train_verb(task, model if model in task.MODELS else "")


def owners(flag: str, arguments: Sequence[str]) -> list[str]:
    """The models of the task asked for that have an option: for an error about a flag that another model has."""
    flag = flag.replace("--no-", "--", 1)
    task = _task_to_train(first_parse("train", arguments))
    return [
        name
        for name, model in task.MODELS.items()
        if any("--" + option.name.replace("_", "-") == flag for option in fields(cast(Any, model.options)))
    ]


def _task_to_train(reading: FirstParse) -> type[Task[Any]]:
    first = next(iter(reading.words), None)
    if first is not None and task_of(Path(first)) is not None:
        raise ValueError(
            f"{first}: expected data to train on, got a run: to continue it, `{resume_command(Path(first))}`"
        )
    name = reading.flags.get("--task")
    if name is not None:
        if name not in TASKS:
            raise ValueError(f"--task: expected one of {', '.join(TASKS)}, got {name!r}")
        if name == "classify" and _are_images(reading):
            name = "classify-images"
        return task_class(name)
    if (known := _task_to_resume(reading)) is not None:
        return task_class(known)
    if not reading.words or _AS_TEXT & reading.flags.keys():
        return task_class("text")
    return recognised(Path(reading.words[0]))


def _are_images(reading: FirstParse) -> bool:
    """Whether what is to be classified are images, told from the run that goes on, the data or the model."""
    if (known := _task_to_resume(reading)) is not None:
        return known == "classify-images"
    if reading.words:
        return task_class("image").recognises(Path(reading.words[0]))
    return reading.flags.get("--model") in task_class("classify-images").MODELS


def recognised(path: Path) -> type[Task[Any]]:
    """The task for these data, recognised by the name of a file or the content of a folder; text by default.

    Raises:
        ValueError: a folder without images or sounds.
    """
    tasks = map(task_class, TASKS)
    found = next((task for task in tasks if task.recognises(path)), None)
    if found is None and path.is_dir():
        raise ValueError(
            f"{path}: expected a file, or a directory of images or sounds, got a directory without any{_inside(path)}"
        )
    return found or task_class("text")


def _inside(folder: Path) -> str:
    """The command for a file in a folder, data of training and no labels first; nothing where there is none."""
    files = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    if not files:
        return ""
    tasks = [task_class(name) for name in TASKS]

    def rank(path: Path) -> tuple[bool, bool, bool, str]:
        name = path.name.lower()
        return not any(task.recognises(path) for task in tasks), "label" in name, "train" not in name, name

    return f": name a file in it: chainrule train {quote(str(min(files, key=rank)))}"


def _task_to_resume(reading: FirstParse) -> str | None:
    """The task of the run that goes on; None where none does, or none can be read."""
    out = reading.flags.get("--out")
    known = task_of(Path(out)) if "--resume" in reading.flags and out is not None else None
    return known if known in TASKS else None


def _model_to_resume(reading: FirstParse) -> str | None:
    out = reading.flags.get("--out")
    if "--resume" not in reading.flags or out is None:
        return None
    try:
        return str(read_config(Path(out) / CONFIG, lambda content: content["model"]["name"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # opening the run says what is wrong


@cache
def _flags_of(verb: str) -> tuple[dict[str, str], frozenset[str]]:
    """The flags of a verb in all tasks, by a name for each, and which of them are switches."""
    flags: dict[str, bool] = {"--help": True, "-h": True}
    for made in _forms(verb):
        for argument in App(default_command=made, help_flags=[]).assemble_argument_collection():
            for name in (*argument.names, *argument.negatives):
                if name.startswith("-"):
                    flags[name] = flags.get(name, False) or bool in (argument.hint, *get_args(argument.hint))
    names = {f"flag_{place}": name for place, name in enumerate(flags)}
    return names, frozenset(name for name, switch in flags.items() if switch)


def _forms(verb: str) -> Iterable[Verb]:
    for task in map(task_class, TASKS):
        if verb == "train":
            yield train_verb(task)
            yield from (_options_alone(model.options) for model in list(task.MODELS.values())[1:])
        elif (made := verb_of(task, verb)) is not None:
            yield made


def _options_alone(options: type) -> Verb:
    """A verb that has the options of a model and nothing else."""

    def verb(*, options: Any) -> None: ...

    verb.__annotations__["options"], verb.__kwdefaults__ = as_flags(options), {"options": options()}
    return verb


def _untyped(flag: str, switch: bool) -> Any:
    if switch:
        return Annotated[bool, Parameter(name=flag, negative=())]
    return Annotated[str | None, Parameter(name=flag, allow_leading_hyphen=True)]
