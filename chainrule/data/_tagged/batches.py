"""Sentences in batches, sorted so that rows of a batch have similar lengths."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from chainrule.data._batches import Batch, Batches, Rows, Shuffled, by_length, in_order
from chainrule.data._ragged import row_places
from chainrule.data._tagged.conll_file import Sentence
from chainrule.data._tagged.vocabulary import UNKNOWN, Numbers, TaggedVocabulary

_BATCHES_IN_POOL = 32
_EVALUATED = 64  # sentences of a batch where nothing is trained


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
        """Some of the sentences: tags as x, words and characters as context.

        Args:
            chosen: (B,) numbers of sentences.
            unknown: (words of those sentences,) which words to read as unknown; None reads each as it is.
        """
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
    counts: Sequence[int],
    batch_size: int,
    word_dropout: float = 0.25,
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
) -> Batches:
    r"""Sentences in the order of `Shuffled`, sorted by length in pools of 32 batches.

    Rare words are read as unknown by chance, so that the unknown word is learned: one that the training sentences hold
    c times with probability α / (α + c) (Kiperwasser and Goldberg 2016). Its characters stay.

    Args:
        sentences: none empty.
        counts: how often each word of the vocabulary was seen.
        word_dropout: α; 0 reads every word as it is.
        batch_size, seed, shard: see `Shuffled`.
    """
    if not 0 <= word_dropout < float("inf"):
        raise ValueError(f"word_dropout: expected a number >= 0, got {word_dropout}")
    lengths = sentences.lengths
    order = Shuffled(
        len(sentences), batch_size, seed, shard, name="sentences", sort=by_length(lengths), pool=_BATCHES_IN_POOL
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
