"""Answers to the parts of some data, kept on disk in their order until the data are prepared.

A part is a chunk of a text, an image or a block of a sound. A preparation that is killed leaves its answers, and the
next one uses them as long as its parts are the same.
"""

import shutil
import zlib
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import count, islice
from pathlib import Path
from struct import Struct
from typing import Self

from chainrule.files import naming

JOURNAL = ".answers"  # a folder of journals beside what is prepared
_HEAD = Struct("<32sQI")  # the digest of a part, and the length and checksum of its answer
_END, _REFUSED = b"", b"\0"  # marks the end of several answers to a part, or a part that cannot be read


def digest_of(*content: str | bytes) -> bytes:
    digest = sha256()
    for part in content:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.digest()


class Journals:
    """The journals of one preparation.

    Args:
        directory: where the data are prepared.
    """

    def __init__(self, directory: str | Path):
        self._folder = Path(directory) / JOURNAL

    def open(self, name: str, job: str) -> "Journal":
        """Open the journal of this name at its beginning; one that another job left under the name is deleted."""
        path = self._folder / f"{name}-{sha256(job.encode()).hexdigest()[:16]}"
        for other in self._folder.glob(f"{name}-*"):
            if other != path:
                other.unlink()
        return Journal(path)

    def forget(self) -> None:
        """Delete the journals, whose answers are not needed any more."""
        shutil.rmtree(self._folder, ignore_errors=True)


class Journal:
    """Answers of one job, in a file that grows by one record for each part.

    A record whose checksum is wrong, as the last one of a killed process, does not count, nor do those after it.
    """

    def __init__(self, path: Path):
        self._path = path
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
        self._file.seek(0)
        self._end = 0  # of the records that were used
        self._used_up = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def next(self, digest: bytes) -> bytes | None:
        """Return the next answer if it belongs to the part with this digest; else drop it and all that follow."""
        if self._used_up:
            return None
        head = self._file.read(_HEAD.size)
        if len(head) == _HEAD.size:
            known, length, checksum = _HEAD.unpack(head)
            answer = self._file.read(length) if known == digest else b""
            if known == digest and len(answer) == length and zlib.crc32(answer) == checksum:
                self._end = self._file.tell()
                return answer
        self._used_up = True
        with naming(self._path):
            self._file.truncate(self._end)
        return None

    def add(self, digest: bytes, answer: bytes) -> None:
        """Append the answer to a part."""
        with naming(self._path):
            self._file.write(_HEAD.pack(digest, len(answer), zlib.crc32(answer)) + answer)
            self._file.flush()

    def several(self, digest: bytes, compute: Callable[[], Iterator[bytes]]) -> Iterator[bytes]:
        """Yield the answers to one part, from the journal as far as it goes; a part that is refused is tried again.

        Args:
            digest: of the part.
            compute: yields its answers, each longer than a byte, or raises ValueError.
        """
        computed = None
        for number in count():
            own = digest_of(digest, f"{number}")
            answer = known = self.next(own)
            if known is None or known == _REFUSED:
                computed = islice(compute(), number, None) if computed is None else computed
                try:
                    answer = next(computed, _END)
                except ValueError:
                    if known is None:
                        self.add(own, _REFUSED)
                    raise
                if known is None:
                    self.add(own, answer)
            if not answer:
                return
            yield answer
