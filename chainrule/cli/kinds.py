"""Of which kind a run is, or shall be, and which verbs its kind has."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from chainrule.cli.command_line import Verb
from chainrule.runs.kinds import RUNS
from chainrule.runs.run import CONFIG, kind_of

# Verbs of particular kinds; those of a text, below, are what `chainrule VERB --help` shows where no run is named.
HELP_OF: dict[str, str] = {
    "tag": "tag",
    "classify": "classify",
    "translate": "translate",
    "caption": "caption",
    "forecast": "forecast",
    "evaluate": "tag",
}
_SWITCHES = {
    "--resume",
    "--overwrite",
    "--json",
    "--sort",
    "--skip-bad",
    "--labels",
    "--no-labels",
    "--repair",
    "--text",
    "--help",
    "-h",
}
_AS_TEXT = {"--level", "--reading"}  # given with a table, these say that it is to be read as a text


def verbs_of(kind: str) -> Mapping[str, Verb]:
    """The verbs of a kind of run; nothing of any other kind is imported."""
    match kind:
        case "table":
            from chainrule.cli.table import VERBS
        case "image":
            from chainrule.cli.image import VERBS
        case "tag":
            from chainrule.cli.tag import VERBS
        case "classify":
            from chainrule.cli.classify import VERBS
        case "sound":
            from chainrule.cli.sound import VERBS
        case "forecast":
            from chainrule.cli.forecast import VERBS
        case "caption":
            from chainrule.cli.caption import VERBS
        case "translate":
            from chainrule.cli.translate import VERBS
        case _:
            from chainrule.cli.text import VERBS
    return VERBS


def kind_asked_for(verb: str, arguments: Sequence[str]) -> str:
    """The kind of run that a command line is about, without reading the rest of it.

    A verb but `train` names its run first. `train` names the kind (--task), or the run that it goes on with, or data
    that tell the kind.

    Raises:
        ValueError: --task names none, or standard input is to be trained on.
    """
    if verb != "train":
        return _kind_of_run(verb, _first(arguments))
    if "-" in arguments:
        raise ValueError(
            "train -: training reads its data several times, and again on --resume, which standard input does not "
            "allow: write it to a file and give its name"
        )
    task = _value("--task", arguments)
    if task is not None:
        if task not in RUNS:
            raise ValueError(f"--task: expected one of {', '.join(RUNS)}, got {task!r}")
        return task
    out = _value("--out", arguments)
    if "--resume" in arguments and out is not None and (kind := kind_of(Path(out))) in RUNS:
        assert kind is not None
        return kind
    data = _first(arguments)
    written = {argument.partition("=")[0] for argument in arguments}
    return "text" if data is None or written & _AS_TEXT else kind_of_data(Path(data))


def kind_of_data(path: Path) -> str:
    """The kind of run that data make, told from the name of a file or what a folder holds; in doubt, a text."""
    from chainrule.data.images.open import is_images
    from chainrule.data.sounds.collection import is_sounds
    from chainrule.data.tables.table_file import is_table

    if is_table(path):
        return "table"
    if is_images(path):
        return "image"
    if is_sounds(path):
        return "sound"
    if path.name.lower().removesuffix(".gz").endswith((".conllu", ".conll")):
        return "tag"
    return "text"


def _kind_of_run(verb: str, run: str | None) -> str:
    if run is None or not (Path(run) / CONFIG).is_file():
        return HELP_OF.get(verb, "text")
    kind = kind_of(Path(run))
    return kind if kind in RUNS and kind is not None else HELP_OF.get(verb, "text")


def _first(arguments: Sequence[str]) -> str | None:
    """The first argument that is no option and no option's value."""
    before = ""
    for argument in arguments:
        takes_value = before.startswith("-") and "=" not in before and before not in _SWITCHES
        if not argument.startswith("-") and not takes_value:
            return argument
        before = argument
    return None


def _value(option: str, arguments: Sequence[str]) -> str | None:
    """What is given to an option, as `--option value` or `--option=value`."""
    for place, argument in enumerate(arguments):
        if argument == option and place + 1 < len(arguments):
            return arguments[place + 1]
        if argument.startswith(option + "="):
            return argument.partition("=")[2]
    return None
