"""Sentences in batches, those of like length side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from chainrule.data.batches import Batch, check_batch_size, check_seed
from chainrule.data.tagged.conll_file import Sentence
from chainrule.data.tagged.vocabulary import UNKNOWN, Numbers, TaggedVocabulary

_BATCHES_IN_POOL = 32
_EVALUATED = 64  # sentences side by side where nothing is trained


@dataclass(frozen=True)
class TaggedSentences:
    """Sentences as numbers: their words one after another.

    Args:
        words: (N,) numbers of words.
        forms: (N,) rows of `spellings`.
        tags: (N,) numbers of tags.
        starts: (S + 1,) where each sentence begins, and N.
        spellings: (F, C) characters of each different word, 0 past its end.
    """

    words: Numbers
    forms: Numbers
    tags: Numbers
    starts: npt.NDArray[np.int64]
    spellings: Numbers

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """(S,)."""
        return np.diff(self.starts)

    def batch(self, chosen: npt.NDArray[np.int64], unknown: npt.NDArray[np.bool_] | None = None) -> Batch:
        """Some sentences side by side: tags as x, words and characters as context.

        Args:
            chosen: (B,) numbers of sentences.
            unknown: (words of those sentences,) which words to read as unknown; None reads each as it is.
        """
        lengths = self.lengths[chosen]
        width = int(lengths.max(initial=0))
        real = np.arange(width) < lengths[:, None]
        places = (self.starts[chosen][:, None] + np.arange(width))[real]
        words, tags = np.zeros((2, len(chosen), width), dtype=np.int64)
        words[real] = self.words[places] if unknown is None else np.where(unknown, UNKNOWN, self.words[places])
        tags[real] = self.tags[places]
        spelled = self.spellings[self.forms[places]]
        longest = int((spelled != 0).any(0).sum()) if len(places) else 1
        characters = np.zeros((len(chosen), width, max(longest, 1)), dtype=np.int64)
        characters[real] = spelled[:, : max(longest, 1)]
        context = {"words": torch.from_numpy(words), "characters": torch.from_numpy(characters)}
        return Batch(torch.from_numpy(tags), torch.from_numpy(lengths), context=context)


def number_sentences(sentences: Sequence[Sentence], vocabulary: TaggedVocabulary) -> TaggedSentences:
    """Sentences as numbers; tags of sentences without are 0.

    Raises:
        ValueError: a tag was never seen in training.
    """
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


class TaggedBatches:
    r"""Sentences in an order drawn anew for each epoch, as a pure function of (seed, step).

    An epoch shuffles the sentences, sorts pools of 32 batches by length, cuts them into batches and shuffles those. It
    reads every sentence once, but for those that do not fill a batch.

    Rare words are read as unknown by chance, so that the unknown word is learned: one that the training sentences hold
    c times with probability α / (α + c) (Kiperwasser and Goldberg 2016). Its characters stay.

    Args:
        sentences: none empty.
        counts: how often each word of the vocabulary was seen.
        batch_size: sentences of a batch, over all processes.
        word_dropout: α; 0 reads every word as it is.
        seed: at least 0.
        shard: (rank, number of processes): this one gets the rows rank, rank + processes, ... of a batch.

    Raises:
        ValueError: there are fewer sentences than processes, or an argument is out of range.
    """

    def __init__(
        self,
        sentences: TaggedSentences,
        counts: Sequence[int],
        batch_size: int,
        word_dropout: float = 0.25,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
    ):
        check_batch_size(batch_size, shard)
        check_seed(seed)
        if not 0 <= word_dropout < float("inf"):
            raise ValueError(f"word_dropout: expected a number >= 0, got {word_dropout}")
        self._sentences, self._seed, self._shard = sentences, seed, shard
        self._batch_size = min(batch_size, len(sentences) // shard[1] * shard[1])
        if self._batch_size < 1:
            raise ValueError(f"sentences: expected at least {shard[1]}, one for each process, got {len(sentences)}")
        self.steps_per_epoch = len(sentences) // self._batch_size
        seen = np.array([np.inf, *counts])  # the unknown word stays what it is
        self._chance = word_dropout / (word_dropout + seen) if word_dropout else np.zeros(len(seen))
        self._epoch, self._order = -1, np.zeros((0, 0), dtype=np.int64)

    def at(self, step: int) -> Batch:
        """The batch of a step, counted from 0 over all epochs."""
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._shuffled(epoch)
        rank, world = self._shard
        chosen = self._order[place]
        starts, lengths = self._sentences.starts[chosen], self._sentences.lengths[chosen]
        # One draw for each word of the whole batch, so that the processes' rows are those of one process.
        drawn = np.random.default_rng([self._seed, epoch, 1 + place]).random(int(lengths.sum()))
        pieces = np.split(drawn, np.cumsum(lengths)[:-1])[rank::world]
        words = [self._sentences.words[start : start + length] for start, length in zip(starts, lengths, strict=True)]
        chance = self._chance[np.concatenate(words[rank::world])]
        return self._sentences.batch(chosen[rank::world], np.concatenate(pieces) < chance)

    def _shuffled(self, epoch: int) -> npt.NDArray[np.int64]:
        """The sentences of each batch of an epoch, (steps, B)."""
        rng = np.random.default_rng([self._seed, epoch, 0])
        order = rng.permutation(len(self._sentences))[: self.steps_per_epoch * self._batch_size]
        lengths, pool = self._sentences.lengths, _BATCHES_IN_POOL * self._batch_size
        pools = [order[first : first + pool] for first in range(0, len(order), pool)]
        ordered = [part[np.argsort(lengths[part], kind="stable")] for part in pools]
        return rng.permutation(np.concatenate(ordered).reshape(-1, self._batch_size))


def tagged_evaluation(
    sentences: TaggedSentences, batch_size: int = _EVALUATED, rows: npt.NDArray[np.int64] | None = None
) -> Iterator[Batch]:
    """Every sentence once, or those with the numbers in `rows`, in order."""
    rows = np.arange(len(sentences)) if rows is None else rows
    for start in range(0, len(rows), batch_size):
        yield sentences.batch(rows[start : start + batch_size])
