"""Bytes of a corpus: a file, or the topics of `help()` in CPython, with which a first run needs no download."""

import hashlib
import io
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from chainrule.data.text import check_file, read_chunks


def builtin_text() -> str:
    """The help topics in alphabetical order, about 465,000 characters; the same for the same release of Python."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise FileNotFoundError(
            "no DATA given, and this Python lacks the built-in text (pydoc_data.topics): name a text file"
        ) from None
    return "\n".join(topics[name] for name in sorted(topics))


def builtin_name() -> str:
    """Name of the text; its content depends on the release of Python."""
    return f"pydoc_data.topics of Python {platform.python_version()}"


Progress = Callable[[str, int, int], None]
"""Called with the name of a stage, the bytes done and the bytes to do."""


def no_progress(stage: str, done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Source:
    """Bytes with a name, which can be read again and again.

    Attributes:
        name: the name to show and to record: no folders, so that it says nothing of the machine.
        label: the name for errors, with its folders.
        size: the number of bytes.
    """

    name: str
    label: str
    size: int
    open: Callable[[], BinaryIO]

    def fingerprint(self, progress: Progress = no_progress) -> dict[str, Any]:
        """`name`, number of `bytes` and `sha256`: equal for equal content."""
        digest, done = hashlib.sha256(), 0
        with self.open() as file:
            for chunk in read_chunks(file):
                digest.update(chunk)
                done += len(chunk)
                progress("fingerprint", done, self.size)
        return {"name": self.name, "bytes": done, "sha256": digest.hexdigest()}


def open_source(path: str | Path | None) -> Source:
    """A file as a source, or the built-in text for `None`; raises as `check_file` does."""
    if path is None:
        raw = builtin_text().encode()
        return Source(builtin_name(), builtin_name(), len(raw), lambda: io.BytesIO(raw))
    path = check_file(path)
    return Source(path.name, str(path), path.stat().st_size, lambda: open(path, "rb"))


def fingerprint(path: str | Path | None, progress: Progress = no_progress) -> dict[str, Any]:
    """`{"name", "bytes", "sha256"}` of a file (`None`: of the built-in text), to tell later whether it is still the
    same."""
    return open_source(path).fingerprint(progress)
