"""Which kinds of runs there are."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from chainrule.runs.run import Run

# Imported when a run of the kind is opened.
RUNS = {
    "text": ("chainrule.runs.text", "TextRun"),
    "table": ("chainrule.runs.table", "TableRun"),
    "sound": ("chainrule.runs.sound", "SoundRun"),
    "image": ("chainrule.runs.image", "ImageRun"),
    "tag": ("chainrule.runs.tag", "TagRun"),
    "classify": ("chainrule.runs.classify", "ClassifyRun"),
    "forecast": ("chainrule.runs.forecast", "ForecastRun"),
    "caption": ("chainrule.runs.caption", "CaptionRun"),
    "translate": ("chainrule.runs.translate", "TranslateRun"),
}


def run_class(kind: str) -> "type[Run[Any]]":
    """The class of a kind of run.

    Raises:
        ValueError: there is no such kind.
    """
    if kind not in RUNS:
        raise ValueError(f"kind: expected one of {', '.join(RUNS)}, got {kind!r:.80}")
    home, name = RUNS[kind]
    return cast("type[Run[Any]]", getattr(import_module(home), name))
