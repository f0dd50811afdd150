"""A text file becomes symbols on disk: a training part and a held-out part, and the vocabulary of the first."""

import io
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from chainrule.data import Vocabulary, read_tokenizer
from chainrule.option_error import OptionError
from chainrule.typed_json import read_fields
from chainrule_app.readers.all_cores import Processes
from chainrule_app.readers.journal import Journals
from chainrule_app.readers.origin import ByteSource
from chainrule_app.readers.sources import Pass, Progress, Source, no_progress, open_source
from chainrule_app.readers.store import FORMAT, Ids, Store, StoredTokens, StoreWriter, token_dtype

MANIFEST = "corpus.json"
READINGS = ("stream", "lines")


@dataclass(frozen=True)
class Corpus:
    """A prepared corpus: a folder with symbols on disk.

    Attributes:
        directory: the folder.
        vocabulary: fitted on the training part alone.
        train: the symbols of the training part.
        valid: the symbols of the held-out part.
        manifest: content of corpus.json.
    """

    directory: Path
    vocabulary: Vocabulary
    train: StoredTokens
    valid: StoredTokens
    manifest: dict[str, Any]

    @property
    def level(self) -> str:
        """Unit that a symbol represents: char, byte, word or bpe."""
        return self.vocabulary.level

    @property
    def reading(self) -> str:
        """Mode of reading the text: as one `stream`, or as `lines` that each end in `<eos>`."""
        return str(self.manifest["options"]["reading"])

    def summary(self) -> dict[str, Any]:
        """Level, reading, vocabulary size, counts of both parts, the fingerprint of the source and the options."""
        return {"level": self.level, "reading": self.reading, "vocabulary_size": len(self.vocabulary)} | {
            name: self.manifest[name] for name in ("train", "valid", "source", "validation", "options")
        }


_WORTH_IT = 1 << 26  # bytes of a text: a process takes half a second to start
_MOST_PROCESSES = 16  # reading and cutting a text keeps up with so many


def processes_for(size: int, vocabulary: type[Vocabulary]) -> int:
    """Return how many processes encode a text of so many bytes; characters and bytes need none, as encoding is fast."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_PROCESSES) if vocabulary.cuts_at_spaces and size >= _WORTH_IT else 0


def prepare_corpus(
    source: str | Path | ByteSource | None,
    directory: str | Path,
    *,
    level: str = "char",
    reading: str = "stream",
    validation: str | Path | ByteSource | None = None,
    validation_fraction: float = 0.05,
    vocabulary_size: int | None = None,
    min_count: int = 1,
    split_punctuation: bool = False,
    tokenizer: str | Path | None = None,
    vocabulary: Vocabulary | None = None,
    progress: Progress | None = None,
) -> Corpus:
    r"""Split a text, fit the vocabulary, and write its symbols to disk, in memory that does not grow with the text.

    The last `validation_fraction` of the file is held out, cut at a line end. The file is read twice: for its
    fingerprint and vocabulary, and to encode it. A corpus in the folder is replaced. What a preparation that was killed
    has counted and encoded of a large text of words or subwords is used again.

    Args:
        source: a UTF-8 text file (any file at level byte), or a text in memory; `None` for the text built into CPython.
        directory: the folder to write to.
        level: unit that a symbol represents: char, byte, word or bpe.
        reading: `stream` reads the text as one sequence; `lines` reads each line as a sequence that ends in `<eos>`.
        validation: a validation file; by default a part of `source` is held out.
        validation_fraction: the part of `source` to hold out, in (0, 1).
        vocabulary_size: largest number of symbols, `<unk>` and `<eos>` included; not at level byte.
        min_count: a symbol (for bpe: a pair to merge) seen less often in training is not in the vocabulary.
        split_punctuation: at level word, whether punctuation marks are separate words; see `WordVocabulary`.
        tokenizer: a tokenizer.json whose symbols are used at level bpe instead of fitted ones; see `read_tokenizer`.
        vocabulary: of another corpus of this level and reading; one is made of the text by default.
        progress: called with a stage, bytes done and bytes to do.

    Raises:
        ValueError: an option out of range, an empty file, a directory, no text (NUL bytes, invalid UTF-8), or too few
            lines. FileNotFoundError: there is no such file.
    """
    progress = progress or no_progress
    options = {
        "level": level,
        "reading": reading,
        "validation_fraction": None if validation is not None else validation_fraction,
        "vocabulary_size": vocabulary_size,
        "min_count": min_count,
        "split_punctuation": split_punctuation,
    }
    if split_punctuation and level != "word":
        raise OptionError("split_punctuation", f"it splits words, got level {level!r}", "use level='word'")
    by_lines = reading == "lines"
    if tokenizer is not None and level != "bpe":
        raise ValueError(f"tokenizer requires level='bpe', got level={level!r}")
    if vocabulary is not None and (vocabulary.level, vocabulary.eos is not None) != (level, by_lines):
        other = f"level {vocabulary.level} with{'out' * (vocabulary.eos is None)} <eos>"
        raise OptionError("vocabulary", f"expected one of level {level}, for the reading {reading!r}, got {other}")
    text = open_source(source)
    held_out = None if validation is None else open_source(validation)
    strict, fingerprint = not Vocabulary.of_level(level).reads_any_bytes, None
    number = processes_for(text.size, Vocabulary.of_level(level))
    journals = Journals(directory) if number else None
    with nullcontext() if journals is None else Processes(number, journals) as processes:
        with text.open() as file:
            cut = text.size if held_out is not None else _cut(text, file, validation_fraction, by_lines, strict)
            if tokenizer is not None:
                vocabulary = read_tokenizer(tokenizer, eos=by_lines).vocabulary
            elif vocabulary is None:
                first = Pass(text, file, progress)
                fit: Any = Vocabulary.of_level(level).fit
                if level == "word":
                    counted = (
                        None if processes is None else partial(processes.counted, split_punctuation=split_punctuation)
                    )
                    fit = partial(fit, split_punctuation=split_punctuation, counted=counted)
                with closing(first.text(cut, strict=strict, stage="vocabulary")) as chunks:
                    vocabulary = fit(chunks, eos=by_lines, vocabulary_size=vocabulary_size, min_count=min_count)
                fingerprint = first.fingerprint()
        with StoreWriter(directory, MANIFEST) as writer, ExitStack() as files:
            second = Pass(text, files.enter_context(text.open()), progress)
            apart = None if held_out is None else Pass(held_out, files.enter_context(held_out.open()), progress)
            counts = {}
            for name, part, stop in (("train", second, cut), ("valid", apart or second, (held_out or text).size)):
                start = part.position
                with closing(part.text(stop, strict=strict, stage=f"{name} symbols")) as chunks:
                    written = _write_tokens(chunks, writer, name, vocabulary, processes, by_lines=by_lines)
                if not written["elements"]:
                    purpose = "train on" if name == "train" else "hold out"
                    raise ValueError(
                        f"{part.source.name}: only white space to {purpose}, which level {level} ignores: "
                        "add text, or use level char"
                    )
                counts[name] = written | {"bytes": stop - start}
            source_read = second.fingerprint()
            if fingerprint not in (None, source_read):
                raise ValueError(f"{text.label}: changed while it was read: try again")
            vocabulary.save(writer.path("vocabulary.json"))
            fingerprints = {
                "source": source_read,
                "validation": apart and apart.fingerprint(),
                "tokenizer": None if tokenizer is None else open_source(tokenizer).fingerprint(),
            }
            writer.finish({"format": FORMAT, **fingerprints, "options": options, **counts})
    if journals is not None:
        journals.forget()
    return open_corpus(directory)


def _cut(text: Source, file: BinaryIO, validation_fraction: float, by_lines: bool, strict: bool) -> int:
    """Return where the held-out part of an open text begins."""
    try:
        return split_position(text, file, validation_fraction, at_line_end=by_lines)
    except ValueError:
        for _ in Pass(text, file).text(text.size, strict=strict):
            pass  # raises where it is no text at all, which tells the user more than that it has no lines
        raise


def open_corpus(directory: str | Path) -> Corpus:
    """Open a corpus that `prepare_corpus` wrote.

    Raises:
        FileNotFoundError: there is no complete corpus.
        ValueError: it is from a newer version, or a file in it was changed or cut.
    """
    store = Store(directory, MANIFEST, "corpus")
    vocabulary = Vocabulary.load(store.directory / "vocabulary.json")
    with store.checked():
        _check_manifest(store.manifest, vocabulary)
        by_lines = store.manifest["options"]["reading"] == "lines"
        train, valid = (
            StoredTokens(
                store,
                f"{name}.tokens",
                store.manifest[name]["elements"],
                len(vocabulary),
                f"{name}.lines" if by_lines else None,
                store.manifest[name]["lines"],
            )
            for name in ("train", "valid")
        )
    return Corpus(store.directory, vocabulary, train, valid, store.manifest)


def _check_manifest(manifest: dict[str, Any], vocabulary: Vocabulary) -> None:
    options = manifest["options"]
    if options["reading"] not in READINGS or options["level"] != vocabulary.level:
        raise ValueError("reading or level")
    types = dict.fromkeys(("elements", "lines", "unknown", "characters", "bytes"), int)
    for name in ("train", "valid"):
        counts = read_fields(types, manifest[name], name)
        if min(counts.values()) < 0:
            raise ValueError(f"{name}: expected counts, got {counts}")


def _write_tokens(
    chunks: Iterator[str],
    writer: StoreWriter,
    name: str,
    vocabulary: Vocabulary,
    processes: Processes | None,
    *,
    by_lines: bool,
) -> dict[str, int]:
    """Write the symbols of a text, and for lines where they start; return how many there are.

    The symbols are the same with any number of processes.
    """
    characters = unknown = 0
    ended = True
    tokens = writer.growing(f"{name}.tokens", token_dtype(len(vocabulary)))
    offsets = writer.growing(f"{name}.lines", "i8") if by_lines else None
    if offsets is not None:
        offsets.append([0])

    def counted() -> Iterator[str]:
        nonlocal characters
        for chunk in chunks:
            characters += len(chunk)
            yield chunk

    def encoded() -> Iterator[Ids]:
        if processes is not None:
            yield from processes.encoded(vocabulary, token_dtype(len(vocabulary)), counted())
        else:
            yield from vocabulary.encode_chunks(counted())
        if not ended:  # the last line lacks its newline: every example ends in <eos>
            yield np.array([vocabulary.eos], dtype=np.int64)

    for ids in encoded():
        if offsets is not None and len(ids):
            offsets.append(np.flatnonzero(ids == vocabulary.eos) + (tokens.rows + 1))
            ended = bool(ids[-1] == vocabulary.eos)
        tokens.append(ids)
        if vocabulary.unknown is not None:
            unknown += int((ids == vocabulary.unknown).sum())
    lines = 0 if offsets is None else offsets.rows - 1
    return {"elements": tokens.rows, "lines": lines, "unknown": unknown, "characters": characters}


def split_position(source: Source, file: BinaryIO, validation_fraction: float, *, at_line_end: bool) -> int:
    """Return the byte at which the last `validation_fraction` of an open source begins: the nearest line end.

    A text whose nearest line end would change the size of the held-out part by more than half is cut inside a line,
    between two characters, unless `at_line_end` asks for whole lines.
    """
    target = min(max(round(source.size * (1 - validation_fraction)), 1), source.size - 1)
    with _mapped(file) as text:
        mark = b"\r" if text.find(b"\n") < 0 else b"\n"
        after = text.find(mark, target - 1) + 1 or source.size
        ends = [end for end in (text.rfind(mark, 0, target) + 1, after) if 0 < end < source.size]
        cut = min(ends, key=lambda end: abs(end - target), default=0)
        if not at_line_end and (not cut or abs(cut - target) > (source.size - target) / 2):
            cut = _character_start(text, target)
    if not 0 < cut < source.size:
        needed = "two lines" if at_line_end else "two characters"
        raise ValueError(
            f"{source.label}: expected at least {needed}, one to train on and one to hold out, got {source.size} "
            "bytes: add text"
        )
    return cut


@contextmanager
def _mapped(file: BinaryIO) -> Iterator[bytes | mmap]:
    """Yield the bytes of an open file, read from the disk on access."""
    if isinstance(file, io.BytesIO):
        yield file.getvalue()
    else:
        with mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            yield content


def _character_start(text: bytes | mmap, position: int) -> int:
    """Return the start of the UTF-8 character nearest to `position`; `position` itself if the bytes are not UTF-8."""
    first = max(position - 3, 0)
    window = text[first : position + 4]  # wide enough to hold the beginning of some character
    starts = [first + index for index, byte in enumerate(window) if byte & 0xC0 != 0x80]
    if not starts:
        return position
    return min((start for start in starts if start > 0), key=lambda start: abs(start - position), default=0)


_DATE = r"\d{4}[-/.]\d\d[-/.]\d\d"
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,:]\d+)?"
_ZONE = r"(?: ?(?:Z|UTC|[+-]\d\d:?\d\d)\b)?"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_TIME = "|".join(
    (
        rf"{_DATE}[T _-]{_CLOCK}{_ZONE}",  # 2026-03-02T04:05:06.789Z
        rf"\d\d?/{_MONTH}/\d{{4}}:{_CLOCK}{_ZONE}",  # 02/Mar/2026:04:05:06 +0000
        rf"(?:[A-Z][a-z]{{2}},? )?{_MONTH} [ \d]\d(?: \d{{4}})? {_CLOCK}(?: \d{{4}}\b)?",  # Mar  2 04:05:06
        r"\d{6} \d{6}\b|\d{10}\.\d{3,9}\b|\b1\d{12}\b",  # 081109 203615, seconds or milliseconds since 1970
        rf"{_DATE}|\b{_CLOCK}",
    )
)


_ADDRESS = r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\b(?:[0-9a-fA-F]{1,4}:){3,7}[0-9a-fA-F:]{1,4}"
_UUID = r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
_HEXADECIMAL = r"\b(?:0x)?(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{8,}\b"
_LETTERS = "A-Za-z0-9+/_-"
_KEY = (  # base64 and the like
    rf"(?<![{_LETTERS}])(?=[{_LETTERS}]*\d)(?=[{_LETTERS}]*[A-Z])(?=[{_LETTERS}]*[a-z])[{_LETTERS}]{{20,}}={{0,2}}"
)


_NUMBER = r"\d+(?:\.\d+)?"
_FIELD = re.compile("|".join((_TIME, _ADDRESS, _UUID, _HEXADECIMAL, _KEY, _NUMBER)))
_BEGINS_WITH_TIME = re.compile(_TIME)
_LOOKED_AT = 160  # characters of a line among which its time begins
_FEWEST_LINES = 20
_SHARE = 0.8  # of the lines: a message may go on over several


def is_log(text: str) -> bool:
    r"""Tell if the beginning of a text is a log: nearly all of its lines have a time near their beginning.

    >>> is_log("2026-03-02 04:05:06 INFO started\n" * 20), is_log("To be, or not to be\n" * 20)
    (True, False)
    """
    lines = [line for line in text.split("\n")[:-1] if line.strip()]  # the last one may be cut
    timed = sum(_BEGINS_WITH_TIME.search(line, 0, _LOOKED_AT) is not None for line in lines)
    return len(lines) >= _FEWEST_LINES and timed >= _SHARE * len(lines)


def fields_of(line: str) -> Iterator[tuple[int, int]]:
    """Yield start and stop of each number, address, time and identifier in a line.

    >>> line = "Mar  2 04:05:06 sshd[812]: 10.0.0.7 port 22"
    >>> [line[start:stop] for start, stop in fields_of(line)]
    ['Mar  2 04:05:06', '812', '10.0.0.7', '22']
    """
    return (match.span() for match in _FIELD.finditer(line))


def template_of(line: str) -> str:
    """Return a line with a star for each of its fields.

    >>> template_of("Mar  2 04:05:06 sshd[812]: 10.0.0.7 port 22")
    '* sshd[*]: * port *'
    """
    return _FIELD.sub("*", line)
