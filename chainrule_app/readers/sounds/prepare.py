"""Prepare sounds on disk: one rate, one channel, one integer a sample, in bounded memory."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from chainrule.data import Batch, Batches, Shuffled, Tokens, padded
from chainrule.option_error import OptionError, UserError, option
from chainrule.typed_json import read_value
from chainrule_app.readers.held_out import OneInEvery, keep_labels
from chainrule_app.readers.journal import Journal, Journals
from chainrule_app.readers.members import Member, read_each
from chainrule_app.readers.sounds.levels import SoundLevels, make_levels
from chainrule_app.readers.sounds.sound_file import Collection, HeldSounds, SoundFile, read_sound, sound_facts
from chainrule_app.readers.store import Ids, Store, StoredTokens, StoreWriter, token_dtype

_BATCHES_IN_POOL = 64
_RANGE = Struct("<ddQ")  # the lowest and highest amplitude of a block, and how many are beyond [−1, 1]
Labels = npt.NDArray[np.int64]


def clip_batches(
    tokens: Tokens,
    batch_size: int,
    longest: int,
    labels: Labels | None = None,
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
) -> Batches:
    """Clips in the order of `Shuffled`, sorted by length in pools of 64 batches.

    A clip longer than `longest` is cut into pieces, each a separate sequence.

    Args:
        tokens: levels, a line a clip.
        longest: samples of a piece.
        labels: (clips,) integers, the context of the rows; `None` without labels.
        batch_size, seed, shard: see `Shuffled`.
    """
    pieces = _Pieces(tokens, longest, labels)
    lengths = pieces.lengths
    order = Shuffled(
        len(lengths), batch_size, seed, shard, name="clips", sort=Shuffled.by_length(lengths), pool=_BATCHES_IN_POOL
    )
    return Batches(order, lambda _, rows: pieces.batch(order.own(rows), int(lengths[rows].max())))


def clip_evaluation(tokens: Tokens, batch_size: int, longest: int, labels: Labels | None = None) -> Iterator[Batch]:
    """Every piece of every clip once, `batch_size` of similar length in a batch.

    The order of batches is random with a fixed seed, so that the first ones are a fair sample of all lengths.
    """
    pieces = _Pieces(tokens, longest, labels)
    order = np.argsort(pieces.lengths, kind="stable")
    for start in np.random.default_rng(0).permutation(np.arange(0, len(order), batch_size)).tolist():
        chosen = order[start : start + batch_size]
        yield pieces.batch(chosen, int(pieces.lengths[chosen].max()))


class _Pieces:
    """Clips cut into pieces: of each the clip, where it starts and its length."""

    def __init__(self, tokens: Tokens, longest: int, labels: Labels | None):
        if not tokens.line_count:
            raise ValueError("clips: expected at least one, got none")
        starts, stops = tokens.line_bounds(np.arange(tokens.line_count))
        counts = -(-(stops - starts) // longest)
        self._tokens, self._labels, self._clips = tokens, labels, np.repeat(np.arange(len(counts)), counts)
        piece = np.arange(len(self._clips)) - np.repeat(np.cumsum(counts) - counts, counts)
        self._starts = starts[self._clips] + piece * longest
        self.lengths = np.minimum(longest, stops[self._clips] - self._starts)

    def batch(self, pieces: Ids, width: int) -> Batch:
        """Some of the pieces, padded with 0 to a width."""
        starts, lengths = self._starts[pieces], self.lengths[pieces]
        x = padded(self._tokens.rows(starts, starts + lengths), width)
        labels = None if self._labels is None else torch.from_numpy(self._labels[self._clips[pieces]])
        return Batch(x, lengths=torch.from_numpy(lengths), context=labels)


class Labelling:
    """Label of a sound file, taken from its name by a pattern such as `{label}_*`, or from its folder."""

    def __init__(self, pattern: str | None):
        self.pattern = pattern
        if pattern is None:
            return
        if pattern.count("{label}") != 1:
            raise OptionError("label_pattern", f"expected {{label}} once, as in '{{label}}_*', got {pattern!r}")
        parts = re.split(r"(\{label\}|\*)", pattern)
        patterns = {"{label}": "(.+?)", "*": ".*?"}
        self._expression = re.compile("".join(patterns.get(part, re.escape(part)) for part in parts))

    def __call__(self, name: str) -> str:
        *folders, file = name.split("/")
        if self.pattern is None:
            if not folders:
                raise ValueError(f"{name}: not in a folder named after its label, as all other files are")
            return folders[-1]
        match = self._expression.fullmatch(file.rpartition(".")[0])
        if match is None:
            raise UserError(
                f"{name}: does not fit {option('label_pattern')} {self.pattern!r}", "rename it, or change the pattern"
            )
        return match[1]


def ordered(labels: Iterable[str]) -> list[str]:
    """Different labels, numbers by their size."""
    different = set(labels)
    numbers = all(label.isascii() and label.isdecimal() and len(label) < 19 for label in different)
    return sorted(different, key=int if numbers else None)


def label_number(labels: Sequence[str], label: str) -> int:
    """Return the index of a label among the labels of a run."""
    if label not in labels:
        some = ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else "")
        raise OptionError("label", f"expected one of {some}, got {label!r}")
    return labels.index(label)


class ClipWriter:
    """The arrays of one part while they are written: samples, where clips begin, and labels."""

    def __init__(self, writer: StoreWriter, part: str, levels: int):
        self.codes = writer.growing(f"{part}.tokens", token_dtype(levels))  # all samples, the present clip last
        self._clips, self._labels = (writer.growing(f"{part}.{name}", "i8") for name in ("clips", "labels"))
        self._clips.append([0])

    @property
    def counts(self) -> dict[str, int]:
        """Whole clips and samples written so far."""
        return {"clips": self._clips.rows - 1, "samples": self.codes.rows}

    def end(self, label: int | None) -> None:
        """End the present clip."""
        self._clips.append([self.codes.rows])
        if label is not None:
            self._labels.append([label])


@dataclass
class Writing:
    """Settings of writing samples, and counts of the samples written."""

    levels: SoundLevels  # levels, rate: of the samples written
    rate: int
    labelling: Labelling | None  # labelling, labels: of each clip; `None` and none where there are no labels
    labels: list[str]
    skipped: list[dict[str, str]]  # files that could not be read, with the reason; filled where `skip_bad`
    silent: int = 0  # clips of one amplitude
    clipped: int = 0  # samples beyond [−1, 1]
    journal: Journal | None = None  # what was read and encoded before
    skip_bad: bool = field(default=False, kw_only=True)

    def whole(self, files: Iterable[SoundFile], part: ClipWriter) -> None:
        """Write files into one part, each a clip."""
        for file in files:
            self.cut(file, None, part, part)

    def cut(self, file: SoundFile, samples: int | None, first: ClipWriter, rest: ClipWriter) -> None:
        """Write the first `samples` samples into one part and the rest into another; all into the first for None."""
        label, before, clips = self._label(file), first.codes.rows, 0
        read, low, high, clipped = 0, np.inf, -np.inf, 0
        try:
            for codes, lowest, highest, beyond in self._encoded(file):
                low, high, clipped = min(low, lowest), max(high, highest), clipped + beyond
                left = len(codes) if samples is None else max(samples - read, 0)
                first.codes.append(codes[:left])
                if left < len(codes):
                    if not clips:
                        first.end(label)
                        clips = 1
                    rest.codes.append(codes[left:])
                read += len(codes)
        except ValueError as error:
            if not self.skip_bad or clips:
                raise
            first.codes.truncate(before)
            self.skipped.append(file.skipped(error))
            return
        if read:
            (rest if clips else first).end(label)
            self.silent += int(low == high) * (1 + clips)
            self.clipped += clipped

    def _encoded(self, file: SoundFile) -> Iterator[tuple[npt.NDArray[np.unsignedinteger], float, float, int]]:
        """Yield the levels of each block of a sound, its range, and the number of samples beyond [−1, 1]."""
        dtype = np.dtype(token_dtype(self.levels.levels))

        def answers() -> Iterator[bytes]:
            for block in read_sound(file, self.rate):
                clipped = int((np.abs(block) > 1).sum())
                yield _RANGE.pack(block.min(), block.max(), clipped) + self.levels.encode(block).astype(dtype).tobytes()

        found = answers()
        if self.journal is not None and isinstance(file, Member):
            found = self.journal.several(file.digest(), answers)
        for answer in found:
            yield np.frombuffer(answer, dtype, offset=_RANGE.size), *_RANGE.unpack_from(answer)

    def _label(self, file: SoundFile) -> int | None:
        if self.labelling is None:
            return None
        label = self.labelling(file.name)
        if label not in self.labels:
            raise ValueError(
                f"{file.label}: the label {label!r} is not in the training files: {', '.join(self.labels)}"
            )
        return self.labels.index(label)


_MANIFEST = "sounds.json"
LOWEST_RATE, HIGHEST_USUAL_RATE = 100, 16_000
FILES_TO_HOLD_OUT_WHOLE = 10
_PARTS = ("train", "valid")


@dataclass(frozen=True)
class Sounds:
    """Prepared sounds."""

    levels: SoundLevels  # meaning of each integer
    train: StoredTokens  # levels of all samples, uint8 or uint16, a line a clip, read from the disk on demand
    valid: StoredTokens  # the same of the sounds held out
    train_labels: Labels | None  # train_labels, valid_labels: (clips,) of each clip; `None` without labels
    valid_labels: Labels | None
    manifest: dict[str, Any]  # content of sounds.json: rate, labels, counts, fingerprints

    @property
    def rate(self) -> int:
        """Samples a second."""
        return int(self.manifest["rate"])


def prepare_sounds(
    source: str | Path | HeldSounds,
    directory: str | Path,
    *,
    rate: int | None = None,
    law: str = "mu",
    levels: int = 256,
    labels: str = "auto",
    label_pattern: str | None = None,
    sequences: str = "auto",
    longest_clip: int = 8192,
    validation: str | Path | HeldSounds | None = None,
    validation_fraction: float = 0.1,
    skip_bad: bool = False,
    seed: int = 0,
    like: list[str] | None = None,
) -> Sounds:
    """Read the headers of all sounds, then their samples, and write those as integers into a directory.

    Of ten files or more, one out of each 1 / `validation_fraction` in succession, drawn from the seed, is held out; of
    fewer, the end of each.

    Args:
        source: a folder, an archive or a file, as `Members` reads it; or sounds in memory.
        directory: created if it is missing; `sounds.json` is the last file written into it.
        rate: samples a second; the lowest of the files, 16,000 at most, if not given. Others are resampled.
        law: mu or linear, see `make_levels`.
        levels: of an amplitude.
        labels: folders, none, or auto: folders where every file is in one and there are two or more.
        label_pattern: pattern of the label in file names, instead of folders; see `Labelling`.
        sequences: clips, each file a sequence; stream, all of them one; auto takes clips where there are labels, or
            where nine files in ten have at most `longest_clip` samples.
        longest_clip: for `sequences` auto.
        validation: validation sounds; by default a part of the source is held out.
        validation_fraction: of the files, or of each file.
        skip_bad: leave out and list unreadable files instead of raising an error.
        seed: of the files held out.
        like: labels of other sounds to reuse; empty for sounds without labels.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: an argument out of range, a file that is no sound, is damaged or empty, all of them silent, or
            labels that cannot be told.
    """
    if labels == "none" and label_pattern is not None:
        raise OptionError("label_pattern", "expected no pattern with labels=none", "leave one of them out")
    quantised = make_levels(law, levels)
    skipped: list[dict[str, str]] = []
    collection = Collection(source)
    files: list[SoundFile] = [*collection.part("train")]
    sounds = list(read_each(files, sound_facts, skipped, skip_bad=skip_bad))
    held_out = None if validation is None else Collection(validation)
    held_out_files: list[SoundFile] = [*(collection.part("valid") if held_out is None else held_out.files)]
    others = list(read_each(held_out_files, sound_facts, skipped, skip_bad=skip_bad))
    chosen = np.zeros(len(sounds), dtype=np.bool_)
    if not held_out_files and len(sounds) >= FILES_TO_HOLD_OUT_WHOLE:
        chosen = OneInEvery(validation_fraction, seed).take(len(sounds))
    labelling = _labelling(labels, label_pattern, [file.name for file, _ in sounds])
    if labelling is not None:
        chosen = keep_labels(chosen, [{labelling(file.name)} for file, _ in sounds])
    training = [sound for sound, held in zip(sounds, chosen, strict=True) if not held]
    rate = rate or min(*(facts.rate for _, facts in training), HIGHEST_USUAL_RATE)
    if rate < LOWEST_RATE:
        raise UserError(
            f"{source}: expected at least {LOWEST_RATE} samples a second, got {rate}", f"pass {option('rate')}"
        )
    if like is not None and bool(like) != (labelling is not None):
        raise ValueError(f"{source}: expected sounds {'with' if like else 'without'} labels, as in the earlier run")
    names = like or ([] if labelling is None else ordered(labelling(file.name) for file, _ in training))
    lengths = [facts.frames * rate / facts.rate for _, facts in training]
    if sequences == "auto":
        short = sum(length <= longest_clip for length in lengths) >= 0.9 * len(lengths)
        sequences = "clips" if names or short else "stream"
    if names and sequences == "stream":
        raise OptionError(
            "sequences",
            "expected clips where sounds have labels, got stream",
            f"give {option('labels', 'none')}, or clips",
        )
    journals = Journals(directory)
    with StoreWriter(directory, _MANIFEST) as writer, journals.open("sounds", f"{law} {levels} {rate}") as journal:
        writing = Writing(quantised, rate, labelling, names, skipped, journal=journal, skip_bad=skip_bad)
        parts = {part: ClipWriter(writer, part, quantised.levels) for part in _PARTS}
        if others:
            writing.whole((file for file, _ in sounds), parts["train"])
            writing.whole((file for file, _ in others), parts["valid"])
        elif len(sounds) >= FILES_TO_HOLD_OUT_WHOLE:
            for held, (file, _) in zip(chosen, sounds, strict=True):
                writing.whole([file], parts["valid" if held else "train"])
        else:
            for (file, _), length in zip(sounds, lengths, strict=True):
                writing.cut(file, round(length * (1 - validation_fraction)), parts["train"], parts["valid"])
        counts = {part: written.counts for part, written in parts.items()}
        if not all(count["samples"] for count in counts.values()):
            raise ValueError(f"{source}: too few sounds to train on and to hold out: add files")
        if writing.silent == sum(count["clips"] for count in counts.values()):
            raise ValueError(f"{source}: expected sounds, got silence: every file is constant")
        manifest = {
            "source": collection.fingerprint(),
            "validation": (held_out or collection).fingerprint() if others else None,
            "rate": rate,
            "rates": {str(hertz): count for hertz, count in sorted(Counter(facts.rate for _, facts in sounds).items())},
            "law": law,
            "levels": levels,
            "sequences": sequences,
            "labels": names,
            "silent": writing.silent,
            "clipped": writing.clipped,
            "skipped": skipped,
            **counts,
        }
        writer.finish(manifest)
    journals.forget()
    return open_sounds(directory)


def open_sounds(directory: str | Path) -> Sounds:
    """Open a folder written by `prepare_sounds`; raises the errors of `Store`."""
    store = Store(directory, _MANIFEST, "sounds")
    manifest = store.manifest
    tokens: dict[str, StoredTokens] = {}
    labels: dict[str, Labels | None] = dict.fromkeys(_PARTS)
    with store.checked():
        levels = make_levels(manifest["law"], manifest["levels"])
        for part in _PARTS:
            clips, samples = (read_value(int, manifest[part][name], f"{part}.{name}") for name in ("clips", "samples"))
            tokens[part] = StoredTokens(store, f"{part}.tokens", samples, levels.levels, f"{part}.clips", clips)
            if manifest["labels"]:
                labels[part] = np.array(store.array(f"{part}.labels", "i8", (clips,), len(manifest["labels"])))
    return Sounds(levels, tokens["train"], tokens["valid"], labels["train"], labels["valid"], manifest)


def _labelling(labels: str, pattern: str | None, names: list[str]) -> Labelling | None:
    if pattern is not None:
        return Labelling(pattern)
    folders = {name.rpartition("/")[0] for name in names}
    has_folders = len(folders) > 1 and "" not in folders
    if labels == "folders" and not has_folders:
        raise OptionError("labels", "expected sounds in two folders or more, one for each label, got one")
    return Labelling(None) if labels == "folders" or (labels == "auto" and has_folders) else None
