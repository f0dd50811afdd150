"""A text file becomes symbols on disk: a training part and a held-out part, and the vocabulary of the first."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.data.atomic import read_json, write_json
from chainrule.data.levels import LEVELS, check_level, load_vocabulary
from chainrule.data.source import Progress, no_progress, open_source
from chainrule.data.split import Part, split_by_position
from chainrule.data.tokens import FileTokens, Tokens
from chainrule.data.vocabulary import Ids, Vocabulary

FORMAT = 2
READINGS = ("stream", "lines")


@dataclass(frozen=True)
class Corpus:
    """A prepared corpus: a folder with symbols on disk.

    Attributes:
        directory: the folder.
        vocabulary: fitted on the training part alone.
        train: the symbols of the training part.
        valid: the symbols of the held-out part.
        manifest: what `corpus.json` says.
    """

    directory: Path
    vocabulary: Vocabulary
    train: Tokens
    valid: Tokens
    manifest: dict[str, Any]

    @property
    def level(self) -> str:
        """What a symbol is: char, byte, word or bpe."""
        return self.vocabulary.level

    @property
    def reading(self) -> str:
        """How the text is read: as one `stream`, or as `lines` that each end in `<eos>`."""
        return str(self.manifest["options"]["reading"])

    def summary(self) -> dict[str, Any]:
        """Level, reading, vocabulary size, counts of both parts, the fingerprint of the source and the options."""
        return {"level": self.level, "reading": self.reading, "vocabulary_size": len(self.vocabulary)} | {
            name: self.manifest[name] for name in ("train", "valid", "source", "validation", "options")
        }


def prepare_corpus(
    source: str | Path | None,
    directory: str | Path,
    *,
    level: str = "char",
    reading: str = "stream",
    validation: str | Path | None = None,
    validation_fraction: float = 0.05,
    vocabulary_size: int | None = None,
    min_count: int = 1,
    progress: Progress | None = None,
) -> Corpus:
    r"""Split a text, fit the vocabulary, and write its symbols to disk, in memory that does not grow with the text.

    The last `validation_fraction` of the file is held out, cut at a line end. A folder that already holds this very
    corpus (same content, same options) is used as it is; anything else, a half-written corpus included, is written
    anew.

    Args:
        source: a UTF-8 text file (any file at level byte); `None` for the text built into CPython.
        directory: the folder to write to.
        level: what a symbol is: char, byte, word or bpe.
        reading: `stream` reads the text as one sequence; `lines` reads each line as a sequence that ends in `<eos>`.
        validation: a file to hold out in place of a part of `source`.
        validation_fraction: the part of `source` to hold out, in (0, 1).
        vocabulary_size: at most so many symbols, `<unk>` and `<eos>` included; not at level byte.
        min_count: a symbol (for bpe: a pair to merge) seen less often in training gets none of its own.
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
    }
    _check_options(level, reading, validation_fraction, vocabulary_size, min_count)
    text = open_source(source)
    held_out = None if validation is None else open_source(validation)
    asked = {
        "format": FORMAT,
        "source": text.fingerprint(progress),
        "validation": held_out and held_out.fingerprint(progress),
        "options": options,
    }
    directory = Path(directory)
    existing = _open_same(directory, asked)
    if existing is not None:
        return existing
    strict = not LEVELS[level].reads_any_bytes
    whole = Part(text, 0, text.size)
    if held_out is not None:
        train, valid = whole, Part(held_out, 0, held_out.size)
    else:
        try:
            train, valid = split_by_position(text, validation_fraction, at_line_end=reading == "lines")
        except ValueError:
            for _ in whole.text(strict=strict):
                pass  # raises where it is no text at all, which tells the user more than that it has no lines
            raise
    vocabulary = LEVELS[level].fit(
        train.text(strict=strict, stage="vocabulary", progress=progress),
        eos=reading == "lines",
        vocabulary_size=vocabulary_size,
        min_count=min_count,
    )
    directory.mkdir(parents=True, exist_ok=True)
    _clear(directory)
    try:
        counts = {}
        for name, part in (("train", train), ("valid", valid)):
            read = _Counted(part.text(strict=strict, stage=f"{name} symbols", progress=progress))
            written = _write_tokens(vocabulary.encode_chunks(read), directory, name, vocabulary, reading)
            counts[name] = written | {"characters": read.characters, "bytes": part.stop - part.start}
        vocabulary.save(directory / "vocabulary.json")
    except BaseException:
        _clear(directory)  # a full disk must not stay full
        raise
    write_json(directory / "corpus.json", asked | counts | {"dtype": token_dtype(len(vocabulary))})
    return open_corpus(directory)


def open_corpus(directory: str | Path) -> Corpus:
    """Open a corpus that `prepare_corpus` wrote.

    Raises:
        FileNotFoundError: there is no complete corpus.
        ValueError: it is from a newer version, or a file in it was changed or cut.
    """
    directory = Path(directory)
    if not (directory / "corpus.json").is_file():
        raise FileNotFoundError(f"{directory}: no prepared corpus here (corpus.json is missing): prepare it again")
    manifest = read_json(directory / "corpus.json")
    version = manifest.get("format")
    if type(version) is int and version > FORMAT:
        raise ValueError(f"{directory}: a corpus of format {version}, from a newer chainrule: prepare it again")
    vocabulary = load_vocabulary(directory / "vocabulary.json")
    try:
        _check_manifest(manifest, vocabulary)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{directory / 'corpus.json'}: damaged ({error}): prepare the corpus again") from None
    train, valid = (
        FileTokens(
            directory / f"{name}.tokens",
            manifest["dtype"],
            manifest[name]["elements"],
            directory / f"{name}.lines" if manifest["options"]["reading"] == "lines" else None,
            manifest[name]["lines"],
            symbols=len(vocabulary),
        )
        for name in ("train", "valid")
    )
    return Corpus(directory, vocabulary, train, valid, manifest)


def token_dtype(vocabulary_size: int) -> str:
    """The smallest unsigned type that holds the symbols 0..V-1.

    >>> token_dtype(256), token_dtype(257)
    ('uint8', 'uint16')
    """
    return np.min_scalar_type(vocabulary_size - 1).name


def _check_options(
    level: str, reading: str, validation_fraction: float, vocabulary_size: int | None, min_count: int
) -> None:
    check_level(level)
    if reading not in READINGS:
        raise ValueError(f"reading: expected one of {', '.join(READINGS)}, got {reading!r}")
    if not 0 < validation_fraction < 1:
        raise ValueError(f"validation_fraction: expected between 0 and 1, both excluded, got {validation_fraction}")
    if min_count < 1:
        raise ValueError(f"min_count: expected at least 1, got {min_count}")
    if vocabulary_size is not None and vocabulary_size < 3:
        raise ValueError(f"vocabulary_size: expected at least 3, got {vocabulary_size}")


def _open_same(directory: Path, asked: dict[str, Any]) -> Corpus | None:
    try:
        corpus = open_corpus(directory)
    except (FileNotFoundError, ValueError):
        return None
    return corpus if all(corpus.manifest.get(name) == value for name, value in asked.items()) else None


def _check_manifest(manifest: dict[str, Any], vocabulary: Vocabulary) -> None:
    options = manifest["options"]
    if manifest["format"] != FORMAT or options["reading"] not in READINGS or options["level"] != vocabulary.level:
        raise ValueError("format, reading or level")
    if manifest["dtype"] != token_dtype(len(vocabulary)):
        raise ValueError(f"dtype {manifest['dtype']!r} does not fit {len(vocabulary)} symbols")
    for name in ("train", "valid"):
        for count in ("elements", "lines", "unknown", "characters", "bytes"):
            if type(manifest[name][count]) is not int or manifest[name][count] < 0:
                raise ValueError(f"{name} {count}")


class _Counted:
    """Chunks of text, counted as they pass."""

    def __init__(self, chunks: Iterator[str]):
        self._chunks = chunks
        self.characters = 0

    def __iter__(self) -> Iterator[str]:
        for chunk in self._chunks:
            self.characters += len(chunk)
            yield chunk


def _clear(directory: Path) -> None:
    """Remove a corpus, first of all the file that says that it is complete."""
    for name in ("corpus.json", "train.tokens", "valid.tokens", "train.lines", "valid.lines", "vocabulary.json"):
        (directory / name).unlink(missing_ok=True)


def _write_tokens(
    parts: Iterator[Ids], directory: Path, name: str, vocabulary: Vocabulary, reading: str
) -> dict[str, int]:
    """Write symbols, and for lines where they start; return how many there are."""
    dtype = token_dtype(len(vocabulary))
    elements = unknown = lines = 0
    ended = True
    with ExitStack() as stack:
        tokens = stack.enter_context(open(directory / f"{name}.tokens", "wb"))
        offsets = stack.enter_context(open(directory / f"{name}.lines", "wb")) if reading == "lines" else None
        if offsets is not None:
            offsets.write(np.zeros(1, dtype="<i8").tobytes())
            parts = chain(parts, _last_line_end(vocabulary, lambda: ended))
        for ids in parts:
            if not len(ids):
                continue
            tokens.write(ids.astype(np.dtype(dtype).newbyteorder("<")).data)
            if vocabulary.unknown is not None:
                unknown += int((ids == vocabulary.unknown).sum())
            if offsets is not None:
                stops = np.flatnonzero(ids == vocabulary.eos) + (elements + 1)
                offsets.write(stops.astype("<i8").data)
                lines += len(stops)
                ended = bool(ids[-1] == vocabulary.eos)
            elements += len(ids)
        for file in filter(None, (tokens, offsets)):
            file.flush()
            os.fsync(file.fileno())  # on disk before corpus.json says so
    return {"elements": elements, "lines": lines, "unknown": unknown}


def _last_line_end(vocabulary: Vocabulary, ended: Callable[[], bool]) -> Iterator[Ids]:
    """The `<eos>` of a last line that lacks its newline: every example ends in one."""
    if not ended():
        yield np.array([vocabulary.eos], dtype=np.int64)
