"""Sentences with a tag for every word: files in columns, vocabularies, batches."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.data._tagged.conll_file import ConllFile as ConllFile
    from chainrule.data._tagged.conll_file import Sentence as Sentence
    from chainrule.data._tagged.conll_file import read_conll as read_conll
    from chainrule.data._tagged.prepare import TaggedCorpus as TaggedCorpus
    from chainrule.data._tagged.prepare import TaggedSentences as TaggedSentences
    from chainrule.data._tagged.prepare import number_sentences as number_sentences
    from chainrule.data._tagged.prepare import open_tagged as open_tagged
    from chainrule.data._tagged.prepare import prepare_tagged as prepare_tagged
    from chainrule.data._tagged.prepare import tagged_batches as tagged_batches
    from chainrule.data._tagged.prepare import tagged_evaluation as tagged_evaluation
    from chainrule.data._tagged.vocabulary import TaggedVocabulary as TaggedVocabulary
    from chainrule.data._tagged.vocabulary import find_scheme as find_scheme
    from chainrule.data._tagged.vocabulary import impossible as impossible
    from chainrule.data._tagged.vocabulary import repaired as repaired

__getattr__, __dir__ = attach(__name__)
