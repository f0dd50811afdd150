"""Prepare pairs on disk: two vocabularies from the pairs to train on, then all pairs as numbers, in bounded memory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.data.atomic import read_json, write_json
from chainrule.data.levels import load_vocabulary
from chainrule.data.pairs.pair_file import Pair, read_pairs, read_sentences
from chainrule.data.pairs.sentences import PairedSentences, Sentences
from chainrule.data.source import fingerprint
from chainrule.data.subwords import BPEVocabulary
from chainrule.data.vocabulary import Ids, Vocabulary
from chainrule.data.words import WordVocabulary

FORMAT = 1
LEVELS: dict[str, type[Vocabulary]] = {"word": WordVocabulary, "bpe": BPEVocabulary}
SIDES, PARTS = ("source", "target"), ("train", "valid")
_BLOCK = 8192  # pairs looked at together, of which some are held out


@dataclass(frozen=True)
class Pairs:
    """Prepared pairs.

    Attributes:
        source_vocabulary, target_vocabulary: of the training pairs.
        train, valid: as numbers, read from the disk as they are asked for.
        manifest: what pairs.json holds: counts and fingerprints.
    """

    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    train: PairedSentences
    valid: PairedSentences
    manifest: dict[str, Any]


def prepare_pairs(
    directory: str | Path,
    source: str | Path,
    target: str | Path | None = None,
    *,
    dev_source: str | Path | None = None,
    dev_target: str | Path | None = None,
    level: str = "word",
    min_count: int = 2,
    vocabulary_size: int | None = None,
    max_length: int = 256,
    validation_fraction: float = 0.1,
    seed: int = 0,
) -> Pairs:
    """Read pairs twice, once for their vocabularies and once for their numbers, and write both into a directory.

    Every sentence ends in `<eos>`; an empty one is `<eos>` alone, and stays.

    Args:
        directory: made if it is missing; `pairs.json` is the last file written into it.
        source: source sentences, or both, separated by a tab; see `read_pairs`.
        target: target sentences.
        dev_source: pairs to hold out, in place of some of the first.
        dev_target: their targets.
        level: "word", what stands between blanks; or "bpe", pieces of words.
        min_count: rarer words are `<unk>`; pieces of words, rarer than that, are not merged.
        vocabulary_size: most symbols of each vocabulary; None sets no limit to words, and 4096 to pieces.
        max_length: most symbols of a sentence, `<eos>` not counted.
        validation_fraction: of the pairs, held out where no others are given.
        seed: of the pairs held out.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the files do not fit together, or have too few pairs, or a sentence that is too long.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "pairs.tsv"
    ...     _ = file.write_text("ja\\tyes\\nnein\\tno\\n" * 10)
    ...     pairs = prepare_pairs(Path(folder) / "data", file)
    ...     len(pairs.train), len(pairs.valid), pairs.target_vocabulary.words
    (18, 2, ['no', 'yes'])
    """
    if level not in LEVELS:
        raise ValueError(f"level: expected one of {', '.join(LEVELS)}, got {level!r}")
    if not 0 < validation_fraction <= 0.5:
        raise ValueError(f"validation_fraction: expected above 0 and at most 0.5, got {validation_fraction}")
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "pairs.json").unlink(missing_ok=True)
    every = None if dev_source is not None else round(1 / validation_fraction)
    vocabularies = {
        side: LEVELS[level].fit(
            (
                f"{getattr(pair, side)}\n"
                for pair, held_out in _shared_out(read_pairs(source, target), every, seed)
                if not held_out
            ),
            eos=True,
            min_count=min_count,
            vocabulary_size=vocabulary_size,
        )
        for side in SIDES
    }
    for side, vocabulary in vocabularies.items():
        vocabulary.save(directory / f"{side}.json")
    writer = _Writer(directory, vocabularies, max_length)
    names = {"source": str(source), "target": str(target or source)}
    counts = writer.write("train", _part(source, target, every, seed, held_out=False), names)
    if every is None:
        assert dev_source is not None
        dev_names = {"source": str(dev_source), "target": str(dev_target or dev_source)}
        dev_counts = writer.write("valid", read_pairs(dev_source, dev_target), dev_names)
    else:
        dev_counts = writer.write("valid", _part(source, target, every, seed, held_out=True), names)
    for counted, what in ((counts, "to train on"), (dev_counts, "to hold out")):
        if not counted["pairs"]:
            raise ValueError(f"{source}: expected at least one pair {what}, got none: give more pairs")
    files = {"source": source, "target": target, "dev_source": dev_source, "dev_target": dev_target}
    manifest = {
        "format": FORMAT,
        **{name: None if path is None else fingerprint(path) for name, path in files.items()},
        "counts": {"train": counts, "valid": dev_counts},
        "symbols": {side: len(vocabulary) for side, vocabulary in vocabularies.items()},
    }
    write_json(directory / "pairs.json", manifest)
    return open_pairs(directory)


def open_pairs(directory: str | Path) -> Pairs:
    """Open what `prepare_pairs` wrote.

    Raises:
        FileNotFoundError: there is none, or its preparation was cut short.
        ValueError: a file in it was changed or cut.
    """
    directory = Path(directory)
    if not (directory / "pairs.json").is_file():
        raise FileNotFoundError(f"{directory}: no prepared pairs here (pairs.json is missing): prepare them again")
    manifest = read_json(directory / "pairs.json")
    vocabularies = {side: load_vocabulary(directory / f"{side}.json") for side in SIDES}
    parts = {}
    for part in PARTS:
        sides = [_open_side(directory, part, side, len(vocabularies[side])) for side in SIDES]
        if len(sides[0]) != len(sides[1]):
            raise ValueError(f"{directory}: damaged ({part} has {len(sides[0])} sources, {len(sides[1])} targets)")
        parts[part] = PairedSentences(*sides)
    return Pairs(vocabularies["source"], vocabularies["target"], parts["train"], parts["valid"], manifest)


def held_out_texts(directory: str | Path) -> tuple[list[str], list[str]]:
    """The pairs held out as they were written: sources and targets.

    Raises:
        ValueError: one side has more lines than the other, or none: a file was changed.
    """
    texts = [[line for _, line in read_sentences(Path(directory) / f"valid.{side}.txt")] for side in SIDES]
    if not texts[0] or len(texts[0]) != len(texts[1]):
        raise ValueError(
            f"{directory}: damaged ({len(texts[0])} held-out sources, {len(texts[1])} targets): prepare the pairs again"
        )
    return texts[0], texts[1]


def encode_sentence(vocabulary: Vocabulary, sentence: str, max_length: int, name: str, line: int) -> Ids:
    """The symbols of a sentence, `<eos>` last.

    Raises:
        ValueError: it is longer than `max_length`; the message names the file and the line.
    """
    symbols = vocabulary.encode(f"{sentence}\n")
    if len(symbols) - 1 > max_length:
        raise ValueError(
            f"{name} line {line}: expected at most {max_length} symbols, got {len(symbols) - 1}: "
            "split the sentence, or train with a larger --max-length"
        )
    return symbols


class _Writer:
    """Writes parts as the numbers that `_open_side` maps."""

    def __init__(self, directory: Path, vocabularies: dict[str, Vocabulary], max_length: int):
        self._directory, self._vocabularies, self._max_length = directory, vocabularies, max_length

    def write(self, part: str, pairs: Iterable[Pair], names: dict[str, str]) -> dict[str, int]:
        counts, unknown, longest = (dict.fromkeys(SIDES, 0) for _ in range(3))
        written = 0
        files = {
            (side, what): (self._directory / f"{part}.{side}.{what}").open("wb")
            for side in SIDES
            for what in ("symbols", "ends", *(["txt"] if part == "valid" else []))
        }
        try:
            for pair in pairs:
                written += 1
                for side, vocabulary in self._vocabularies.items():
                    symbols = encode_sentence(vocabulary, getattr(pair, side), self._max_length, names[side], pair.line)
                    counts[side] += len(symbols)
                    longest[side] = max(longest[side], len(symbols))
                    if vocabulary.unknown is not None:
                        unknown[side] += int((symbols == vocabulary.unknown).sum())
                    files[side, "symbols"].write(symbols.astype("<i4").tobytes())
                    files[side, "ends"].write(np.int64(counts[side]).tobytes())
                    if part == "valid":
                        files[side, "txt"].write(f"{getattr(pair, side)}\n".encode())
        finally:
            for file in files.values():
                file.close()
        return {
            "pairs": written,
            **{f"{side}_symbols": counts[side] for side in SIDES},
            **{f"{side}_unknown": unknown[side] for side in SIDES},
            **{f"{side}_longest": longest[side] for side in SIDES},
        }


def _open_side(directory: Path, part: str, side: str, symbol_count: int) -> Sentences:
    stem = directory / f"{part}.{side}"
    try:
        symbols = np.memmap(f"{stem}.symbols", dtype="<i4", mode="r")
        ends = np.fromfile(f"{stem}.ends", dtype="<i8")
    except (OSError, ValueError) as error:
        raise ValueError(f"{stem}: damaged ({error}): prepare the pairs again") from None
    if not len(ends) or ends[-1] != len(symbols) or (np.diff(ends, prepend=0) < 1).any():
        raise ValueError(f"{stem}: damaged (the sentences do not end where the symbols do): prepare the pairs again")
    if int(symbols.min()) < 0 or int(symbols.max()) >= symbol_count:
        raise ValueError(f"{stem}: damaged (a symbol is not in the vocabulary): prepare the pairs again")
    return Sentences(symbols, ends)


def _part(
    source: str | Path, target: str | Path | None, every: int | None, seed: int, *, held_out: bool
) -> Iterator[Pair]:
    shared = _shared_out(read_pairs(source, target), every, seed)
    return (pair for pair, held in shared if held == held_out)


def _shared_out(pairs: Iterable[Pair], every: int | None, seed: int) -> Iterator[tuple[Pair, bool]]:
    """Each pair, and whether it is held out: of `every` pairs in succession one; the same ones at each call."""
    pairs, random = iter(pairs), np.random.default_rng(seed)
    while block := list(islice(pairs, every or _BLOCK)):
        chosen = int(random.integers(every)) if every else -1
        for place, pair in enumerate(block):
            yield pair, place == chosen
