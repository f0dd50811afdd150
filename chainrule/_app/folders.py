"""Directories of runs: temporary ones, which disappear with their run, and copies at a place of the user's choice."""

import shutil
from pathlib import Path
from tempfile import mkdtemp
from weakref import finalize

from chainrule._app.tasks.run_directory import CONFIG, DRAFT, refuse_taken, remove, remove_folder


class TemporaryFolder:
    """A new folder that is deleted together with this object, or when Python ends."""

    def __init__(self) -> None:
        self.path = Path(mkdtemp(prefix="chainrule-run-"))
        self.remove = finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raise FileExistsError unless a path is free, or with `overwrite` a run."""
    try:
        refuse_taken(path, overwrite=overwrite)
    except FileExistsError:
        again = "only a run is replaced" if overwrite else "overwrite=True replaces a run"
        raise FileExistsError(f"{path}: there is something already: {again}; or name another directory") from None


def copy_run(run: Path, target: Path, *, overwrite: bool) -> None:
    """Copy a run directory. What is at the target is replaced only once the whole copy is there."""
    if target.resolve().is_relative_to(run.resolve()):
        raise ValueError(f"{target}: the run is there already: name another directory")
    refuse_existing(target, overwrite=overwrite)
    draft = target / DRAFT
    remove_folder(draft)
    try:
        shutil.copytree(run, draft, ignore=shutil.ignore_patterns(".*"))
        remove(target)
        for part in sorted(draft.iterdir(), key=lambda part: part.name == CONFIG):  # last: it makes the directory a run
            part.rename(target / part.name)
    finally:
        remove_folder(draft)
