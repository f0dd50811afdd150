"""Files written whole or not at all, and records that are kept as JSON files."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from secrets import token_hex
from typing import IO, Any, ClassVar, Self, TypeVar

from chainrule.typed_json import field_types, read_fields

_LONGEST_JSON = 1 << 26  # bytes; a vocabulary of three million words
_MOST_BRACKETS = 1 << 22
_FULL = tuple(getattr(errno, name) for name in ("ENOSPC", "EFBIG", "EDQUOT") if hasattr(errno, name))
_LONGEST_HEADER = 1 << 24  # bytes of a safetensors file; 100,000 tensors


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write `content` as JSON so that a reader finds the old file or the whole new one, whatever happens meanwhile."""
    text = json.dumps(content, indent=1) + "\n"
    if len(text) > _LONGEST_JSON:
        raise ValueError(
            f"{path.name}: expected at most {_LONGEST_JSON >> 20} MiB, got {len(text) >> 20}: take fewer symbols, "
            "categories or labels"
        )
    write_text(path, text)


def write_text(path: Path, content: str) -> None:
    """Write `content` as UTF-8, as `write_json` does; what no UTF-8 can hold becomes a question mark."""
    write_bytes(path, content.encode("utf-8", "replace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` as it is, as `write_json` does."""
    with writing(path) as file:
        file.write(content)


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that replaces `path`, whole, when the block ends without an error.

    A device or pipe, such as /dev/null, is written to as it is.
    """
    is_device = _is_device(path)
    # not of `tempfile`, whose files are private
    temporary = path if is_device else path.with_name(f".{path.name}.{token_hex(4)}")
    try:
        with temporary.open("wb" if is_device else "xb") as file:
            yield file
            if not is_device:
                file.flush()
                os.fsync(file.fileno())
        if not is_device:
            temporary.replace(path)
            _flush_to_disk(path.parent)  # the rename itself must survive a power cut
    except BaseException as error:
        if not is_device:
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):  # not of a file that is read
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file or folder that is written in the block where the disk is full or files may not grow.

    Writing names no file then, and copying names the source.
    """
    try:
        yield
    except shutil.Error as error:  # of a folder: (source, target, message) for each file
        _, target, reason = error.args[0][0]
        raise OSError(f"{target}: cannot be written ({reason})") from error
    except OSError as error:
        if error.errno is None or (error.filename is not None and error.errno not in _FULL):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def copy_file(source: Path, target: Path) -> None:
    """Copy the content of a file."""
    with source.open("rb") as file, naming(target), target.open("wb") as copy:
        shutil.copyfileobj(file, copy)


def _is_device(path: Path) -> bool:
    """Return whether a path is a device or pipe, such as /dev/null, which must be written to and never replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def refuse_device(path: Path) -> None:
    """Raise `ValueError` for a pipe, which may block, or a device, which may never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(f"{path}: expected a regular file, got a device or pipe: write its content to a file first")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; `ValueError` in one line where the file holds anything else, or is no regular file."""
    refuse_device(path)
    try:
        with path.open("rb") as file:
            content = parse_json(file.read(_LONGEST_JSON + 1))
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON, got something else ({error}); the file is damaged") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(content).__name__}; the file is damaged")
    return content


def check_header(path: Path) -> None:
    """Refuse a safetensors file with a header longer than any of weights: parsed, it takes up to 20 times its bytes."""
    refuse_device(path)
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if size > _LONGEST_HEADER:
        raise ValueError(
            f"{path}: expected a header of at most {_LONGEST_HEADER >> 20} MiB, got {size >> 20} MiB: damaged, or no "
            "file of weights: restore it from a copy"
        )


def parse_json(text: bytes) -> Any:
    """Parse JSON whose size and structure are bounded, as parsed values take up to 30 times the memory of the text."""
    if len(text) > _LONGEST_JSON or text.count(b"[") + text.count(b"{") > _MOST_BRACKETS:
        raise ValueError(f"more than {_LONGEST_JSON >> 20} MiB, or {_MOST_BRACKETS:,} lists and objects")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that atomically replaces `path` when the block ends without an error.

    The new content is on the disk before the move, and the move before the return; a process killed at any moment
    leaves the old file or the new one. A half-written file of a killed process lies in the folder `.partial` next to
    the file, which the next write clears.
    """
    from safetensors import SafetensorError

    if _is_device(path):
        yield path
        return
    folder = path.parent / ".partial"
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        partial = folder / path.name
        partial.touch()
        mode = partial.stat().st_mode  # what the umask gives; safetensors makes its files private
        yield partial
        partial.chmod(mode)
        _flush_to_disk(partial)
        os.replace(partial, path)
        _flush_to_disk(path.parent)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        state = "the file before it is intact" if path.exists() else "nothing was written"
        remedy = "free space or choose another directory"
        raise OSError(f"{path}: cannot be written ({reason}); {state}: {remedy}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Record:
    """Base of a frozen dataclass that is kept as a JSON file; `__post_init__` checks what annotations cannot."""

    FORMAT: ClassVar[int] = 1

    def to_json(self) -> dict[str, Any]:
        """Content of the file."""
        record: Any = self  # a dataclass, or a class with its own method
        return {"format": self.FORMAT, **asdict(record)}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Check and read what `to_json` made; raise ValueError for anything else."""
        return read_record(cls, field_types(cls), content, cls.FORMAT)

    def save(self, path: str | Path) -> None:
        """Write the record as JSON, atomically."""
        write_json(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote; see `load_record`."""
        return load_record(cls.from_json, path)


_Made = TypeVar("_Made")


def load_record(from_json: Callable[[dict[str, Any]], _Made], path: str | Path) -> _Made:
    """Read a record from a JSON file."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file: prepare the data again, or train again")
    content = read_json(path)
    try:
        return from_json(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_record(make: Callable[..., _Made], types: Mapping[str, Any], content: Any, version: int = 1) -> _Made:
    """Check an untrusted object with a format, and give its values to `make`, which checks that they fit together."""
    try:
        if type(content) is not dict:
            raise ValueError(f"expected an object, got {content!r:.80}")
        file_version = content.get("format")
        if type(file_version) is not int or file_version != version:
            raise ValueError(f"format: expected {version}, got {file_version!r:.80}")
        return make(**read_fields(types, {name: value for name, value in content.items() if name != "format"}))
    except ValueError as error:
        raise ValueError(f"{error}; the file is damaged, or a newer chainrule wrote it") from None
