"""Prepare tagged sentences on disk: a vocabulary of the training part, then all sentences as numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from chainrule.data import Batch, Batches, Shuffled
from chainrule.option_error import UserError, option
from chainrule_app.readers.held_out import split_rows
from chainrule_app.readers.origin import ByteSource, Origin
from chainrule_app.readers.ragged import row_places
from chainrule_app.readers.row_order import Rows, in_order
from chainrule_app.readers.sources import fingerprint
from chainrule_app.readers.store import Store, StoreWriter
from chainrule_app.readers.tagged.conll_file import (
    ConllFile,
    HeldSentences,
    Sentence,
    is_conllu,
    read_conll,
    read_lines_of,
)
from chainrule_app.readers.tagged.tag_schemes import Spelling, find_spelling, impossible, is_iob1, repaired
from chainrule_app.readers.tagged.vocabulary import UNKNOWN, Numbers, TaggedVocabulary
from chainrule_app.readers.word_vectors import save_vectors

_BATCHES_IN_POOL = 32
_EVALUATED = 64  # sentences of a batch in evaluation


@dataclass(frozen=True)
class TaggedSentences:
    """Sentences as numbers: their words one after another."""

    words: Numbers  # (N,) numbers of words
    forms: Numbers  # (N,) rows of `spellings`
    tags: Numbers  # (N,) numbers of tags
    starts: npt.NDArray[np.int64]  # (S + 1,) where each sentence begins, and N
    spellings: Numbers  # (F, C) characters of each different word, 0 past its end

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """(S,)."""
        return np.diff(self.starts)

    def batch(self, chosen: npt.NDArray[np.int64], unknown: npt.NDArray[np.bool_] | None = None) -> Batch:
        """Some of the sentences: tags as x, words and characters as context; those flagged are unknown."""
        lengths, rows = row_places(self.starts, chosen)
        real, places = rows >= 0, rows[rows >= 0]
        words, tags = np.zeros((2, *rows.shape), dtype=np.int64)
        words[real] = self.words[places] if unknown is None else np.where(unknown, UNKNOWN, self.words[places])
        tags[real] = self.tags[places]
        spelled = self.spellings[self.forms[places]]
        longest = int((spelled != 0).any(0).sum()) if len(places) else 1
        characters = np.zeros((*rows.shape, max(longest, 1)), dtype=np.int64)
        characters[real] = spelled[:, : max(longest, 1)]
        context = {"words": torch.from_numpy(words), "characters": torch.from_numpy(characters)}
        return Batch(torch.from_numpy(tags), torch.from_numpy(lengths), context=context)


def number_sentences(sentences: Sequence[Sentence], vocabulary: TaggedVocabulary) -> TaggedSentences:
    """Sentences as numbers; tags of sentences without are 0."""
    forms: dict[str, int] = {}
    words, places, tags = [], [], []
    for sentence in sentences:
        words += [vocabulary.word(word) for word in sentence.words]
        places += [forms.setdefault(word, len(forms)) for word in sentence.words]
        tags += [vocabulary.tag(tag) for tag in sentence.tags] if sentence.tags else [0] * len(sentence.words)
    starts = np.cumsum([0, *(len(sentence.words) for sentence in sentences)])
    return TaggedSentences(
        np.array(words, dtype=np.int32),
        np.array(places, dtype=np.int32),
        np.array(tags, dtype=np.int32),
        starts.astype(np.int64),
        vocabulary.spell(list(forms)),
    )


def tagged_batches(
    sentences: TaggedSentences,
    counts: Sequence[int],  # how often each word of the vocabulary was seen
    batch_size: int,
    word_dropout: float = 0.25,  # α; 0 reads every word as it is
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
) -> Batches:
    r"""Sentences in the order of `Shuffled`, sorted by length in pools of 32 batches.

    Rare words are read as unknown by chance, so that the unknown word is learned: one that the training sentences hold
    c times with probability α / (α + c) (Kiperwasser and Goldberg 2016). Its characters stay.
    """
    lengths = sentences.lengths
    order = Shuffled(
        len(sentences),
        batch_size,
        seed,
        shard,
        name="sentences",
        pool=_BATCHES_IN_POOL,
        sort=Shuffled.by_length(lengths),
    )
    seen = np.array([np.inf, *counts])  # the unknown word stays what it is
    chance = word_dropout / (word_dropout + seen) if word_dropout else np.zeros(len(seen))

    def make(step: int, rows: Rows) -> Batch:
        epoch, index = divmod(step, order.steps_per_epoch)
        # One draw for each word of the whole batch, so that all processes together draw what one process would.
        drawn = np.random.default_rng([seed, epoch, 1 + index]).random(int(lengths[rows].sum()))
        pieces = np.split(drawn, np.cumsum(lengths[rows])[:-1])[order.rank :: order.world]
        own = order.own(rows)
        words = [sentences.words[slice(*sentences.starts[row : row + 2])] for row in own]
        return sentences.batch(own, np.concatenate(pieces) < chance[np.concatenate(words)])

    return Batches(order, make)


def tagged_evaluation(
    sentences: TaggedSentences, batch_size: int = _EVALUATED, rows: npt.NDArray[np.int64] | None = None
) -> Iterator[Batch]:
    """Every sentence once, or those with the numbers in `rows`, in order."""
    return map(sentences.batch, in_order(len(sentences), batch_size, rows, sentences.lengths))


_MANIFEST = "corpus.json"
_ARRAYS = ("words", "forms", "tags", "starts", "spellings")
_PARTS = ("train", "valid")


@dataclass(frozen=True)
class TaggedCorpus:
    """Prepared sentences."""

    vocabulary: TaggedVocabulary  # of the training part
    train: TaggedSentences  # sentences to train on, read from the disk on demand
    valid: TaggedSentences  # sentences held out
    valid_words: list[list[str]]  # the words of the sentences held out, as they were written
    manifest: dict[str, Any]  # content of corpus.json: fingerprints, counts, the column and the scheme


def prepare_tagged(
    path: str | Path | ByteSource | HeldSentences,  # CoNLL-U or columns, compressed by gzip or not; see `ConllFile`
    directory: str | Path,  # created if it is missing; `corpus.json` is the last file written into it
    *,
    column: str | None = None,  # of the tags; None takes upos, or the last one
    word_column: int = 1,  # of the words, where the file is no CoNLL-U
    validation: str
    | Path
    | ByteSource
    | HeldSentences
    | None = None,  # a validation file; by default sentences of the first are held out
    validation_fraction: float = 0.1,
    max_length: int = 512,
    repair: bool = False,  # read impossible sequences of BIO or BIOES tags as the nearest possible ones
    seed: int = 0,  # of the sentences held out
    vocabulary: TaggedVocabulary | None = None,  # a vocabulary of other sentences; by default one is fitted
    vectors: str | Path | None = None,  # of words, to begin with; see `read_vectors`
) -> TaggedCorpus:
    """Read tagged sentences and write their numbers into a directory; empty sentences are left out."""
    file = held_file = read_conll(path, column, word_column=word_column, max_length=max_length)
    if validation is not None:
        conllu = not isinstance(validation, HeldSentences) and is_conllu(read_lines_of(validation)[1])
        same = conllu == file.conllu  # else the column has another name
        held_file = read_conll(
            validation, file.column if same else None, word_column=word_column, max_length=max_length
        )
    train = [sentence for sentence in file.sentences if sentence.words]
    tags = {tag for sentence in train for tag in sentence.tags}
    _refuse_numbers(train, file)
    try:
        spelling = find_spelling(tags) if vocabulary is None else vocabulary.spelling
    except ValueError as error:
        raise ValueError(f"{file.name}: {error}") from None
    checked = possible(train, spelling, file.origin, repair=repair)
    train, mended = checked.sentences, checked.repaired
    if validation is None:
        train, valid = _split(train, file.name, validation_fraction, seed)
    else:
        nonempty = [sentence for sentence in held_file.sentences if sentence.words]
        held_out = possible(nonempty, spelling, held_file.origin, repair=repair)
        valid = held_out.sentences
        mended += held_out.repaired
    if not train or not valid:
        raise ValueError(f"{(held_file if train else file).name}: expected sentences with words, got none")
    if vocabulary is None:
        vocabulary = TaggedVocabulary.fit(train)
    else:
        check_tags_known(train, vocabulary, file.origin)
    check_tags_known(valid, vocabulary, held_file.origin)
    if len(vocabulary.tags) == 1:
        raise ValueError(
            f"{file.name}: column: expected at least two different tags, got only {vocabulary.tags[0]!r} in column "
            f"{file.column}: name the column of the tags"
        )
    manifest = {
        "source": fingerprint(path),
        "validation": None if validation is None else fingerprint(validation),
        "conllu": file.conllu,
        "column": file.column,
        "width": file.width,
        "scheme": None if spelling is None else spelling.scheme,
        "repaired": mended,
        "converted": checked.converted,
        "sentences": {"train": len(train), "valid": len(valid)},
        "words": {"train": _words(train), "valid": _words(valid)},
        "different_words": len(vocabulary.words),
        "tags": len(vocabulary.tags),
    }
    with StoreWriter(directory, _MANIFEST) as writer:
        manifest |= save_vectors(vectors, vocabulary.words, writer)
        vocabulary.save(writer.path("vocabulary.json"))
        for part, sentences in zip(_PARTS, (train, valid), strict=True):
            numbers = number_sentences(sentences, vocabulary)
            for name in _ARRAYS:
                writer.array(f"{part}.{name}", getattr(numbers, name))
        writer.json("valid.json", {"words": [list(sentence.words) for sentence in valid]})
        writer.finish(manifest)
    return open_tagged(directory)


def open_tagged(directory: str | Path) -> TaggedCorpus:
    """Open a folder written by `prepare_tagged`; raises the errors of `Store`."""
    store = Store(directory, _MANIFEST, "sentences")
    vocabulary = TaggedVocabulary.load(store.directory / "vocabulary.json")
    train, valid = (_open_part(store, part, vocabulary) for part in _PARTS)
    with store.checked("valid.json"):
        words = store.json("valid.json")["words"]
        if list(map(len, words)) != valid.lengths.tolist():
            raise ValueError(f"expected the words of {len(valid)} sentences")
    return TaggedCorpus(vocabulary, train, valid, words, store.manifest)


@dataclass(frozen=True)
class Possible:
    """Sentences whose tags keep their scheme."""

    sentences: list[Sentence]
    repaired: int = 0  # sentences whose tags did not
    converted: bool = False  # whether the tags were in IOB1 and became BIO


def possible(
    sentences: Sequence[Sentence], spelling: Spelling | None, where: Origin, *, repair: bool, unmarked: bool = True
) -> Possible:
    """Return sentences whose tags keep the scheme: those of IOB1 are converted, others repaired if asked for.

    Args:
        sentences: with their tags.
        spelling: of the tags.
        where: the sentences come from, for errors.
        repair: whether impossible sequences are read as the nearest possible ones.
        unmarked: whether tags without any B-X are IOB1, too.
    """
    if spelling is None:
        return Possible(list(sentences))
    scheme = spelling.scheme
    standard = [[spelling.standard(tag) for tag in sentence.tags] for sentence in sentences]
    marked = unmarked or any(tag[0] == "B" for tags in standard for tag in tags)
    converted = scheme == "bio" and marked and is_iob1(standard)
    accepted, mended = [], 0
    for sentence, tags in zip(sentences, standard, strict=True):
        fault = impossible(tags, scheme)
        if fault is not None:
            if not repair and not converted:
                index, what = fault
                raise UserError(
                    f"{where.at(sentence.lines[index])}: {what} is impossible in {scheme.upper()} tags",
                    f"correct it, or pass {option('repair')} to have it read as the nearest possible",
                )
            mended += not converted
            sentence = replace(sentence, tags=tuple(map(spelling.own, repaired(tags, scheme))))
        accepted.append(sentence)
    return Possible(accepted, mended, converted)


def check_tags_known(
    sentences: Sequence[Sentence],
    vocabulary: TaggedVocabulary,
    where: Origin,
    remedy: str = "correct it, or remove it",
) -> None:
    """`ValueError` with the line of the first tag that was never seen in training."""
    for sentence in sentences:
        for line, tag in zip(sentence.lines, sentence.tags, strict=True):
            try:
                vocabulary.tag(tag)
            except ValueError as error:
                raise UserError(f"{where.at(line)}: {error}", remedy) from None


def _refuse_numbers(sentences: Sequence[Sentence], file: ConllFile | HeldSentences) -> None:
    """`ValueError` where the words are the numbers of words or of sentences: the words are in another column."""
    rows = [sentence.words for sentence in sentences if len(sentence.words) > 1]
    if file.conllu or len(rows) < 2:
        return
    counted = all(
        words[0].isdecimal() and list(words) == [str(int(words[0]) + index) for index in range(len(words))]
        for words in rows
    )
    if counted or all(len(set(words)) == 1 for words in rows):
        what = "the numbers of words" if counted else "the same for all words of a sentence"
        raise UserError(
            f"{file.origin.at(sentences[0].line)}: expected words, got {what}",
            f"name the column that holds the words, as in {option('word_column', '2')}",
        )


def _split(sentences: list[Sentence], name: str, fraction: float, seed: int) -> tuple[list[Sentence], list[Sentence]]:
    """Training and held-out sentences, both in the order of the file; a tag that is seen once stays in training."""
    if not 0 < round(len(sentences) * fraction) < len(sentences):
        raise UserError(
            f"{name}: expected enough sentences to hold some out, got {len(sentences)}",
            f"give more, or {option('validation')}",
        )
    return split_rows(sentences, fraction, seed, [set(sentence.tags) for sentence in sentences])


def _words(sentences: Sequence[Sentence]) -> int:
    return sum(len(sentence.words) for sentence in sentences)


def _open_part(store: Store, part: str, vocabulary: TaggedVocabulary) -> TaggedSentences:
    words = store.array(f"{part}.words", "i4", below=vocabulary.word_symbols)
    spellings = store.array(f"{part}.spellings", "i4", (None, None), vocabulary.character_symbols + 1)
    return TaggedSentences(
        words,
        store.array(f"{part}.forms", "i4", words.shape, len(spellings)),
        store.array(f"{part}.tags", "i4", words.shape, len(vocabulary.tags)),
        store.offsets(f"{part}.starts", len(words)),
        spellings,
    )
