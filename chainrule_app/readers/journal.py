"""Answers to the chunks of a text, kept on disk in their order until the text is prepared.

A preparation that is killed leaves them, and the next one uses them as long as its chunks are the same.
"""

import zlib
from hashlib import sha256
from pathlib import Path
from struct import Struct
from typing import Self

from chainrule.files import naming

JOURNAL = ".answers"  # a folder of journals beside what is prepared
_HEAD = Struct("<32sQI")  # the digest of a chunk, and the length and checksum of its answer


def digest_of(chunk: str) -> bytes:
    return sha256(chunk.encode()).digest()


class Journal:
    """Answers of one job, in a file that grows by one record for each chunk.

    A record whose checksum is wrong, as the last one of a killed process, does not count, nor do those after it.
    """

    def __init__(self, path: Path):
        self._path = path
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
        self._file.seek(0)
        self._end = 0  # of the records that were used or written

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def next(self, digest: bytes) -> bytes | None:
        """Return the next answer if it belongs to the chunk with this digest; else drop it and all that follow."""
        head = self._file.read(_HEAD.size)
        if len(head) == _HEAD.size:
            known, length, checksum = _HEAD.unpack(head)
            answer = self._file.read(length) if known == digest else b""
            if known == digest and len(answer) == length and zlib.crc32(answer) == checksum:
                self._end = self._file.tell()
                return answer
        with naming(self._path):
            self._file.truncate(self._end)
        return None

    def add(self, digest: bytes, answer: bytes) -> None:
        """Append the answer to a chunk."""
        with naming(self._path):
            self._file.write(_HEAD.pack(digest, len(answer), zlib.crc32(answer)) + answer)
            self._file.flush()
