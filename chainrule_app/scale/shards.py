"""Shards of the rows of one method of a run: each is written whole, once, by any process, in any order.

A shard is a number of batches one after the other, cut where a single process cuts them: its rows are those of one
process, bit for bit. A worker passes over the batches before a shard, because reading is cheap beside answering. A log
has a line for each finished shard, so that a process that was killed goes on with the next one. The figures of all rows
are summed batch by batch, in the order of batches, as one process sums them.
"""

import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from io import BytesIO
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Self

from chainrule.files import read_json, write_bytes, write_json, writing
from chainrule.option_error import OptionError, option
from chainrule_app.batchwise import Answered, Batch
from chainrule_app.printing import shortened
from chainrule_app.results import Result
from chainrule_app.scale.workers import Job, Part
from chainrule_app.tasks.run_directory import LOCK, lock_run

MANIFEST, LOG = "_manifest.json", "_progress.jsonl"  # engines that read a folder pass over names that begin with _
FORMAT = 1


@dataclass(frozen=True)
class Target:
    """A folder of shards; a name such as scores.parquet tells their format.

    >>> Target(Path("scores.parquet")).shard(17).name
    'part-00017.parquet'
    """

    folder: Path

    def shard(self, number: int) -> Path:
        return self.folder / f"part-{number:05}{self.ending}"

    @property
    def ending(self) -> str:
        return "".join(self.folder.suffixes[-1 - (self.folder.suffix.lower() == ".gz") :]).lower()


@dataclass(frozen=True)
class Shard:
    """A finished shard."""

    batches: int  # fewer than the others in the last shard; none in those after it
    rows: int
    bytes: int  # of its file
    sha256: str
    figures: Sequence[Sequence[Any]] = field(repr=False)  # of each batch, in their order: what JSON can hold


@dataclass(frozen=True)
class Failure:
    """An error that a batch of a shard raised."""

    shard: int
    error: Exception


Outcomes = Iterator[tuple[int, Shard | Failure]]
Executor = Callable[[Iterator[int]], Outcomes]
"""Function that computes the shards of some numbers, and yields each when it is finished, in any order."""


class ShardWorker:
    """One process that computes shards of a job, in any order; quickly if their numbers grow."""

    def __init__(self, job: Job, target: Target | None, batches: int):
        from chainrule_app.tasks import open_run

        self._job, self._target, self._batches = job, target, batches
        self._run = open_run(job.run)
        self._run.answered = self._answered
        self._result: Result | None = None
        self._shards: Iterator[Any] = iter(())
        self._number, self._place = 0, math.inf  # the shard that is wanted, and the batch that comes next

    def compute(self, number: int) -> Shard | Failure:
        """Write a shard, and return what it tells."""
        self._number = number
        try:
            if number * self._batches < self._place:
                self._place = 0
                self._result = getattr(self._run, self._job.method)(*self._job.arguments, **self._job.settings)
                self._shards = self._result.stream()
            shard: Shard = next(self._shards)
        except Exception as error:
            known = isinstance(error, (ValueError, OSError))  # what users can cause
            place, self._place = int(self._place), math.inf
            return Failure(place // self._batches, error if known else RuntimeError(repr(error)))
        return shard

    def _answered(
        self, batches: Iterable[Batch], answer: Callable[[Batch], Answered], add: Callable[..., None]
    ) -> Iterator[Any]:
        ahead = iter(batches)
        while True:
            first = self._number * self._batches
            for _ in islice(ahead, first - int(self._place)):
                self._place += 1
            shard = self._written(map(answer, islice(ahead, self._batches if self._place == first else 0)))
            self._place += shard.batches
            yield shard

    def _written(self, answers: Iterable[Answered]) -> Shard:
        contents, figures, count_of_rows = list[bytes](), list[Sequence[Any]](), 0
        for rows, own in answers:
            figures.append(own)
            count_of_rows += len(rows)
            if self._target is not None and self._result is not None and self._result.columns:
                contents.append(self._job.write(self._result, rows, not contents))
        if not contents or self._target is None:
            return Shard(len(figures), count_of_rows, 0, "", figures)
        content = _file_of(self._target.ending, contents)
        write_bytes(self._target.shard(self._number), content)
        return Shard(len(figures), count_of_rows, len(content), sha256(content).hexdigest(), figures)


def _file_of(ending: str, contents: list[bytes]) -> bytes:
    """Return the content of the file of a shard."""
    file = BytesIO()
    if ending == ".parquet":
        import polars

        polars.concat(map(polars.read_ipc, contents), how="vertical_relaxed").write_parquet(file)
    elif ending.endswith(".gz"):
        import gzip

        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
            packed.writelines(contents)
    else:
        file.writelines(contents)
    return file.getvalue()


class ShardLog:
    """The plan of a job and its finished shards, a line each; without a folder in a temporary file.

    Each line begins with its checksum. One that was cut, or changed, does not count, and its shard is computed again.
    """

    def __init__(self, target: Target | None, plan: Mapping[str, Any], file: IO[bytes]):
        self.target, self.plan, self._file = target, dict(plan), file
        self._places: dict[int, int] = {}  # of the lines of shards in the file

    @classmethod
    @contextmanager
    def open(cls, target: Target | None, plan: Mapping[str, Any], *, resume: bool = False) -> Iterator[Self]:
        """Begin a log, or go on with one, and hold the lock of its folder during the block."""
        if target is None:
            with TemporaryFile() as file:
                yield cls(None, plan, file)
            return
        path = target.folder / LOG
        if not resume and _is_taken(target.folder):
            going_on = f", or pass {option('resume', True)}" if path.exists() else ""
            raise OptionError("out", f"{target.folder} is there already", f"choose another name{going_on}")
        with lock_run(target.folder):
            if resume:
                refuse_changes(target, plan)
            else:
                write_bytes(path, _line(plan))
            with path.open("r+b") as file:
                log = cls(target, plan, file)
                log._read(target)
                try:
                    yield log
                finally:
                    if not log._places:
                        path.unlink(missing_ok=True)

    @staticmethod
    def begun(target: Target) -> dict[str, Any]:
        """Return the plan of the shards in a folder."""
        path = target.folder / (MANIFEST if is_complete(target) else LOG)
        if not path.is_file():
            raise OptionError("resume", f"there is no {path}", "leave it out")
        if path.name == MANIFEST:
            plan = read_json(path).get("plan")
        else:
            with path.open("rb") as file:
                plan = _content(file.readline())
        if not isinstance(plan, dict) or plan.get("format") != FORMAT:
            raise OptionError("resume", f"{path} is damaged, or of another version", "start again in another folder")
        return plan

    def _read(self, target: Target) -> None:
        end = len(self._file.readline())
        for line in iter(self._file.readline, b""):
            if not line.endswith(b"\n"):
                break
            content = _content(line)
            if content is not None and _is_whole(target, content):
                self._places[content["shard"]] = end
            end += len(line)
        self._file.truncate(end)

    def __contains__(self, number: int) -> bool:
        return number in self._places

    def __getitem__(self, number: int) -> Shard:
        self._file.seek(self._places[number])
        content = _content(self._file.readline())
        assert content is not None, "it was read, or written, before"
        del content["shard"]
        return Shard(**content)

    def add(self, number: int, shard: Shard) -> None:
        """Note a finished shard."""
        self._places[number] = self._file.seek(0, 2)
        self._file.write(_line({"shard": number, **vars(shard)}))
        self._file.flush()

    def rows(self) -> int:
        """Return the number of rows of all finished shards."""
        return sum(self[number].rows for number in self._places)

    def finish(self, figures: Mapping[str, Any]) -> None:
        """Write the manifest in the place of the log, and give Parquet shards one schema."""
        assert self.target is not None
        folder = self.target.folder
        shards = [(self.target.shard(number), self[number]) for number in sorted(self._places)]
        files = [path for path, shard in shards if shard.bytes]
        changed = _unite(files) if self.target.ending == ".parquet" else set()
        rows = sum(shard.rows for _, shard in shards)
        contents = [
            {"file": path.name, "rows": shard.rows}
            | (_digest(path) if path in changed else {"bytes": shard.bytes, "sha256": shard.sha256})
            for path, shard in shards
            if shard.bytes
        ]
        write_json(folder / MANIFEST, {"plan": self.plan, "rows": rows, "figures": dict(figures), "shards": contents})
        for left in folder.glob(".part-*"):  # by workers that were killed
            left.unlink(missing_ok=True)
        (folder / LOG).unlink()


def _is_taken(folder: Path) -> bool:
    """Return whether a path holds more than what a process left that was killed before its first line."""
    if not folder.is_dir():
        return folder.exists()
    return not all(path.name == LOCK or path.name.startswith(f".{LOG}.") for path in folder.iterdir())


def is_complete(target: Target) -> bool:
    """Return whether a folder holds all its shards."""
    return (target.folder / MANIFEST).is_file() and not (target.folder / LOG).is_file()


def refuse_changes(target: Target, plan: Mapping[str, Any]) -> None:
    """Refuse a plan other than that of the shards in a folder."""
    before = ShardLog.begun(target)
    now: dict[str, Any] = json.loads(json.dumps(plan))
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            raise OptionError(
                "resume",
                f"{target.folder} was begun with other {name}: {_shown(before.get(name), now.get(name))}",
                "restore it, or start again in another folder",
            )


def _line(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _content(line: bytes) -> dict[str, Any] | None:
    """Return the content of a line; None if it is not whole."""
    checksum, _, text = line.rstrip(b"\n").partition(b" ")
    return json.loads(text) if checksum == b"%08x" % zlib.crc32(text) else None


def _is_whole(target: Target, content: Mapping[str, Any]) -> bool:
    """Return whether the file of a shard has the size that its line tells."""
    with suppress(OSError):
        return not content["bytes"] or target.shard(content["shard"]).stat().st_size == content["bytes"]
    return False


def _shown(before: Any, now: Any) -> str:
    """Name what differs between two values of a plan."""
    if isinstance(before, dict) and isinstance(now, dict):
        names = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
        before, now = ({name: one[name] for name in names[:1] if name in one} for one in (before, now))
    return f"{shortened(str(before), 60)} then, {shortened(str(now), 60)} now"


def _unite(paths: Sequence[Path]) -> set[Path]:
    """Give Parquet files the types that their rows have together; returns those that had others."""
    import polars

    schemas = {path: polars.read_parquet_schema(path) for path in paths}
    if not schemas:
        return set()
    kinds = {tuple(schema.items()): polars.DataFrame(schema=schema) for schema in schemas.values()}
    united: Any = polars.concat(kinds.values(), how="vertical_relaxed").schema
    changed = {path for path, schema in schemas.items() if schema != united}
    for path in changed:
        with writing(path) as file:
            polars.read_parquet(path).cast(united).write_parquet(file)
    return changed


def _digest(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    return {"bytes": len(content), "sha256": sha256(content).hexdigest()}


class Shards:
    """What answers in the place of `chainrule_app.batchwise.in_turn`: shards that an executor computes.

    Args:
        log: of finished shards.
        executor: computes the others.
        progress: called with the number of rows of each shard when it is finished.
    """

    def __init__(self, log: ShardLog, executor: Executor, progress: Callable[[int], None]):
        self._log, self._executor, self._progress = log, executor, progress
        self._batches: int = log.plan["batches"]
        self._end: float = math.inf  # the first shard that is not there, or the first error

    def answered(
        self, batches: Iterable[Batch], answer: Callable[[Batch], Answered], add: Callable[..., None]
    ) -> Iterator[Part]:
        """Yield a part without content for each shard, in their order; adds the figures of all batches."""
        next(iter(batches), None)  # readers look at the data, so that mistakes are found before processes start
        outcomes, errors = self._executor(self._missing()), dict[int, Exception]()
        for number in count():
            while number not in self._log and number < self._end:
                found, outcome = next(outcomes)
                if isinstance(outcome, Failure):
                    errors[outcome.shard] = outcome.error
                    self._end = min(self._end, outcome.shard)
                else:
                    self._note(found, outcome)
            if number in errors:
                raise errors[number]
            if number not in self._log:
                return
            shard = self._log[number]
            for figures in shard.figures:
                add(*figures)
            yield Part(shard.rows, b"")

    def _note(self, number: int, shard: Shard) -> None:
        if shard.batches:
            self._log.add(number, shard)
            self._progress(shard.rows)
        if shard.batches < self._batches:
            self._end = min(self._end, number + bool(shard.batches))

    def _missing(self) -> Iterator[int]:
        """Yield the numbers of shards that are not finished, as long as there are such."""
        number = 0
        while number < self._end:
            if number not in self._log:
                yield number
            elif self._log[number].batches < self._batches:
                return
            number += 1
