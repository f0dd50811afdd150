"""The run directory: everything that a training run leaves, and all that the other verbs need.

    config.json             what was asked for (chainrule.config)
    vocabulary.json         symbols
    model.safetensors       the weights of the best validation
    checkpoint.safetensors  the last state of training, to resume from
    metrics.jsonl           figures of training; timings.jsonl, tensorboard/
    report.html             what `chainrule inspect` saw
    corpus/                 the text as symbols; made again from the text where it is missing

Nothing in it is ever executed: JSON and safetensors only, checked while read.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from chainrule.config import ModelName, RecurrentOptions, RunConfig

if TYPE_CHECKING:
    import torch

    from chainrule.base import AutoregressiveModel
    from chainrule.data.vocabulary import Vocabulary

CONFIG = "config.json"
VOCABULARY = "vocabulary.json"
WEIGHTS = "model.safetensors"
CHECKPOINT = "checkpoint.safetensors"
METRICS = "metrics.jsonl"
REPORT = "report.html"
CORPUS = "corpus"
TABLE = "table"
_FILES = (CONFIG, VOCABULARY, WEIGHTS, CHECKPOINT, METRICS, REPORT, "timings.jsonl")
_FOLDERS = (CORPUS, TABLE, "tensorboard")
_CONFIG_LIMIT = 1 << 20  # bytes; a config is a few hundred


def _recurrent(cell: ModelName) -> Callable[[int, RecurrentOptions], "AutoregressiveModel"]:
    def build(vocab_size: int, options: RecurrentOptions) -> "AutoregressiveModel":
        from chainrule.models.recurrent_lm import RecurrentLM

        return RecurrentLM(vocab_size, cell=cell, **asdict(options))

    return build


MODELS = {"lstm": _recurrent("lstm"), "gru": _recurrent("gru"), "rnn": _recurrent("rnn")}


class Run:
    """A run directory: `Run.open("runs/x").model()` is the trained model.

    Args:
        path: the directory.
        config: what its config.json holds.
    """

    def __init__(self, path: Path, config: RunConfig):
        self.path = path
        self.config = config

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a run that exists.

        Raises:
            FileNotFoundError: there is no such directory.
            ValueError: it is no run, comes from a newer version, or was tampered with.
        """
        path = Path(path)
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such run; `chainrule train DATA --out {path}` makes one")
        if not (path / CONFIG).is_file():
            raise ValueError(f"{path}: not a run: expected a directory with {CONFIG}, as `chainrule train` writes it")
        return cls(path, _read_config(path / CONFIG, cls.config_from_json))

    @classmethod
    def config_from_json(cls, content: Any) -> RunConfig:
        """The config of this kind of run, checked."""
        return RunConfig.from_json(content)

    @classmethod
    def create(cls, path: str | Path, config: Any, *, overwrite: bool = False) -> Self:
        """Make a directory for a new run and write its config.

        Raises:
            FileExistsError: something is there already; with `overwrite`, something that is no run.
        """
        path = Path(path)
        refuse_taken(path, overwrite=overwrite)
        remove(path)
        path.mkdir(parents=True, exist_ok=True)
        run = cls(path, config)
        run.write_config()
        return run

    def write_config(self) -> None:
        """Write config.json, all or nothing."""
        from chainrule.data.atomic import write_json

        write_json(self.path / CONFIG, self.config.to_json())

    @cached_property
    def vocabulary(self) -> "Vocabulary":
        """The symbols, read once."""
        from chainrule.data.levels import load_vocabulary

        vocabulary = load_vocabulary(self.path / VOCABULARY)
        if vocabulary.level != self.config.data.level:
            raise ValueError(
                f"{self.path / VOCABULARY}: the level is {vocabulary.level!r}, but {CONFIG} says "
                f"{self.config.data.level!r}: one of the two files was changed"
            )
        return vocabulary

    def new_model(self, seed: int) -> "AutoregressiveModel":
        """The model before training, its weights drawn from `seed`; the caller's random state is left alone."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self._build()

    def model(self, device: "str | torch.device" = "cpu") -> "AutoregressiveModel":
        """The trained model, best validation, in eval mode.

        Raises:
            FileNotFoundError: there are no weights yet.
            ValueError: the weights are truncated, changed, or those of another model.
        """

        from chainrule.training.checkpoint import load_weights

        weights = self.path / WEIGHTS
        if not weights.is_file():
            raise FileNotFoundError(
                f"{weights}: no weights yet; `chainrule train --resume --out {self.path}` continues the training"
            )
        there, needed = _count_weights(weights), self._fewest_weights()
        if there < needed:  # a changed config must not take the memory of the model that it claims
            raise ValueError(
                f"{weights}: holds {there} numbers, but {CONFIG} and {VOCABULARY} describe a model of at least "
                f"{needed}: one of the files was changed or comes from another run"
            )
        model = self._unfilled()
        load_weights(weights, model)
        return model.to(device).eval()

    def _unfilled(self) -> "AutoregressiveModel":
        """The model with no weights in particular: the file has them all."""
        import torch

        with torch.device("meta"):  # no memory and no random weights
            model = self._build()
        return model.to_empty(device="cpu")

    def _build(self) -> "AutoregressiveModel":
        return MODELS[self.config.model](len(self.vocabulary), self.config.options)

    def _fewest_weights(self) -> int:
        options = self.config.options
        first = (options.embedding_size or options.hidden_size) * len(self.vocabulary)
        return first + options.num_layers * options.hidden_size**2

    def metrics(self) -> list[dict[str, Any]]:
        """The records of metrics.jsonl; a last line cut short by a crash is left out."""
        path = self.path / METRICS
        if not path.is_file():
            return []
        with path.open(encoding="utf-8") as file:
            try:
                return [json.loads(line) for line in file if line.endswith("\n")]
            except ValueError as error:
                raise ValueError(f"{path}: expected one JSON object a line: {error}") from None

    def bytes_on_disk(self) -> dict[str, int]:
        """Size of each part that exists, bytes."""
        parts = {}
        for name in (*_FILES, *_FOLDERS):
            part = self.path / name
            if part.is_file():
                parts[name] = part.stat().st_size
            elif part.is_dir():
                parts[name] = sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
        return parts


def refuse_taken(path: Path, *, overwrite: bool) -> None:
    """Raise FileExistsError unless `path` is free, an empty directory or, with `overwrite`, a run."""
    if not path.exists():
        return
    if not path.is_dir():
        raise FileExistsError(f"--out {path}: this is a file; name a directory")
    if not any(path.iterdir()):
        return
    if not _is_run(path):
        raise FileExistsError(f"--out {path}: the directory is not empty and no run: name another one")
    if not overwrite:
        raise FileExistsError(
            f"--out {path}: a run is there already: continue it with --resume, replace it with --overwrite, "
            "or name another directory"
        )


def remove(path: Path) -> None:
    """Delete what a run consists of; never another file, and not the directory itself."""
    for name in _FILES:
        (path / name).unlink(missing_ok=True)
    for name in _FOLDERS:
        folder = path / name
        if folder.is_symlink():
            folder.unlink()
        elif folder.is_dir():
            shutil.rmtree(folder)


def _is_run(path: Path) -> bool:
    from chainrule.table_config import TableRunConfig

    read = TableRunConfig.from_json if kind_of(path) == TableRunConfig.KIND else RunConfig.from_json
    try:
        _read_config(path / CONFIG, read)
    except (OSError, ValueError):
        return False
    return True


def kind_of(path: Path) -> str | None:
    """Of which kind the run in a directory says that it is; None where there is none that can be read."""
    try:
        content = _read_config(path / CONFIG, lambda content: content)
    except (OSError, ValueError):
        return None
    kind = content.get("kind") if isinstance(content, dict) else None
    return kind if isinstance(kind, str) else None


def _read_config(path: Path, read: Callable[[Any], Any]) -> Any:
    if path.stat().st_size > _CONFIG_LIMIT:
        raise ValueError(f"{path}: expected at most {_CONFIG_LIMIT} bytes, got {path.stat().st_size}: damaged")
    try:
        return read(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as error:  # JSON's and Unicode's errors are ValueErrors too
        raise ValueError(f"{path}: {error or 'nested too deeply'}") from None


def _count_weights(path: Path) -> int:
    """How many numbers a file of weights announces in its header, without reading them."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 - no mapping
    except SafetensorError as error:
        raise ValueError(f"{path}: damaged, or no file of weights ({error}): restore it from a copy") from None
