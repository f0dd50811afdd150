"""An error as one line for its user: the flag as it was typed, the nearest valid word, and what to do."""

import sys
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches

from cyclopts import CycloptsError, MissingArgumentError, UnknownOptionError, UnusedCliTokensError

from chainrule.option_error import UserError, WriteOption
from chainrule.printing import printable
from chainrule_app.printing import shortened, shown

LINE_LIMIT = 299  # characters of an error: a message may quote data of any size


def is_expected(error: Exception) -> bool:
    """Tell if a user can cause this error: it is then reported in one line, without a traceback."""
    if isinstance(error, CycloptsError | ValueError | OSError | ImportError | MemoryError):
        return True
    return type(error).__module__.split(".")[0] == "chainrule" or _is_out_of_memory(error)


def _is_out_of_memory(error: Exception) -> bool:
    # On the CPU, torch raises a RuntimeError like any other: only its message says that memory is what is missing.
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))


_COSTLY = ("batch_size", "hidden_size", "channels", "rows", "steps", "beam", "paths", "particles", "n")


def one_line(error: Exception, verb_flags: Mapping[str, str], write: WriteOption) -> str:
    """Return the message of an error; `verb_flags` has the flag of each option, and `write` writes options as flags."""
    if isinstance(error, UserError):
        return _fitted(error.written(write))
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if _is_out_of_memory(error):
        costly = [verb_flags[name] for name in _COSTLY if name in verb_flags]
        return f"out of memory: choose a smaller {' or '.join(costly) or 'model'}"
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        extra = error.unused_tokens[0]
        return f"unexpected argument {extra!r}: `chainrule VERB --help` lists the arguments"
    if isinstance(error, MissingArgumentError) and error.argument is not None and error.command_chain:
        verb, name = " ".join(error.command_chain), error.keyword or error.argument.name
        return f"{verb}: expected {name}{' VALUE' * name.startswith('-')}: `chainrule {verb} --help` describes it"
    return _fitted(str(error)) or type(error).__name__


def _fitted(text: str) -> str:
    return " ".join(shortened(text, 4 * LINE_LIMIT).split())


def say(line: str, status: int) -> int:
    """Print a line about the end of a command on standard error, and return its exit status."""
    print(shortened(f"chainrule: {printable(shown(line))}", LINE_LIMIT), file=sys.stderr)
    return status


# Words of other programs, and ours; of several the first that there is.
VERB_SYNONYMS = {
    "generate": ("sample",), "draw": ("sample",), "complete": ("fill", "sample"), "perplexity": ("score",),
    "loss": ("score",), "likelihood": ("score",), "eval": ("evaluate",), "test": ("evaluate",),
    "validate": ("evaluate",), "fit": ("train",), "learn": ("train",), "finetune": ("train",), "resume": ("train",),
    "encode": ("embed", "compress"), "decode": ("decompress",), "extract": ("decompress",), "show": ("info",),
    "describe": ("info",), "stats": ("info",), "explain": ("inspect",), "plot": ("inspect",),
    "verify": ("check",), "label": ("classify",), "annotate": ("tag",), "diff": ("compare",),
    "infer": ("predict", "tag", "classify", "translate", "caption", "forecast"), "help": ("--help",),
    "version": ("--version",),
    "impute": ("fill",), "detect": ("score",), "anomalies": ("score",), "play": ("serve",), "playground": ("serve",),
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


def suggestion(word: str, choices: Iterable[str], synonyms: Mapping[str, tuple[str, ...]]) -> str:
    """Suggest the nearest valid words for an unknown one, as a question; empty if none is near.

    >>> suggestion("generate", ["sample", "interpolate"], VERB_SYNONYMS)
    ' Did you mean sample?'
    >>> suggestion("--hlep", ["--steps", "--help"], {})
    ' Did you mean --help?'
    """
    choices = list(choices)
    stem, dashes = word.lstrip("-").lower().replace("_", "-"), word.startswith("-")
    matches = [f"--{other}" if dashes else other for other in synonyms.get(stem, ())]
    matches = [other for other in matches if other in choices or (not dashes and other.startswith("-"))]
    if dashes:
        matches = matches[:1]
    if not matches and len(stem) > 1:
        matches = get_close_matches(word.lower(), choices, 1, cutoff=0.7)
    if not matches:
        return ""
    *others, last = matches
    return f" Did you mean {', '.join(others)}{' or ' if others else ''}{last}?"


def unknown_option(error: UnknownOptionError, owners: Callable[[str], list[str]] | None) -> ValueError:
    """Return the error for an option that a verb lacks; `owners` lists the models of a training that have it."""
    typed = error.token.keyword or error.token.value or ""
    if owners is not None and (models := owners(typed)):
        others = f"{typed}: an option of {', '.join(models)}, not of this model"
        return ValueError(f"{others}: leave it out, or use --model {models[0]}")
    typed = typed.partition("=")[0]
    names = [name for argument in error.argument_collection if argument.parse for name in argument.names]
    return ValueError(f"Unknown option: {typed}.{suggestion(typed, [*names, '--help', '--version'], OPTION_SYNONYMS)}")


def unknown_verb(word: str, verbs: Mapping[str, str]) -> ValueError:
    """Return the error for a verb that does not exist."""
    near = suggestion(word, verbs, VERB_SYNONYMS)
    return ValueError(f'Unknown command "{word}".{near} `chainrule --help` lists all: {", ".join(verbs)}')
