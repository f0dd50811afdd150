"""Data and runs behind URLs: every object is copied into a bounded folder, and read from there as any other file.

Credentials come from the environment, as the packages of fsspec read it; what a URL holds of them is neither printed
nor recorded.
"""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

from chainrule.files import naming
from chainrule_app.printing import URL, public
from chainrule_app.readers.copies import (
    OBJECTS,
    drop,
    folder,
    is_current,
    make_room,
    note_version,
    use,
    version_path,
)

WEB = ("http", "https")
_MAGIC = "*?["
_RANGE = 1 << 24  # bytes that are asked for at once
_ATTEMPTS, _PAUSE = 5, 0.25  # of each question; seconds before the second one, doubled each time
_FRESH = 5.0  # seconds in which a URL is not looked up again
_TAGS = ("etag", "e_tag", "versionid", "md5hash", "content-md5", "generation", "oid", "blob_id")
_TIMES = ("lastmodified", "last_modified", "last-modified", "mtime", "modified", "updated", "created")
_PACKAGES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hf": "huggingface_hub", "http": "aiohttp",
    "https": "aiohttp", "az": "adlfs", "abfs": "adlfs", "sftp": "paramiko",
}  # fmt: skip
Answer = TypeVar("Answer")
Info = Mapping[str, Any]  # what a storage says of an object


@dataclass(frozen=True)
class Place:
    """An object, a folder of objects or a pattern of their names in a storage."""

    scheme: str
    name: str = field(repr=False)  # as the file system takes it, which may hold a signature
    fs: Any = field(repr=False)
    tree: str = OBJECTS  # that holds its copy

    @classmethod
    def of(cls, url: str | Path, tree: str = OBJECTS) -> "Place":
        match = URL.fullmatch(str(url))
        assert match is not None
        scheme, rest = match[1].lower(), match[2]
        name = public(f"{scheme}://{rest}")
        if "::" in rest:
            raise ValueError(f"{name}: expected the URL of one object, got a chain of them")
        user, has_user, _ = rest.partition("/")[0].rpartition("@")
        if has_user and (scheme != "hf" or ":" in user):  # hf://NAME@REVISION
            raise ValueError(f"{name}: the URL holds credentials: leave them out, and set them in the environment")
        try:
            from fsspec.core import url_to_fs

            fs, own = url_to_fs(f"{scheme}://{rest}")
        except (ImportError, ValueError) as error:
            package = _PACKAGES.get(scheme) if isinstance(error, ValueError) or scheme in _PACKAGES else "fsspec"
            remedy = f"needs the package {package}: pip install {package}" if package else "is unknown to fsspec"
            raise ValueError(f"{name}: {scheme}:// {remedy}") from None
        return cls(scheme, own, fs, tree)

    def __str__(self) -> str:
        return public(f"{self.scheme}://{self._bare}")

    @property
    def _bare(self) -> str:
        """The name without the scheme, which those of the web have."""
        return self.name.removeprefix(f"{self.scheme}:").lstrip("/")

    @property
    def is_pattern(self) -> bool:
        return self.scheme not in WEB and any(sign in self.name for sign in _MAGIC)

    @property
    def key(self) -> str:
        """The parts of the URL; a query, which may tell two objects apart, is digested."""
        bare, _, query = self._bare.partition("?") if self.scheme in WEB else (self._bare, "", "")
        parts = [part for part in bare.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise ValueError(f"{self}: expected a URL without ..")
        digest = [f"query-{sha256(query.encode()).hexdigest()[:12]}"] if query else []
        return "/".join([self.scheme, *parts[:-1], *digest, *parts[-1:]])

    @property
    def copy(self) -> Path:
        return folder(self.tree) / self.key

    def part(self, name: str) -> "Place":
        """Return an object by its name in the file system."""
        return replace(self, name=name)

    def ask(self, question: Callable[[Any], Answer]) -> Answer:
        """Ask the storage, again where the connection breaks; report in one line what it refuses."""
        for attempt in range(_ATTEMPTS):
            try:
                return question(self.fs)
            except Exception as raised:
                error = raised
                if self.scheme in WEB and isinstance(raised.__cause__, Exception):
                    error = raised.__cause__  # fsspec reports every failure of the web as a missing file
                if (refused := self._refused(error)) or attempt == _ATTEMPTS - 1:
                    text = public(" ".join(str(error).split()))[:200]
                    raise refused or ValueError(
                        f"{self}: the storage does not answer ({type(error).__name__}: {text})"
                    ) from None
            time.sleep(_PAUSE * 2**attempt)
        raise AssertionError

    def _refused(self, error: Exception) -> Exception | None:
        status = _status(error)
        if isinstance(error, FileNotFoundError) or status == 404:
            return FileNotFoundError(f"{self}: no such object or folder")
        if isinstance(error, PermissionError) or status in (401, 403) or "Credential" in type(error).__name__:
            return ValueError(
                f"{self}: the storage refuses: set credentials that may do this in the environment, as "
                f"{_PACKAGES.get(self.scheme, 'fsspec')} reads them"
            )
        if isinstance(error, NotImplementedError):
            return ValueError(f"{self}: {self.scheme}:// does not support this: use another storage, or a local path")
        if isinstance(error, OSError) and error.filename is not None:  # of this machine, such as a full disk
            return error
        return None

    def info(self) -> Info:
        """Return what the storage says now of an object or folder."""
        return self.ask(lambda fs: fs.invalidate_cache() or fs.info(self.name))

    def files(self) -> list[Info]:
        """List the objects of a folder, or the matches of a pattern, sorted by name; none that is hidden."""
        pattern, name = self.is_pattern, self.name.rstrip("/")

        def question(fs: Any) -> dict[str, Info]:
            fs.invalidate_cache()
            found: dict[str, Info] = fs.glob(name, detail=True) if pattern else fs.find(name, detail=True)
            return found

        found = self.ask(question)
        inside = {each: each.rpartition("/")[2] if pattern else each[len(name) + 1 :] for each in found}
        shown = [each for each, path in inside.items() if path and not re.search(r"(^|/)[._]", path)]
        return [found[each] for each in sorted(shown) if found[each]["type"] == "file"]


def _status(error: Exception) -> int | None:
    """Return the status of HTTP that an error carries, in the way of aiohttp, gcsfs or huggingface_hub."""
    carriers = (error, "status"), (error, "code"), (getattr(error, "response", None), "status_code")
    found = (getattr(carrier, name, None) for carrier, name in carriers)
    return next((status for status in found if isinstance(status, int)), None)


_looked: dict[str, tuple[float, list[str]]] = {}  # the copies of what was looked up lately, by URL


def local_file(url: str | Path) -> Path:
    """Return the copy of the one file or folder that a URL names."""
    path, *more = local_paths(url)
    if more:
        raise ValueError(f"{Place.of(url)}: expected one file, and {len(more) + 1} match this pattern: name one")
    return Path(path)


def local_paths(url: str | Path) -> list[str]:
    """Return the copies of what a URL names: of one object, of a folder, or of the sorted matches of a pattern.

    Raises:
        FileNotFoundError: there is no such object.
        ValueError: a package is missing, the storage refuses or does not answer, or the copy has no room.
    """
    place = Place.of(url)
    at, paths = _looked.get(str(place.copy), (-_FRESH, []))
    if time.monotonic() - at < _FRESH and all(os.path.exists(path) for path in paths):  # noqa: PTH110
        return paths
    if place.is_pattern:
        infos = place.files()
        if not infos:
            raise FileNotFoundError(f"{place}: no object matches this pattern: check its folder and its ending")
        paths = list(map(str, copied(place, infos)))
    else:
        info = place.info()
        paths = [str(copied(place, [info])[0] if info["type"] == "file" else copy_of_folder(place))]
    _looked[str(place.copy)] = time.monotonic(), paths
    return paths


def copy_of_folder(place: Place, infos: Sequence[Info] | None = None) -> Path:
    """Return the copy of a folder, without what the storage does not have any more."""
    infos = place.files() if infos is None else infos
    if not infos:
        raise FileNotFoundError(f"{place}: no such object or folder")
    wanted = set(copied(place, infos))
    for old in [path for path in place.copy.rglob("*") if path.is_file() and path not in wanted]:
        if not old.name.startswith("."):  # a lock, or the part of a process
            drop(old)
    return place.copy


def steady_copy(url: str | Path, key: str, *, skipped: tuple[str, ...], changing: tuple[str, ...]) -> Path:
    """Return the copy of a folder whose objects belong together, which is there once it has an object `key`.

    Args:
        url: of the folder.
        key: the name of its object that is written last.
        skipped: names of objects and folders that are not copied.
        changing: names of objects that may change while the others are copied.
    """
    place = Place.of(url)
    if time.monotonic() - _looked.get(str(place.copy), (-_FRESH, []))[0] < _FRESH and (place.copy / key).is_file():
        return place.copy

    def listed() -> dict[str, Info]:
        names = {info["name"][len(place.name.rstrip("/")) + 1 :]: info for info in place.files()}
        return {name: info for name, info in names.items() if name.partition("/")[0] not in skipped}

    def steady(found: Mapping[str, Info]) -> dict[str, Any]:
        return {name: version_of(info) for name, info in found.items() if name not in changing}

    for _ in range(_ATTEMPTS):
        if key not in (found := listed()):
            raise FileNotFoundError(f"{place}: no {key} there")
        with suppress(FileNotFoundError):  # an object that left since
            copy_of_folder(place, list(found.values()))
            if steady(listed()) == steady(found):
                _looked[str(place.copy)] = time.monotonic(), [str(place.copy)]
                return place.copy
    raise ValueError(f"{place}: changes while it is read: try again")


def copied(place: Place, infos: Sequence[Info]) -> list[Path]:
    """Copy objects that are new or changed, use the other copies as they are, and return the paths of all."""
    parts = [place if info["name"] == place.name else place.part(info["name"]) for info in infos]
    paths = [part.copy for part in parts]
    use(Path(os.path.commonpath(paths)))
    wanted = [
        (part, info)
        for part, path, info in zip(parts, paths, infos, strict=True)
        if not is_current(path, version_of(info))
    ]
    if wanted:
        make_room(str(place), sum(info.get("size") or 0 for _, info in wanted), {part.copy for part, _ in wanted})
    for part, info in wanted:
        _copy(part, info)
    for path in paths:
        with suppress(OSError):
            os.utime(version_path(path))
    return paths


def version_of(info: Info) -> dict[str, Any]:
    """Return what tells one content of an object from another: its size, and its tag or else its time."""
    lower = {str(name).lower(): value for name, value in info.items()}
    tags, times = (
        {name: str(lower[name]) for name in names if lower.get(name) is not None} for names in (_TAGS, _TIMES)
    )
    return {"size": lower.get("size"), **(tags or times)}


def _copy(place: Place, info: Info) -> None:
    """Copy an object whole, in ranges; each is asked for again where the connection breaks."""
    path, size, partial = place.copy, info.get("size"), folder("partial") / token_hex(8)
    partial.parent.mkdir(parents=True, exist_ok=True)
    try:
        with naming(path):
            if size is not None and (place.scheme not in WEB or (size > _RANGE and _gives_ranges(place, size))):
                with partial.open("wb") as file:
                    for start in range(0, size, _RANGE):
                        file.write(_range(place, start, min(start + _RANGE, size)))
            else:
                place.ask(lambda fs: fs.get_file(place.name, str(partial)))
            if (size or 0) > _RANGE and version_of(place.info()) != version_of(info):
                raise ValueError(f"{place}: changed while it was read: try again")
            path.parent.mkdir(parents=True, exist_ok=True)
        version_path(path).unlink(missing_ok=True)
        partial.replace(path)
        note_version(path, version_of(info))
    finally:
        partial.unlink(missing_ok=True)


def _gives_ranges(place: Place, size: int) -> bool:
    """Ask a server of the web for its last byte: without ranges it would send all of an object for each of them."""

    def question(fs: Any) -> bool:
        with fs.open(place.name, block_size=_RANGE, size=size) as file:
            file.seek(size - 1)
            try:
                return len(file.read(1)) == 1
            except ValueError:  # fsspec's word for a server without ranges, of whose answer it reads nothing
                return False

    return place.ask(question)


def _range(place: Place, start: int, stop: int) -> bytes:
    def question(fs: Any) -> bytes:
        content = bytes(fs.cat_file(place.name, start=start, end=stop))
        if len(content) != stop - start:
            raise ConnectionError(f"{len(content):,} bytes instead of {stop - start:,}")
        return content

    return place.ask(question)
