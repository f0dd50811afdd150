"""The run directory: everything that a training run leaves, and all that the other verbs need.

    config.json             what was asked for (chainrule.runs.config)
    model.safetensors       the weights of the best validation
    checkpoint.safetensors  the last state of training, to resume from
    metrics.jsonl           figures of training; timings.jsonl, tensorboard/
    report.html             what `chainrule inspect` saw

and the data as it was prepared: of a text, `vocabulary.json` and `corpus/`; of a table, `table/`; else `data/`.

Nothing in it is ever executed: JSON and safetensors only, checked while read.
"""

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, cast

from chainrule.runs.config import OptimisationOptions, RunConfig, kind_in
from chainrule.runs.kinds import run_class
from chainrule.runs.lock import LOCK

if TYPE_CHECKING:
    import torch

    from chainrule.base import LikelihoodModel

CONFIG = "config.json"
VOCABULARY = "vocabulary.json"
WEIGHTS = "model.safetensors"
CHECKPOINT = "checkpoint.safetensors"
METRICS = "metrics.jsonl"
REPORT = "report.html"
CORPUS = "corpus"
TABLE = "table"
DATA = "data"
_FILES = (
    CONFIG,
    VOCABULARY,
    WEIGHTS,
    CHECKPOINT,
    METRICS,
    REPORT,
    "timings.jsonl",
    "preview.wav",
    "samples.png",
    "receptive-field.png",
)
_FOLDERS = (CORPUS, TABLE, DATA, "tensorboard")
DRAFT = ".preparing"  # where a new run is made, in the directory that it will fill
M = TypeVar("M", bound="LikelihoodModel")
_CONFIG_LIMIT = 1 << 20  # bytes; a config is a few hundred, and a kilobyte for each column of a table


class Run(ABC, Generic[M]):
    """A run directory: `Run.open("runs/x").model()` is the trained model.

    A subclass is a kind of run. It says which options there are, and builds the model from them and from the facts that
    preparing the data left.

    Args:
        path: the directory.
        config: what its config.json holds.

    Attributes:
        KIND: its name in config.json, a key of `chainrule.runs.kinds.RUNS`.
        SOURCES: names of the files of the data, and what each is called on the command line.
        DATA: the dataclass of options of how they are read.
        MODELS: the dataclass of options of each model, by name.
        TRAINING: the dataclass of options of training.
    """

    KIND: ClassVar[str]
    SOURCES: ClassVar[dict[str, str]] = {"source": "DATA", "validation": "--validation"}
    DATA: ClassVar[type]
    MODELS: ClassVar[dict[str, type]]
    TRAINING: ClassVar[type[OptimisationOptions]] = OptimisationOptions

    def __init__(self, path: Path, config: RunConfig):
        self.path = path
        self.config = config

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a run that exists; `Run.open` one of any kind.

        Raises:
            FileNotFoundError: there is no such directory.
            ValueError: it is no run, of another kind or format, or was tampered with.
        """
        path = Path(path)
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such run; `chainrule train DATA --out {path}` makes one")
        if not (path / CONFIG).is_file():
            raise ValueError(f"{path}: not a run: expected a directory with {CONFIG}, as `chainrule train` writes it")
        kind = _read_config(path / CONFIG, lambda content: run_class(kind_in(content))) if cls is Run else cls
        return cast(Self, kind(path, _read_config(path / CONFIG, lambda content: RunConfig.from_json(content, kind))))

    @classmethod
    def check_facts(cls, facts: dict[str, Any]) -> None:
        """Raise ValueError for facts that preparing the data cannot have left."""

    @classmethod
    def check_config(cls, config: RunConfig) -> None:
        """Raise ValueError for options that do not go together."""

    @abstractmethod
    def build(self) -> M:
        """The model that config and data describe, its weights drawn by torch's own generator."""

    def fewest_weights(self) -> int:
        """A number of weights that the model has at least: files with fewer are refused before it takes memory."""
        return 0

    @classmethod
    def create(cls, path: str | Path, config: RunConfig, *, overwrite: bool = False) -> Self:
        """Make a directory for a new run and write its config.

        Raises:
            FileExistsError: something is there already; with `overwrite`, something that is no run.
            ValueError: the options do not go together.
        """
        cls.check_config(config)
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

        write_json(self.path / CONFIG, self.config.to_json(self.KIND))

    def new_model(self, seed: int) -> M:
        """The model before training, its weights drawn from `seed`; the caller's random state is left alone."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.build()

    def model(self, device: "str | torch.device" = "cpu") -> M:
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
        there, needed = _count_weights(weights), self.fewest_weights()
        if there < needed:  # a changed config must not take the memory of the model that it claims
            raise ValueError(
                f"{weights}: holds {there} numbers, but {CONFIG} and the data beside it describe a model of at least "
                f"{needed}: one of the files was changed or comes from another run"
            )
        model = self._unfilled()
        load_weights(weights, model)
        return model.to(device).eval()

    def _unfilled(self) -> M:
        """The model with no weights in particular, as the file has them all; what is in no file is made with it."""
        return self.new_model(0)

    def metrics(self) -> list[dict[str, Any]]:
        """The records of metrics.jsonl; a last line cut short by a crash is left out."""
        from chainrule.training.metrics import read_metrics

        path = self.path / METRICS
        return list(read_metrics(path)) if path.is_file() else []

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
    """Raise FileExistsError unless `path` is free, or with `overwrite` a run. What a killed process left is free."""
    if not path.exists():
        return
    if not path.is_dir():
        raise FileExistsError(f"--out {path}: this is a file; name a directory")
    names = {part.name for part in path.iterdir()} - {LOCK}
    if not names or (DRAFT in names and CONFIG not in names):
        return
    if not _is_run(path):
        raise FileExistsError(f"--out {path}: the directory is not empty and no run: name another one")
    if not overwrite:
        raise FileExistsError(
            f"--out {path}: a run is there already: continue it with --resume, replace it with --overwrite, "
            "or name another directory"
        )


def remove(path: Path) -> None:
    """Delete what a run consists of, a draft apart; never another file, and not the directory itself."""
    for name in _FILES:
        (path / name).unlink(missing_ok=True)
        for partial in path.glob(f".{name}.*"):  # a file that a killed process did not finish
            partial.unlink()
    for name in (*_FOLDERS, ".partial"):
        remove_folder(path / name)


def remove_folder(path: Path) -> None:
    """Delete a folder with all in it; of a link, the link alone."""
    if path.is_symlink():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)


def _is_run(path: Path) -> bool:
    try:
        Run.open(path)
    except (OSError, ValueError):
        return False
    return True


def kind_of(path: Path) -> str | None:
    """Of which kind the run in a directory says that it is; None where there is none that can be read."""
    try:
        return cast(str, _read_config(path / CONFIG, kind_in))
    except (OSError, ValueError):
        return None


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
