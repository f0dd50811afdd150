"""The files of a run directory: everything that a training run leaves, and all that the other verbs need.

    config.json             what was asked for (chainrule.tasks.config)
    model.safetensors       the weights of the best validation
    checkpoint.safetensors  the last state of training, to resume from
    metrics.jsonl           figures of training; timings.jsonl, tensorboard/
    report.html             what `chainrule inspect` saw
    data/                   the data as it was prepared
    vocabulary.json         of a text: its symbols

Nothing in it is ever executed: JSON and safetensors only, checked while read.
"""

import json
import shutil
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any, cast

from chainrule.tasks.config import task_in
from chainrule.tasks.lock import LOCK

CONFIG = "config.json"
VOCABULARY = "vocabulary.json"
WEIGHTS = "model.safetensors"
CHECKPOINT = "checkpoint.safetensors"
METRICS = "metrics.jsonl"
REPORT = "report.html"
DATA = "data"
FILES = (
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
FOLDERS = (DATA, "tensorboard")
DRAFT = ".preparing"  # where a new run is made, in the directory that it will fill
_CONFIG_LIMIT = 1 << 20  # bytes; a config is a few hundred, and a kilobyte for each column of a table


def read_config(path: Path, read: Callable[[Any], Any]) -> Any:
    """What `read` makes of the content of a config.json.

    Raises:
        ValueError: the file is damaged, or `read` refuses it; the message names the file.
    """
    if path.stat().st_size > _CONFIG_LIMIT:
        raise ValueError(f"{path}: expected at most {_CONFIG_LIMIT} bytes, got {path.stat().st_size}: damaged")
    try:
        return read(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as error:  # JSON's and Unicode's errors are ValueErrors too
        raise ValueError(f"{path}: {error or 'nested too deeply'}") from None


def task_of(path: Path) -> str | None:
    """The name of the task of the run in a directory; None where no run can be read."""
    try:
        return cast(str, read_config(path / CONFIG, task_in))
    except (OSError, ValueError):
        return None


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
    """Delete what a run consists of, except a draft; never another file, and not the directory itself."""
    for name in FILES:
        (path / name).unlink(missing_ok=True)
        for partial in path.glob(f".{name}.*"):  # a file that a killed process did not finish
            partial.unlink()
    for name in (*FOLDERS, ".partial"):
        remove_folder(path / name)


def remove_folder(path: Path) -> None:
    """Delete a folder with all in it; of a link, the link alone."""
    if path.is_symlink():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)


def bytes_on_disk(path: Path) -> dict[str, int]:
    """Size of each part of a run that exists, bytes."""
    parts = {}
    for name in (*FILES, *FOLDERS):
        part = path / name
        if part.is_file():
            parts[name] = part.stat().st_size
        elif part.is_dir():
            parts[name] = sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
    return parts


def count_weights(path: Path) -> int:
    """How many numbers a file of weights announces in its header, without reading them."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 - no mapping
    except SafetensorError as error:
        raise ValueError(f"{path}: damaged, or no file of weights ({error}): restore it from a copy") from None


def _is_run(path: Path) -> bool:
    from chainrule.tasks import open_run

    try:
        open_run(path)
    except (OSError, ValueError):
        return False
    return True
