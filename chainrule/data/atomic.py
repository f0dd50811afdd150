"""Files written whole or not at all, and JSON records whose every value is checked when they are read."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from safetensors import SafetensorError


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write `content` as JSON so that a reader finds the old file or the whole new one, whatever happens meanwhile."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def write_text(path: Path, content: str) -> None:
    """Write `content` as UTF-8, as `write_json` does; what no UTF-8 can hold becomes a question mark."""
    write_bytes(path, content.encode("utf-8", "replace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` as it is, as `write_json` does.

    Raises:
        OSError: the file cannot be written; the old one is as it was.
    """
    try:
        _replace(path, content)
    except OSError as error:  # names the temporary file
        raise OSError(error.errno, error.strerror, str(path)) from error


def _replace(path: Path, content: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())  # what open() would have given it; a temporary file is private
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _flush_to_disk(path.parent)  # the rename itself must survive a power cut


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; `ValueError` in one line where the file holds anything else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON, got something else ({error}); the file is damaged") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(content).__name__}; the file is damaged")
    return content


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A place to write what will become `path`, in one indivisible move when the block ends without an error.

    The new content is on the disk before the move, and the move before the return; a process killed at any moment
    leaves the old file or the new one. A half-written file of a killed process lies in the folder `.partial` next to
    the file, which the next write clears.

    Raises:
        OSError: the disk is full or not writable; the old file is as it was.
    """
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
    """Base of a frozen dataclass that is kept as a JSON file; its `__post_init__` checks what annotations cannot say.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Units(Record):
    ...     names: tuple[str, ...]
    ...     scale: float | None
    >>> Units.from_json({"format": 1, "names": ["s", "m"], "scale": 2})
    Units(names=('s', 'm'), scale=2.0)
    >>> Units.from_json({"format": 1, "names": ["s", 3], "scale": 2})
    Traceback (most recent call last):
    ValueError: names: expected text, got 3; the file is damaged, or a newer chainrule wrote it
    """

    FORMAT: ClassVar[int] = 1

    def to_json(self) -> dict[str, Any]:
        """Content of the file."""
        record: Any = self  # a dataclass, or a class with a method of its own
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


Made = TypeVar("Made")


def load_record(from_json: Callable[[dict[str, Any]], Made], path: str | Path) -> Made:
    """Read a record from a JSON file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, or from a newer version; the message names the file.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file: prepare the data again, or train again")
    content = read_json(path)
    try:
        return from_json(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_record(make: Callable[..., Made], types: Mapping[str, Any], content: Any, version: int = 1) -> Made:
    """Check an untrusted object that has a format, and give its values to `make` by name.

    Args:
        make: raises ValueError for values that do not fit together.
        types: of the values, by name; see `read_value`.
        content: the object.
        version: of the format.

    Raises:
        ValueError: the content is of another format, or not as expected.
    """
    try:
        if type(content) is not dict:
            raise ValueError(f"expected an object, got {content!r:.80}")
        found = content.get("format")
        if type(found) is not int or found != version:
            raise ValueError(f"format: expected {version}, got {found!r:.80}")
        return make(**read_fields(types, {name: value for name, value in content.items() if name != "format"}))
    except ValueError as error:
        raise ValueError(f"{error}; the file is damaged, or a newer chainrule wrote it") from None


def field_types(record: type) -> dict[str, Any]:
    """The annotations of the fields of a dataclass, by name."""
    hints = get_type_hints(record)
    return {field.name: hints[field.name] for field in fields(record)}


def read_fields(types: Mapping[str, Any], content: Any, where: str = "") -> dict[str, Any]:
    """Check that an object has exactly the fields of `types`, each of its type, and convert them."""
    if type(content) is not dict:
        raise ValueError(f"{where or 'content'}: expected an object, got {content!r:.80}")
    if wrong := sorted(set(types) ^ set(content)):
        raise ValueError(f"{where or 'content'}: missing or unexpected field {wrong[0]!r:.40}")
    return {name: read_value(kind, content[name], f"{where}.{name}".lstrip(".")) for name, kind in types.items()}


def read_value(kind: Any, value: Any, where: str) -> Any:
    """Check a value that JSON gave against an annotation, and convert it: lists to tuples, objects to dataclasses.

    Args:
        kind: bool, int, float (finite), str, a `Literal` of texts, a tuple, list or dict of such, a dataclass
            (by its `from_json` if it has one), or one of them or None.
        value: as JSON gave it.
        where: its name, for errors.

    Raises:
        ValueError: it is something else.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        (option,) = set(inner) - {NoneType}
        return None if value is None else read_value(option, value, where)
    if is_dataclass(kind):
        record: Any = kind
        if hasattr(record, "from_json"):
            return record.from_json(value)
        return record(**read_fields(field_types(record), value, where))
    if origin in (tuple, list) and type(value) in (tuple, list):
        repeated = origin is list or inner[-1] is Ellipsis
        if repeated and inner[0] is not float and set(map(type, value)) <= {inner[0]}:
            return origin(value)  # quickly: a vocabulary is long
        if repeated or len(value) == len(inner):
            kinds = [inner[0]] * len(value) if repeated else inner
            return origin(read_value(one, entry, where) for one, entry in zip(kinds, value, strict=True))
    if origin is dict and type(value) is dict:
        return {name: read_value(inner[1], entry, f"{where}[{name!r:.40}]") for name, entry in value.items()}
    if (origin is Literal and value in inner) or (origin is None and type(value) is kind and kind is not float):
        return value
    if kind is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    raise ValueError(f"{where}: expected {_described(kind)}, got {value!r:.80}")


def _described(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if origin in (tuple, list):
        return f"a list of {_described(inner[0])}"
    names = {bool: "true or false", int: "a whole number", float: "a finite number", str: "text"}
    return names.get(kind, "an object")
