"""Help texts that fold at blanks, and suggestions for verbs and options that do not exist."""

from collections.abc import Iterable, Mapping
from inspect import Parameter, cleandoc, signature
from typing import TYPE_CHECKING

from chainrule._app.tasks.display import Verb

if TYPE_CHECKING:
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions

# Words of other programs, and ours; of several the first that there is.
VERB_SYNONYMS = {
    "generate": ("sample",), "draw": ("sample",), "complete": ("sample",), "perplexity": ("score",),
    "loss": ("score",), "likelihood": ("score",), "eval": ("evaluate",), "test": ("evaluate",),
    "validate": ("evaluate",), "fit": ("train",), "learn": ("train",), "finetune": ("train",), "resume": ("train",),
    "encode": ("embed", "compress"), "decode": ("decompress",), "extract": ("decompress",), "show": ("info",),
    "describe": ("info",), "stats": ("info",), "explain": ("inspect",), "plot": ("inspect",),
    "verify": ("check",), "label": ("classify",), "annotate": ("tag",),
    "predict": ("tag", "classify", "translate", "caption", "forecast"), "diff": ("compare",),
    "infer": ("tag", "classify", "translate", "caption", "forecast"), "help": ("--help",), "version": ("--version",),
}  # fmt: skip
OPTION_SYNONYMS = {
    "lr": ("learning-rate",), "epoch": ("epochs",), "num-epochs": ("epochs",), "n-epochs": ("epochs",),
    "num-train-epochs": ("epochs",), "max-epochs": ("epochs",), "max-steps": ("steps",), "iterations": ("steps",),
    "iters": ("steps",), "max-iters": ("steps",), "time": ("budget",), "max-time": ("budget",), "bs": ("batch-size",),
    "batch": ("batch-size",), "train-batch-size": ("batch-size",), "optimizer": ("optimiser",),
    "optim": ("optimiser",), "wd": ("weight-decay",), "l2": ("weight-decay",), "gpu": ("device",),
    "cuda": ("device",), "output": ("out",), "output-dir": ("out",), "outdir": ("out",), "save": ("out",),
    "dir": ("out",), "force": ("overwrite",), "continue": ("resume",), "random-seed": ("seed",),
    "random-state": ("seed",), "arch": ("model",), "architecture": ("model",), "model-type": ("model",),
    "hidden": ("hidden-size", "model-size"), "units": ("hidden-size",), "hidden-dim": ("hidden-size", "model-size"),
    "embed-dim": ("embedding-size",), "embedding-dim": ("embedding-size",), "d-model": ("model-size",),
    "n-layer": ("num-layers",), "n-layers": ("num-layers",), "layers": ("num-layers",), "heads": ("num-heads",),
    "n-head": ("num-heads",), "seq-len": ("chunk-length",), "block-size": ("chunk-length",),
    "context-length": ("chunk-length",), "bptt": ("chunk-length",), "max-len": ("length", "max-length"),
    "max-tokens": ("length",), "max-new-tokens": ("length",), "num-samples": ("number", "samples"),
    "samples": ("number",), "n-samples": ("number", "samples"), "temp": ("temperature",), "topk": ("top-k",),
    "topp": ("top-p",), "num-beams": ("beam",), "beam-size": ("beam",), "beams": ("beam",),
    "grad-clip": ("clip-norm",), "max-grad-norm": ("clip-norm",), "clip": ("clip-norm",), "fp16": ("precision",),
    "bf16": ("precision",), "dtype": ("precision",), "amp": ("precision",), "workers": ("threads",),
    "jobs": ("threads",), "num-threads": ("threads",), "val": ("validation",), "valid": ("validation",),
    "valid-file": ("validation",), "dev": ("validation",), "eval-every": ("validate-every",),
    "eval-interval": ("validate-every",), "early-stopping": ("patience",), "src": ("source",), "tgt": ("target",),
    "usage": ("help",),
}  # fmt: skip


def suggestion(word: str, known: Iterable[str], synonyms: Mapping[str, tuple[str, ...]]) -> str:
    """What may have been meant by a word that is none of the known ones, as a question; empty where nothing is near.

    >>> suggestion("generate", ["sample", "interpolate"], VERB_SYNONYMS)
    ' Did you mean sample?'
    >>> suggestion("--hlep", ["--steps", "--help"], {})
    ' Did you mean --help?'
    """
    known = list(known)
    stem, dashes = word.lstrip("-").lower().replace("_", "-"), word.startswith("-")
    found = [f"--{other}" if dashes else other for other in synonyms.get(stem, ())]
    found = [other for other in found if other in known or (not dashes and other.startswith("-"))]
    if dashes:
        found = found[:1]
    if not found and len(stem) > 1:
        near = min(known, key=lambda other: edits(word.lower(), other), default="")
        if near and edits(word.lower(), near) <= max(1, len(stem) // 3):
            found = [near]
    if not found:
        return ""
    *others, last = found
    return f" Did you mean {', '.join(others)}{' or ' if others else ''}{last}?"


def edits(first: str, second: str) -> int:
    """Letters to insert, leave out, replace or swap with their neighbour to turn one word into another.

    >>> edits("hlep", "help"), edits("evalute", "evaluate"), edits("", "abc")
    (1, 1, 3)
    """
    rows = [list(range(len(second) + 1))]
    for place, letter in enumerate(first, 1):
        above, row = rows[-1], [place]
        for column, other in enumerate(second, 1):
            best = min(above[column] + 1, row[-1] + 1, above[column - 1] + (letter != other))
            if place > 1 and column > 1 and letter == second[column - 2] and other == first[place - 2]:
                best = min(best, rows[-2][column - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]


def description(verb: Verb) -> str:
    """The text of a verb's docstring before its arguments, a line for each paragraph."""
    words = cleandoc(verb.__doc__ or "").partition("\nArgs:\n")[0]
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in words.strip().split("\n\n"))


def usage(name: str, verb: Verb) -> str:
    """The line that shows how a verb is called, its arguments by their names."""
    words = [f"Usage: chainrule {name} [OPTIONS]"]
    for argument in signature(verb).parameters.values():
        if argument.kind is Parameter.VAR_POSITIONAL:
            words.append(f"{argument.name.upper()}...")
        elif argument.kind is Parameter.POSITIONAL_ONLY:
            label = argument.name.upper()
            words.append(label if argument.default is Parameter.empty else f"[{label}]")
    return " ".join(words) + "\n"


class FoldedHelp:
    """Panels of cyclopts, their texts folded at blanks alone: a docstring's own line ends and indents are dropped."""

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
        from cyclopts.help import DefaultFormatter
        from rich.text import Text

        for entry in panel.entries:
            text = getattr(entry.description, "primary_renderable", None)
            if isinstance(text, Text):
                entry.description.primary_renderable = Text(" ".join(text.plain.split()), end=text.end)
        DefaultFormatter()(console, options, panel)
