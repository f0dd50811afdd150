"""The command `chainrule`: find the verb, run it, and report an error in one line and an exit status.

Nothing heavy is imported here or at the top of a verb's file: `chainrule --help` must answer at once.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, closing, redirect_stdout
from difflib import get_close_matches
from inspect import Parameter, signature
from itertools import pairwise
from pathlib import Path
from shlex import quote
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO, cast, get_args

from cyclopts import (
    App,
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from chainrule.files import write_text
from chainrule.option_error import PeerError, UserError, WriteOption
from chainrule.printing import printable
from chainrule_app.cli.selection import described_verbs, is_verb, owners, select, verbs_of
from chainrule_app.cli.signature import Verb, check_arguments, open_run
from chainrule_app.printing import WRITE_OPTION
from chainrule_app.readers.text import shown
from chainrule_app.tasks.display import SafeOutput, Substitution, counted, flag, quoted, shortened
from chainrule_app.tasks.task import Task

if TYPE_CHECKING:
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions

LINE_LIMIT = 299  # characters of an error: a message may quote data of any size
EMPTY = "expected the name of a file or folder, got an empty one: is a variable of the shell not set?"
USER_ERROR, INTERRUPTED, BROKEN_PIPE = 2, 130, 141  # the last two as a shell reports SIGINT and SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    began = monotonic()
    if "torch" not in sys.modules:  # it reads them once
        bound_spinning(os.environ)
        os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")  # torch names each operator that mps lacks, once
    verb_flags: dict[str, str] = {}
    spelling = WRITE_OPTION.set(_as_flag(verb_flags))
    streams = {name: Substitution.of(getattr(sys, name), f"chainrule.{name}") for name in ("stdout", "stderr")}
    try:
        status = _run(sys.argv[1:] if arguments is None else list(arguments), verb_flags, began, streams.values())
        sys.stdout.flush()
        if lost := streams["stdout"].lost:
            print(
                f"standard output is {sys.stdout.encoding}, without {counted(lost, 'character')} of this text: "
                "printed as ?; PYTHONIOENCODING=utf-8 prints UTF-8, which a file written by --out always is",
                file=sys.stderr,
            )
        return status
    except BrokenPipeError:  # the reader, `head` for one, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit fails again
        return BROKEN_PIPE
    except KeyboardInterrupt as error:
        return _say(str(error) or "interrupted", INTERRUPTED)
    except PeerError:
        return USER_ERROR
    except Exception as error:
        if os.environ.get("CHAINRULE_DEBUG") or not _is_expected(error):
            raise
        return _say(_one_line(error, verb_flags), USER_ERROR)
    finally:
        WRITE_OPTION.reset(spelling)


def _run(arguments: list[str], verb_flags: dict[str, str], began: float, streams: Iterable[Substitution]) -> int:
    """Run a command line that started at `began`; adds the flag of each option of its verb to `verb_flags`."""
    given: set[str] = set()
    files: set[str] = set()  # flags of sources, which may be patterns

    def refuse_empty_paths(app: App, commands: tuple[str, ...], arguments: Any) -> None:
        for argument in arguments:
            if any(not token.value for token in argument.tokens) and (
                argument.name in files or Path in (argument.hint, *get_args(argument.hint))
            ):
                raise ValueError(f"{argument.name}: {EMPTY}")

    def remember(app: App, commands: tuple[str, ...], arguments: Any) -> None:
        given.update(argument.field_info.name for argument in arguments if argument.tokens)
        verb_flags.update((argument.field_info.name, argument.name) for argument in arguments)

    app = App(
        name="chainrule",
        help="Exact models of sequences, one element at a time: text, tables, images, sound, music, and their labels.",
        help_format="plaintext",  # Markdown would take <unk> for a tag and drop it
        help_formatter=FoldedHelp(),
        version=_version,
        version_flags=["--version"],
        config=(refuse_empty_paths, remember),
    )
    if any(not word and not before.startswith("-") for before, word in pairwise(["", *arguments])):
        raise ValueError(EMPTY)
    name = arguments[0] if arguments else ""
    if name == "train":  # the parser takes - for an option where several files may follow
        arguments = [_STDIN if word == "-" else word for word in arguments]
    if name == "--install-completion":
        return _install_completion(app)
    task: type[Task[Any]] | None = None
    verb: Verb | None = None
    verbs: dict[str, str] = {}
    if is_verb(name):
        task, verb = select(name, arguments[1:])
        if verb is None:
            own = ", ".join(verbs_of(task))
            raise ValueError(f"{name}: not a verb of the task {task.name}, which has {own}")
        files.update(source.flag for source in task.SOURCES.values() if source.flag)
        app.command(verb.function, name=name, help=verb.help or None, usage=usage(name, verb.function))
    else:
        verbs = dict(described_verbs())
        for index, (other, line) in enumerate(verbs.items()):
            app.command(_listed, name=other, help=line, sort_key=index)
    try:
        command, bound, unbound = app.parse_args(arguments, exit_on_error=False, print_error=False)
        if verb is None or command is not verb.function:  # help and version, which style their own text
            return command(*bound.args, **bound.kwargs) or 0
        context = {"given": frozenset(given), "began": began}
        bound.arguments.update({name: context[name] for name in unbound if name in context})
        for stream in streams:
            stream.json = "json" in given
        with closing(SafeOutput(sys.stdout)) as out, redirect_stdout(cast(TextIO, out)), ExitStack() as stack:
            assert task is not None
            check_arguments(command, bound.arguments)
            open_run(task, bound.arguments, stack)
            return command(*bound.args, **bound.kwargs) or 0
    except UnknownOptionError as error:
        flag_typed = error.token.keyword or error.token.value
        models = owners(task, flag_typed) if task is not None and name == "train" else []
        if not models:
            flag_typed = (flag_typed or "").partition("=")[0]
            names = [name for argument in error.argument_collection if argument.parse for name in argument.names]
            near = suggestion(flag_typed, [*names, "--help", "--version"], OPTION_SYNONYMS)
            raise ValueError(f"Unknown option: {flag_typed}.{near}") from None
        raise ValueError(
            f"{flag_typed}: an option of {', '.join(models)}, not of this model: "
            f"leave it out, or use --model {models[0]}"
        ) from None
    except UnknownCommandError:
        near = suggestion(arguments[0], verbs, VERB_SYNONYMS)
        raise ValueError(
            f'Unknown command "{arguments[0]}".{near} `chainrule --help` lists all: {", ".join(verbs)}'
        ) from None


def _as_flag(verb_flags: Mapping[str, str]) -> WriteOption:
    """Return a function that writes options as flags, by the flag of each option of a verb.

    >>> write = _as_flag({"values": "--with", "data": "DATA"})
    >>> write("values", "draw"), write("data", None), write("labels", False), write("overwrite", True)
    ('--with draw', 'DATA', '--no-labels', '--overwrite')
    """

    def write(name: str, value: Any) -> str:
        if isinstance(value, bool):
            return flag(name if value else f"no_{name}")
        own = verb_flags.get(name) or flag(name)
        return own if value is None else f"{own} {quote(value)}"

    return write


_LOADING = {
    "bash": "bash-completion loads it in a new shell; without that package, add this line to ~/.bashrc: . {script}",
    "zsh": "add this line to ~/.zshrc, before compinit: fpath=({folder} $fpath)",
    "fish": "a new shell loads it",
    "powershell": "add this line to your profile ($PROFILE): . {script}",
}


def _install_completion(app: App) -> int:
    """Write a completion script for all verbs, with the options of the first task that has each.

    The startup files of the shell belong to the user: a line says what to add to them.
    """
    from cyclopts.completion.detect import ShellDetectionError, detect_shell
    from cyclopts.completion.install import get_default_completion_path

    try:
        shell = detect_shell()
    except ShellDetectionError:
        raise ValueError(f"--install-completion: expected {', '.join(_LOADING)} in the variable SHELL") from None
    for name, _ in described_verbs():
        template = select(name, [])[1]
        assert template is not None
        app.command(template.function, name=name)
    script = get_default_completion_path(shell, "chainrule")
    write_text(script, app.generate_completion(shell=shell))
    print(f"wrote {script}; {_LOADING[shell].format(script=quoted(script), folder=quoted(script.parent))}")
    return 0


_STDIN = "/dev/stdin"


def _listed() -> None:
    """Stand for a verb in the list of all verbs."""


def _is_expected(error: Exception) -> bool:
    """Tell if a user can cause this error: it is then reported in one line, without a traceback."""
    if isinstance(error, CycloptsError | ValueError | OSError | ImportError | MemoryError):
        return True
    return type(error).__module__.split(".")[0] == "chainrule" or _is_out_of_memory(error)


def _is_out_of_memory(error: Exception) -> bool:
    # On the CPU, torch raises a RuntimeError like any other: only its message says that memory is what is missing.
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))


_COSTLY = ("batch_size", "hidden_size", "channels", "rows", "steps", "beam", "paths", "particles", "n")


def _one_line(error: Exception, verb_flags: dict[str, str]) -> str:
    if isinstance(error, UserError):
        return _fitted(error.written(_as_flag(verb_flags)))
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


def _say(line: str, status: int) -> int:
    print(shortened(f"chainrule: {printable(shown(line))}", LINE_LIMIT), file=sys.stderr)
    return status


BOUNDED = {
    "GOMP_SPINCOUNT": "3000",  # GNU, in torch's wheels for Linux: rounds of waiting, 300,000 if not set
    "KMP_BLOCKTIME": "1",  # Intel and LLVM, in other builds of torch: milliseconds, 200 if not set
}
ASKED = ("OMP_WAIT_POLICY", *BOUNDED)


def bound_spinning(environment: MutableMapping[str, str]) -> None:
    """Let waiting threads sleep early, unless the user has configured how they wait."""
    if not any(name in environment for name in ASKED):
        environment.update(BOUNDED)


def _version() -> str:
    from chainrule import __version__

    return __version__


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


def usage(name: str, function: Callable[..., Any]) -> str:
    words = [f"Usage: chainrule {name} [OPTIONS]"]
    for argument in signature(function).parameters.values():
        if argument.kind is Parameter.VAR_POSITIONAL:
            words.append(f"{argument.name.upper()}...")
        elif argument.kind is Parameter.POSITIONAL_ONLY:
            label = argument.name.upper()
            required = any(
                getattr(extra, "required", False) for extra in getattr(argument.annotation, "__metadata__", ())
            )
            words.append(label if required or argument.default is Parameter.empty else f"[{label}]")
    return " ".join(words) + "\n"


class FoldedHelp:
    """Help of cyclopts whose texts wrap at spaces only, not at a docstring's own line ends."""

    def render_description(self, console: "Console", options: "ConsoleOptions", description: Any) -> None:
        """Print the description of a verb, one line per paragraph."""
        from rich.console import Group
        from rich.text import Text

        parts = description.renderables if isinstance(description, Group) else [description]
        for part in parts:
            text = getattr(part, "primary_renderable", part)
            plain = text.plain if isinstance(text, Text) else str(text)
            paragraphs = [" ".join(paragraph.split()) for paragraph in plain.strip().split("\n\n")]
            console.print(Text("\n\n".join(paragraphs) + "\n"))

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
        from cyclopts.help import DefaultFormatter
        from rich.text import Text

        for entry in panel.entries:
            text = getattr(entry.description, "primary_renderable", None)
            if isinstance(text, Text):
                entry.description.primary_renderable = Text(" ".join(text.plain.split()), end=text.end)
        DefaultFormatter()(console, options, panel)
