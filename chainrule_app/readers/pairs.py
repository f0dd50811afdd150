"""Prepare pairs on disk: two vocabularies from the training pairs, then all pairs as numbers, in bounded memory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product, zip_longest
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from chainrule.data import Batch, Batches, BPEVocabulary, Shuffled, Vocabulary, WordVocabulary
from chainrule.option_error import UserError, option
from chainrule.typed_json import read_value
from chainrule_app.blocks import in_blocks
from chainrule_app.readers.delimited import DelimitedFile
from chainrule_app.readers.held_out import OneInEvery
from chainrule_app.readers.origin import ByteSource, HeldRows, Origin, origin_of
from chainrule_app.readers.ragged import Ragged
from chainrule_app.readers.row_order import Rows, in_order
from chainrule_app.readers.sources import fingerprint
from chainrule_app.readers.store import Ids, Store, StoreWriter

_BATCHES_IN_POOL = 64
SentenceSource: TypeAlias = str | Path | ByteSource | HeldRows


@dataclass(frozen=True)
class PairedSentences:
    """As many sentences of a source and of a target, each with its `<eos>`."""

    source: Ragged
    target: Ragged

    def __len__(self) -> int:
        return len(self.source)

    def batch(self, chosen: Ids) -> Batch:
        """Return the targets as x, conditioned on their sources."""
        x, lengths = self.target.padded(chosen)
        return Batch(x, lengths, context=source_context(self.source, chosen))


def source_context(source: Ragged, chosen: Ids) -> dict[str, Tensor]:
    """Source sentences as the context of `chainrule.models.Seq2Seq`."""
    tokens, lengths = source.padded(chosen)
    return {"tokens": tokens, "lengths": lengths}


def pair_batches(pairs: PairedSentences, batch_size: int, seed: int = 0, shard: tuple[int, int] = (0, 1)) -> Batches:
    """Pairs in the order of `Shuffled`, sorted by target and source length in pools of 64 batches."""
    source, target = pairs.source.lengths, pairs.target.lengths

    def sort(rows: Rows) -> Rows:
        return np.lexsort((source[rows], target[rows]))

    order = Shuffled(len(pairs), batch_size, seed, shard, name="pairs", sort=sort, pool=_BATCHES_IN_POOL)
    return Batches(order, lambda _, rows: pairs.batch(order.own(rows)))


def pair_evaluation(pairs: PairedSentences, batch_size: int = 128) -> Iterator[Batch]:
    """Every pair once, in order."""
    lengths = np.maximum(pairs.source.lengths, pairs.target.lengths)
    return map(pairs.batch, in_order(len(pairs), batch_size, lengths=lengths))


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation, and the number of their line, from 1; in memory their index."""

    line: int
    source: str
    target: str


def read_pairs(source: SentenceSource, target: SentenceSource | None = None) -> Iterator[Pair]:
    """Yield the stripped pairs of two files aligned line by line, or of one file of two columns; or pairs in memory."""
    if target is None and isinstance(source, HeldRows):
        for index, row in source:
            if len(row) != 2:
                raise ValueError(f"{source.origin.at(index)}: expected a source and a target, got {len(row)} texts")
            yield Pair(index, *row)
        return
    if target is None:
        for line, text in read_sentences(source):
            columns = text.split("\t")
            if len(columns) != 2:
                got = "one column" if len(columns) == 1 else f"{len(columns)} columns"
                raise UserError(
                    f"{origin_of(source).at(line)}: expected a source, a tab and a target, got {got}",
                    f"two files of lines are given as {option('source')} and {option('target')}",
                )
            yield Pair(line, columns[0].strip(), columns[1].strip())
        return
    counts = [0, 0]
    for one, other in zip_longest(read_sentences(source), read_sentences(target)):
        counts = [count + (side is not None) for count, side in zip(counts, (one, other), strict=True)]
        if counts[0] == counts[1]:
            yield Pair(one[0], one[1].strip(), other[1].strip())
    if counts[0] != counts[1]:
        raise ValueError(
            f"{source} has {counts[0]} lines and {target} has {counts[1]}: "
            "line n of one file must be the translation of line n of the other"
        )


def read_sentences(source: SentenceSource) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers from 1, see `DelimitedFile`; or texts in memory from 0."""
    if isinstance(source, HeldRows):
        return ((index, row[0]) for index, row in source)
    return DelimitedFile(source).lines()


_MANIFEST = "pairs.json"
LEVELS: dict[str, type[Vocabulary]] = {"word": WordVocabulary, "bpe": BPEVocabulary}
SIDES, PARTS = ("source", "target"), ("train", "valid")
_BLOCK = 8192  # pairs read together


@dataclass(frozen=True)
class Pairs:
    """Prepared pairs."""

    source_vocabulary: Vocabulary  # source_vocabulary, target_vocabulary: of the training pairs
    target_vocabulary: Vocabulary
    train: PairedSentences  # train, valid: as numbers, read from the disk on demand
    valid: PairedSentences
    manifest: dict[str, Any]  # content of pairs.json: counts and fingerprints


def prepare_pairs(
    directory: str | Path,  # created if it is missing; `pairs.json` is the last file written into it
    source: SentenceSource,  # source sentences, or both, separated by a tab; see `read_pairs`
    target: SentenceSource | None = None,
    *,
    validation_source: SentenceSource
    | None = None,  # validation pairs; by default some of the first pairs are held out
    validation_target: SentenceSource | None = None,
    level: str = "word",  # "word", text between blanks; or "bpe", pieces of words
    min_count: int = 2,  # rarer words are `<unk>`; pieces of words, rarer than that, are not merged
    vocabulary_size: int | None = None,  # most symbols of each vocabulary
    max_length: int = 256,  # most symbols of a sentence, `<eos>` not counted
    validation_fraction: float = 0.1,  # of the pairs, held out where no others are given
    seed: int = 0,
    vocabularies: tuple[Vocabulary, Vocabulary] | None = None,
) -> Pairs:
    """Read pairs twice, for their vocabularies and for their numbers, each with its `<eos>`, and write both."""
    fraction = None if validation_source is not None else validation_fraction
    by_side = dict(zip(SIDES, vocabularies or (), strict=False)) or {
        side: LEVELS[level].fit(
            (
                f"{getattr(pair, side)}\n"
                for pair, held_out in _shared_out(read_pairs(source, target), fraction, seed)
                if not held_out
            ),
            eos=True,
            min_count=min_count,
            vocabulary_size=vocabulary_size,
        )
        for side in SIDES
    }
    names = {"source": origin_of(source), "target": origin_of(target or source)}
    dev_names = {"source": origin_of(validation_source), "target": origin_of(validation_target or validation_source)}
    files = {
        "source": source,
        "target": target,
        "validation_source": validation_source,
        "validation_target": validation_target,
    }
    with StoreWriter(directory, _MANIFEST) as writer:
        for side, vocabulary in by_side.items():
            vocabulary.save(writer.path(f"{side}.json"))
        train = _Written(writer, "train", by_side, max_length, names)
        valid = _Written(writer, "valid", by_side, max_length, names if validation_source is None else dev_names)
        for pair, held_out in _shared_out(read_pairs(source, target), fraction, seed):
            (valid if held_out else train).add(pair)
        for pair in () if validation_source is None else read_pairs(validation_source, validation_target):
            valid.add(pair)
        for counted, what in ((train, "to train on"), (valid, "to hold out")):
            if not counted.pairs:
                raise ValueError(f"{source}: expected at least one pair {what}, got none: add pairs")
        manifest = {
            **{name: None if path is None else fingerprint(path) for name, path in files.items()},
            "train": train.counts(),
            "valid": valid.counts(),
            "symbols": {side: len(vocabulary) for side, vocabulary in by_side.items()},
        }
        writer.finish(manifest)
    return open_pairs(directory)


def open_pairs(directory: str | Path) -> Pairs:
    """Open a folder written by `prepare_pairs`; raises the errors of `Store`."""
    store = Store(directory, _MANIFEST, "pairs")
    vocabularies = open_vocabularies(directory)
    sides = {}
    with store.checked():
        for part, (side, vocabulary) in product(PARTS, zip(SIDES, vocabularies, strict=True)):
            name, below = f"{part}.{side}", len(vocabulary)
            rows = read_value(int, store.manifest[part]["pairs"], f"{part}.pairs")
            sides[name] = Ragged.load(store, f"{name}.symbols", f"{name}.offsets", below, rows=rows, shortest=1)
    train, valid = (PairedSentences(sides[f"{part}.source"], sides[f"{part}.target"]) for part in PARTS)
    return Pairs(*vocabularies, train, valid, store.manifest)


def open_vocabularies(directory: str | Path) -> tuple[Vocabulary, Vocabulary]:
    """Return the symbols of sources and of targets of a prepared folder, whose pairs may be missing."""
    source, target = (Vocabulary.load(Path(directory) / f"{side}.json") for side in SIDES)
    return source, target


def held_out_texts(directory: str | Path) -> tuple[list[str], list[str]]:
    """Return the pairs held out as they were written: sources and targets."""
    store = Store(directory, _MANIFEST, "pairs")
    texts = []
    for side in SIDES:
        name = f"valid.{side}.text"
        with store.checked(name):
            texts.append(store.array(name, "u1").tobytes().decode().split("\n")[:-1])
            if len(texts[-1]) != store.manifest["valid"]["pairs"]:
                raise ValueError(f"{len(texts[-1])} held-out sentences: not one for each pair")
    return texts[0], texts[1]


def encode_sentence(vocabulary: Vocabulary, sentence: str, max_length: int, where: Origin, line: int) -> Ids:
    """Return the symbols of a sentence, `<eos>` last."""
    symbols = vocabulary.encode(f"{sentence}\n")
    if len(symbols) - 1 > max_length:
        raise UserError(
            f"{where.at(line)}: expected at most {max_length} symbols, got {len(symbols) - 1}",
            f"split the sentence, or train with a larger {option('max_length')}",
        )
    return symbols


class _Written:
    """The pairs of one part while they are written: their symbols, and the texts of those held out."""

    def __init__(
        self,
        writer: StoreWriter,
        part: str,
        vocabularies: dict[str, Vocabulary],
        max_length: int,
        names: dict[str, Origin],
    ):
        self._vocabularies, self._max_length, self._names = vocabularies, max_length, names
        self._symbols = {side: writer.growing(f"{part}.{side}.symbols", "i4") for side in SIDES}
        self._offsets = {side: writer.growing(f"{part}.{side}.offsets", "i8") for side in SIDES}
        self._texts = {side: writer.growing(f"{part}.{side}.text", "u1") for side in SIDES if part == "valid"}
        for offsets in self._offsets.values():
            offsets.append([0])
        self._unknown, self._longest = dict.fromkeys(SIDES, 0), dict.fromkeys(SIDES, 0)
        self.pairs = 0

    def add(self, pair: Pair) -> None:
        self.pairs += 1
        for side, vocabulary in self._vocabularies.items():
            row = encode_sentence(vocabulary, getattr(pair, side), self._max_length, self._names[side], pair.line)
            self._symbols[side].append(row)
            self._offsets[side].append([self._symbols[side].rows])
            self._longest[side] = max(self._longest[side], len(row))
            if vocabulary.unknown is not None:
                self._unknown[side] += int((row == vocabulary.unknown).sum())
        for side, file in self._texts.items():
            file.append(np.frombuffer(f"{getattr(pair, side)}\n".encode(), np.uint8))

    def counts(self) -> dict[str, int]:
        return {
            "pairs": self.pairs,
            **{f"{side}_symbols": self._symbols[side].rows for side in SIDES},
            **{f"{side}_unknown": self._unknown[side] for side in SIDES},
            **{f"{side}_longest": self._longest[side] for side in SIDES},
        }


def _shared_out(pairs: Iterable[Pair], fraction: float | None, seed: int) -> Iterator[tuple[Pair, bool]]:
    """Yield each pair, and whether it is held out; the same ones at each call."""
    draw = OneInEvery(fraction, seed)
    for block in in_blocks(pairs, _BLOCK):
        yield from zip(block, draw.take(len(block)).tolist(), strict=True)
