"""The bounded folder of copies of what lies behind URLs.

    url-objects/s3/BUCKET/KEY   the copies, by the parts of their URLs
    url-work/s3/BUCKET/RUN      runs that are trained, whose files go back to their URLs
    versions/...            what the storage said of each copy: its tag, size and time; its own time is the last use
    partial/                copies under way
    using/                  for each process the copies that it uses, which nobody deletes before it ends

Copies that were not used for the longest time leave first.
"""

import json
import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

from chainrule.files import write_json
from chainrule_app.printing import TREES

CACHE, LIMIT = "CHAINRULE_CACHE", "CHAINRULE_CACHE_GB"  # environment variables
DEFAULT_LIMIT = 20.0  # GB
OBJECTS, WORK = TREES
_OLD = 86_400.0  # seconds after which a part belongs to nobody


def note_version(path: Path, version: dict[str, Any]) -> None:
    """Record which content of its object a copy holds."""
    target = version_path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_json(target, version)


def is_current(path: Path, version: dict[str, Any]) -> bool:
    try:
        known, size = json.loads(version_path(path).read_bytes()), path.stat().st_size
    except (OSError, ValueError):
        return False
    return bool(len(version) > 1 and known == version and version["size"] in (None, size))


def root() -> Path:
    own = os.environ.get(CACHE)
    path = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chainrule"
    return path.absolute()


def folder(name: str) -> Path:
    return root() / name


def version_path(path: Path) -> Path:
    return folder("versions") / f"{path.relative_to(root())}.json"


def drop(path: Path) -> None:
    path.unlink(missing_ok=True)
    version_path(path).unlink(missing_ok=True)


def make_room(what: str, needed: int, replaced: Collection[Path]) -> None:
    """Delete the copies that were not used for the longest time, as far as the limit asks for it."""
    most = _limit() * 1e9
    for part in folder("partial").glob("*"):
        if time.time() - part.stat().st_mtime > _OLD:  # of a process that was killed
            part.unlink(missing_ok=True)
    copies = (path for tree in TREES for path in folder(tree).rglob("*"))
    sizes = {path: path.stat().st_size for path in copies if path.is_file()}
    held, used = sum(sizes.values()) - sum(sizes.get(path, 0) for path in replaced), list(_in_use())
    for path in sorted(sizes.keys() - replaced, key=_last_use):
        if held + needed <= most:
            break
        if not any(path.is_relative_to(each) for each in used):
            held -= sizes[path]
            drop(path)
    if held + needed > most:
        raise ValueError(
            f"{what}: needs {needed / 1e9:.3g} GB, but {root()} is limited to {most / 1e9:g} GB, of which running "
            f"processes use {held / 1e9:.3g}: raise {LIMIT}"
        )


def _limit() -> float:
    given = os.environ.get(LIMIT)
    try:
        limit = DEFAULT_LIMIT if not given else float(given)
    except ValueError:
        limit = -1.0
    if not limit > 0:
        raise ValueError(f"{LIMIT}: expected a number of gigabytes above 0, got {given!r:.40}")
    return limit


def _last_use(path: Path) -> float:
    try:
        return version_path(path).stat().st_mtime
    except OSError:
        return 0.0


_claims: dict[tuple[int, str], tuple[Any, set[str]]] = {}  # of this process: its lock, and the copies that it uses


def use(path: Path) -> None:
    """Keep a copy or a folder of them from leaving while this process lasts."""
    from filelock import FileLock

    using = folder("using")
    who = os.getpid(), str(using)
    if who not in _claims:
        using.mkdir(parents=True, exist_ok=True)
        lock = FileLock(using / f"{token_hex(8)}.lock")
        lock.acquire()
        _claims[who] = lock, set()
    lock, roots = _claims[who]
    if str(path) not in roots:
        roots.add(str(path))
        write_json(Path(lock.lock_file).with_suffix(".json"), {"uses": sorted(roots)})


def _in_use() -> Iterator[Path]:
    """Yield what running processes use; what ended ones left is deleted."""
    from filelock import FileLock, Timeout

    own = {Path(lock.lock_file) for lock, _ in _claims.values()}
    for file in folder("using").glob("*.lock"):
        try:
            if file not in own:
                with FileLock(file, blocking=False):
                    file.with_suffix(".json").unlink(missing_ok=True)
                    file.unlink(missing_ok=True)
                    continue
        except Timeout:
            pass
        with suppress(OSError, ValueError):
            yield from map(Path, json.loads(file.with_suffix(".json").read_bytes())["uses"])
