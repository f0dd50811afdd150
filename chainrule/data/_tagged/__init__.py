"""Sentences with a tag for every word: files in columns, vocabularies, batches."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.data._tagged.conll_file import ConllFile, Sentence, read_conll
    from chainrule.data._tagged.prepare import (
        TaggedCorpus,
        TaggedSentences,
        number_sentences,
        open_tagged,
        prepare_tagged,
        tagged_batches,
        tagged_evaluation,
    )
    from chainrule.data._tagged.vocabulary import TaggedVocabulary, find_scheme, impossible, repaired

__all__ = [
    "ConllFile",
    "Sentence",
    "TaggedCorpus",
    "TaggedSentences",
    "TaggedVocabulary",
    "find_scheme",
    "impossible",
    "number_sentences",
    "open_tagged",
    "prepare_tagged",
    "read_conll",
    "repaired",
    "tagged_batches",
    "tagged_evaluation",
]

__getattr__, __dir__ = attach(__name__)
