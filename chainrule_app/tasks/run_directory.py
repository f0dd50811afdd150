"""The files of a run directory: everything that a training run leaves, and all that the other verbs need.

    config.json             the options (chainrule_app.tasks.config)
    model.safetensors       the weights of the best validation
    checkpoint.safetensors  the last state of training, to resume from
    checkpoint-0/, -1/      its weights and moments, of a training that is divided among processes
    metrics.jsonl           figures of training; timings.jsonl, tensorboard/, wandb/, tracking.json
    samples.jsonl           samples drawn at validations
    stop                    asks the training to save and end
    frame.json              of a run fitted on a frame: its library and dtypes
    report.html             the page of `chainrule inspect`; training.html, of `chainrule report`
    data/                   the data as it was prepared
    vocabulary.json         of a text: its symbols
    ngrams.safetensors      of a text: counts of its n-grams

Nothing in it is ever executed: JSON and safetensors only, checked while read.
"""

import errno
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from difflib import get_close_matches
from hashlib import sha256
from itertools import chain
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, cast
from weakref import finalize

from chainrule.files import check_header, naming, read_json
from chainrule.option_error import TakenError, option
from chainrule_app.printing import is_url, resume_command, shown
from chainrule_app.readers.journal import JOURNAL
from chainrule_app.readers.remote import steady_copy
from chainrule_app.tasks.config import FORMAT, format_in, task_in

CONFIG = "config.json"
VOCABULARY = "vocabulary.json"
NGRAMS = "ngrams.safetensors"
NEIGHBOURS = "neighbours.safetensors"
WEIGHTS = "model.safetensors"
CHECKPOINT = "checkpoint.safetensors"
SHARDS = ("checkpoint-0", "checkpoint-1")  # before the name above, so that a copy in the order of names is whole
METRICS = "metrics.jsonl"
BASELINE = "baseline.json"
FRAME = "frame.json"
REPORT = "report.html"
TRAINING_PAGE = "training.html"
STOP = "stop"
DATA = "data"
FILES = (
    CONFIG,
    VOCABULARY,
    NGRAMS,
    NEIGHBOURS,
    WEIGHTS,
    CHECKPOINT,
    METRICS,
    BASELINE,
    FRAME,
    REPORT,
    TRAINING_PAGE,
    "timings.jsonl",
    "samples.jsonl",
    STOP,
    "tracking.json",
    "preview.wav",
    "preview.mid",
    "samples.png",
)
_LOGS = tuple(set(FILES) - {CONFIG, VOCABULARY, NGRAMS, NEIGHBOURS, WEIGHTS})  # need not fit the other files
FOLDERS = (DATA, *SHARDS, "tensorboard", "wandb")
DRAFT = ".preparing"  # where a new run is made, in the directory that it will fill
LOCK = ".lock"
_WORKING = (LOCK, DRAFT, ".partial")  # while a process works in the directory
_CONFIG_LIMIT = 1 << 24  # bytes; a config is a few hundred, and a kilobyte for each column of a table
_HEADER_LIMIT = 1 << 24  # bytes of a weights file's header that tell it from others


def local_run(path: str | Path) -> Path:
    """Return the directory of a run: of a URL a copy, which has no checkpoint."""
    if not is_url(path):
        return Path(path)
    try:
        return steady_copy(path, CONFIG, skipped=(CHECKPOINT, *SHARDS), changing=_LOGS)
    except FileNotFoundError:
        raise FileNotFoundError(f"{shown(path)}: no such run") from None


def read_config(run: Path, read: Callable[[Any], Any]) -> Any:
    """Read the config of a run; raise FileNotFoundError or ValueError with what is wrong."""
    run = local_run(run)
    path = run / CONFIG
    if not run.exists():
        raise FileNotFoundError(f"{run}: no such run; {_remedy(run)}")
    _refuse_links(run)
    if not path.exists():
        raise ValueError(f"{run}: not a run: expected a directory with {CONFIG}, as `chainrule train` writes it")
    if not path.is_file():  # reading a pipe would wait for a writer
        raise ValueError(f"{path}: expected a file, got a folder, device or pipe: damaged")
    if path.stat().st_size > _CONFIG_LIMIT:
        raise ValueError(f"{path}: expected at most {_CONFIG_LIMIT} bytes, got {path.stat().st_size}: damaged")
    try:
        return read(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as error:  # JSON's and Unicode's errors are ValueErrors too
        raise ValueError(f"{path}: {error or 'nested too deeply'}") from None


def _refuse_links(run: Path) -> None:
    """Refuse a run with a link among its files: a run may come from a stranger, and a report quotes what it reads."""
    inside = (path for name in (DATA, *SHARDS) for path in (run / name).rglob("*"))
    for path in chain((run / name for name in (*FILES, *FOLDERS, *_WORKING)), inside):
        if path.is_symlink():
            raise ValueError(f"{path}: expected a file of the run, got a link: replace the link by the file")


def _remedy(path: Path) -> str:
    """Suggest a run of nearly that name, here or in `runs`, where `train` puts them; else how to create it."""
    folders = (path.parent, path.parent / "runs")
    there = {run.parent.name: run.parent for folder in folders for run in folder.glob(f"*/{CONFIG}")}
    near = get_close_matches(path.name, there, 1)
    return f"did you mean {there[near[0]]}?" if near else f"create one with `chainrule train DATA --out {path}`"


def check_facts(path: Path, facts: dict[str, Any], prepared: str) -> None:
    """Refuse a config whose facts differ from the prepared data's."""
    try:
        manifest = read_json(path / prepared)
    except (OSError, ValueError):
        return
    for name in facts.keys() & manifest.keys() - {"name"}:  # a file may be renamed
        if json.loads(json.dumps(facts[name])) != manifest[name]:
            raise ValueError(f"{path / CONFIG}: facts.{name} does not match {prepared}: one of the two was changed")


class ChangedRunError(ValueError):
    """The files of a run are no longer those that were opened."""

    def __init__(self, path: Path):
        what = "was trained again" if path.is_dir() else "was deleted"
        super().__init__(f"{path}: this run {what} since it was opened: load it again")


def identity(run: Path) -> str:
    """Hash the config and the header of the weights, which holds their digest: equal files of one training agree."""
    digest = sha256()
    for name, read in ((CONFIG, _read_config_bytes), (WEIGHTS, _read_header_bytes)):
        with suppress(OSError):  # absent, as the weights are before the first validation
            if (run / name).is_file():
                digest.update(name.encode() + read(run / name))
    return digest.hexdigest()


def _read_config_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_CONFIG_LIMIT)


def _read_header_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(min(int.from_bytes(file.read(8), "little"), _HEADER_LIMIT))


def task_of(path: Path) -> str | None:
    """Return the task of the run in a directory; None if no run can be read."""
    try:
        return cast(str, read_config(path, task_in))
    except (OSError, ValueError):
        return None


def refuse_taken(path: Path, *, overwrite: bool, name: str = "out") -> None:
    """Raise TakenError unless `path` is free, holds leftovers of a killed process, or with `overwrite` a run."""
    if not path.exists():
        return
    if not path.is_dir():
        raise TakenError(name, f"{path} is a file", "name a directory")
    names = {part.name for part in path.iterdir()} - {LOCK}
    if not names or (DRAFT in names and CONFIG not in names):
        return
    run_format = _format_of_run(path)
    if run_format is None:
        raise TakenError(name, f"{path} is not empty and not a run", "name another directory")
    if not overwrite:
        ours = run_format == FORMAT
        other, resume = ("", f"continue it with `{resume_command(path)}`, ") if ours else (" of another format", "")
        remedy = f"{resume}replace it with {option('overwrite', True)}, or name another directory"
        raise TakenError(name, f"{path} holds a run{other} already", remedy)


def remove(path: Path) -> None:
    """Delete the files of a run except a draft; keep other files and the directory."""
    _remove_parts(path)
    for name in FILES:
        (path / name).unlink(missing_ok=True)
    for name in FOLDERS:
        remove_folder(path / name)


def remove_unfinished(path: Path) -> None:
    """Delete what killed processes left: partial files, and the draft of another run."""
    _remove_parts(path)
    remove_folder(path / DRAFT)


def clear_draft(path: Path, *, keep_answers: bool) -> None:
    """Delete the draft of a run; keep, if asked, what a preparation that was stopped has counted and encoded."""
    draft, data = path / DRAFT, path / DRAFT / DATA
    if not keep_answers or not (data / JOURNAL).is_dir() or any(part.is_symlink() for part in (draft, data)):
        remove_folder(draft)
        return
    for part in (*draft.iterdir(), *data.iterdir()):
        if part not in (data, data / JOURNAL):
            remove_folder(part) if part.is_dir() else part.unlink()


def _remove_parts(path: Path) -> None:
    partial = [file for name in FILES for file in path.glob(f".{name}.*")]
    for file in (*partial, *(path / DATA).glob(".*.json.*")):
        file.unlink()
    for folder in (path, path / DATA):
        remove_folder(folder / ".partial")


def remove_folder(path: Path) -> None:
    """Delete a folder; of a link, the link alone."""
    if path.is_symlink():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)


def bytes_on_disk(path: Path) -> dict[str, int]:
    parts = {}
    for name in (*FILES, *FOLDERS):
        part = path / name
        if part.is_file():
            parts[name] = part.stat().st_size
        elif part.is_dir():
            parts[name] = sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
    return parts


def sealed_record(path: Path) -> dict[str, Any]:
    """Read the JSON record in the header of a file of `chainrule.training._checkpoint`."""
    text = (read_header(path, lambda file: file.metadata()) or {}).get("chainrule", "")
    try:
        record = json.loads(text.partition(" ")[2])
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise ValueError(f"{path}: expected a record written by chainrule, got another: restore the file from a copy")
    return record


def read_header(path: Path, read: Callable[[Any], Any]) -> Any:
    """Read something of the header of a weights file."""
    from safetensors import SafetensorError, safe_open

    check_header(path)
    try:
        with safe_open(path, framework="np") as file:  # imports no torch
            return read(file)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path}: damaged, or not a weights file ({error}): restore it from a copy") from None


def _format_of_run(path: Path) -> int | None:
    from chainrule_app.tasks import open_run

    try:
        run_format: int = read_config(path, format_in)
        if run_format == FORMAT:
            open_run(path)
    except (OSError, ValueError):
        return None
    return run_format


_UNSUPPORTED = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}  # by file systems without locks


@contextmanager
def lock_run(path: Path) -> Iterator[None]:
    """Hold the lock of a run directory during the block; creates the directory."""
    new_folders = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    file = path / LOCK
    try:
        with _locked(file) as free:
            if not free:
                raise TakenError("out", f"{_holder(file)} is working in {path}", "wait for it, or stop it")
            since = datetime.now().astimezone().isoformat(" ", "seconds")
            with suppress(PermissionError):  # Windows locks the content too
                file.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}))
            try:
                yield
            finally:
                with suppress(OSError):  # Windows removes no open file
                    file.unlink()
    finally:
        with suppress(OSError):  # not empty: the run is there
            for folder in new_folders:
                folder.rmdir()


def is_locked(path: Path) -> bool:
    """Tell if a process is working in a run directory."""
    if not (path / LOCK).is_file():
        return False
    with _locked(path / LOCK) as free:
        return not free


@contextmanager
def _locked(file: Path) -> Iterator[bool]:
    """Yield whether the lock was free, held during the block; always on file systems without locks."""
    from filelock import FileLock, Timeout

    lock = FileLock(file)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        yield False
        return
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    try:
        yield True
    finally:
        lock.release()


def _holder(file: Path) -> str:
    try:
        with file.open("rb") as content:
            holder = json.loads(content.read(1 << 12))
        return f"process {int(holder['pid'])} on {holder['host']!s:.64} (since {holder['since']!s:.32})"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # not yet written, or damaged
        return "another process"


class TemporaryFolder:
    """New folder, deleted together with this object or when Python ends; a pickle holds its files."""

    def __init__(self) -> None:
        self.path = Path(mkdtemp(prefix="chainrule-run-"))
        self.remove = finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def __getstate__(self) -> dict[str, bytes]:
        files = (file for file in self.path.rglob("*") if file.is_file() and not file.is_symlink())
        return {file.relative_to(self.path).as_posix(): file.read_bytes() for file in files if file.name != LOCK}

    def __setstate__(self, files: dict[str, bytes]) -> None:
        TemporaryFolder.__init__(self)
        for name, content in files.items():
            file = self.path / name
            if not file.resolve().is_relative_to(self.path.resolve()):
                raise ValueError(f"{name}: expected a file inside the run")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


def copy_run(run: Path, target: Path, *, overwrite: bool) -> None:
    """Copy a run directory; the target is replaced only when the copy is complete."""
    if target.resolve().is_relative_to(run.resolve()):
        raise ValueError(f"{target}: the run is there already: name another directory")
    refuse_taken(target, overwrite=overwrite, name="path")
    draft = target / DRAFT
    remove_folder(draft)
    try:
        with naming(draft):
            shutil.copytree(run, draft, ignore=shutil.ignore_patterns(".*"))
        remove(target)
        for part in sorted(draft.iterdir(), key=lambda part: part.name == CONFIG):  # last: it makes the directory a run
            part.rename(target / part.name)
    finally:
        remove_folder(draft)
