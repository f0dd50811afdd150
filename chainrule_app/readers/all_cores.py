"""Counts the words of a large text, and encodes it, in processes of their own: one for each core.

A text is cut where its encoding allows, as for one process, and what comes back is put into its order. So the number
of processes changes nothing in what is written. A process reads texts from its standard input and writes bytes, each
after their length; it imports NumPy, but neither torch nor the caller's script. What it answers goes into a journal, so
that a preparation that was killed need not count and encode the same text again.
"""

import json
import os
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, islice
from typing import IO, Any, Self

import numpy as np

from chainrule.data import Vocabulary, WordVocabulary
from chainrule_app.readers.journal import Journals, digest_of

_AHEAD = 2  # chunks for each process that wait for it or for the writer
_LENGTH = 8  # bytes


class Processes:
    """So many processes, for one text after another; they start with the first one, and end with the block.

    Args:
        number: of processes.
        journals: keep their answers.
    """

    def __init__(self, number: int, journals: Journals):
        self.number, self._journals, self._jobs = number, journals, 0
        self._all: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._all:
            _end(process)

    def counted(self, chunks: Iterable[str], *, split_punctuation: bool) -> Iterator[dict[str, int]]:
        """Yield the numbers of the words of each chunk."""
        for answer in self._answers({"split_punctuation": split_punctuation}, chunks):
            size = int.from_bytes(answer[:_LENGTH], "little")
            words = answer[_LENGTH : _LENGTH + size].decode().split("\n")
            numbers = np.frombuffer(answer[_LENGTH + size :], "<i8").tolist()
            yield dict(zip(words, numbers, strict=True)) if numbers else {}

    def encoded(self, vocabulary: Vocabulary, dtype: str, chunks: Iterable[str]) -> Iterator[Any]:
        """Yield the symbols of a text that comes in chunks cut anywhere, as `Vocabulary.encode_chunks` does."""
        for answer in self._answers({"vocabulary": vocabulary.to_json(), "dtype": dtype}, vocabulary.cut(chunks)):
            yield np.frombuffer(answer, dtype)

    def _answers(self, job: dict[str, Any], chunks: Iterable[str]) -> Iterator[bytes]:
        """Yield the answer to each chunk in order, from the journal as far as it goes, then from the processes."""
        content, rest = json.dumps(job), iter(chunks)
        self._jobs += 1
        with self._journals.open(f"{self._jobs}", content) as journal:
            for chunk in rest:
                if (known := journal.next(digest_of(chunk))) is None:
                    rest = chain([chunk], rest)
                    break
                yield known
            for digest, answer in self._computed(content.encode(), rest):
                journal.add(digest, answer)
                yield answer

    def _computed(self, job: bytes, chunks: Iterator[str]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the digests of chunks, and what the processes answer to them, in the order of the chunks."""
        self._all = self._all or [_started() for _ in range(self.number)]
        for process in self._all:
            _send(process.stdin, b"", job)
        free, waiting = deque(self._all), deque[Future[tuple[bytes, bytes]]]()

        def answer(chunk: str) -> tuple[bytes, bytes]:
            process = free.popleft()  # there are as many as threads
            try:
                _send(process.stdin, chunk.encode())
                received = _received(process.stdout)
            except (OSError, EOFError):
                raise ValueError(
                    f"a process that reads the text ended with status {process.wait()}: free some memory, and try again"
                ) from None
            free.append(process)
            return digest_of(chunk), received

        with ThreadPoolExecutor(self.number) as threads:
            while True:
                missing = _AHEAD * self.number - len(waiting)
                waiting += (threads.submit(answer, chunk) for chunk in islice(chunks, missing))
                if not waiting:
                    return
                yield waiting.popleft().result()


def _started() -> "subprocess.Popen[bytes]":
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TOKENIZERS_PARALLELISM": "false"}
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
    return subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import work; work()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | paths | one_thread,
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # it holds what the process did not read
                pipe.close()


def _send(file: IO[bytes] | None, *contents: bytes) -> None:
    assert file is not None
    for content in contents:
        file.write(len(content).to_bytes(_LENGTH, "little") + content)
    file.flush()


def _received(file: IO[bytes] | None) -> bytes:
    assert file is not None
    head = file.read(_LENGTH)
    content = file.read(length := int.from_bytes(head, "little"))
    if len(head) < _LENGTH or len(content) < length:
        raise EOFError
    return content


def work() -> None:
    """Answer texts until standard input ends; after an empty one comes another job."""
    answer = None
    try:
        while True:
            content = _received(sys.stdin.buffer)
            if content:
                assert answer is not None
                _send(sys.stdout.buffer, answer(content.decode()))
            else:
                answer = _work_of(json.loads(_received(sys.stdin.buffer)))
    except (EOFError, OSError, KeyboardInterrupt):
        os._exit(0)


def _work_of(job: dict[str, Any]) -> Callable[[str], bytes]:
    if "vocabulary" in job:
        from chainrule.data import Vocabulary

        vocabulary = Vocabulary.from_json(job["vocabulary"])
        return lambda chunk: vocabulary.encode(chunk).astype(job["dtype"]).tobytes()
    split = WordVocabulary([], split_punctuation=job["split_punctuation"]).split

    def count(chunk: str) -> bytes:
        counts = Counter(split(chunk))
        words = "\n".join(counts).encode()
        return len(words).to_bytes(_LENGTH, "little") + words + np.array([*counts.values()], "<i8").tobytes()

    return count
