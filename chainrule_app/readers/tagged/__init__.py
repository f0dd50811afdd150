"""Sentences with a tag for every word: files in columns, vocabularies, batches."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule_app.readers.tagged.conll_file import ConllFile as ConllFile
    from chainrule_app.readers.tagged.conll_file import Sentence as Sentence
    from chainrule_app.readers.tagged.conll_file import read_conll as read_conll
    from chainrule_app.readers.tagged.prepare import TaggedCorpus as TaggedCorpus
    from chainrule_app.readers.tagged.prepare import TaggedSentences as TaggedSentences
    from chainrule_app.readers.tagged.prepare import number_sentences as number_sentences
    from chainrule_app.readers.tagged.prepare import open_tagged as open_tagged
    from chainrule_app.readers.tagged.prepare import prepare_tagged as prepare_tagged
    from chainrule_app.readers.tagged.prepare import tagged_batches as tagged_batches
    from chainrule_app.readers.tagged.prepare import tagged_evaluation as tagged_evaluation
    from chainrule_app.readers.tagged.tag_schemes import find_scheme as find_scheme
    from chainrule_app.readers.tagged.tag_schemes import impossible as impossible
    from chainrule_app.readers.tagged.tag_schemes import repaired as repaired
    from chainrule_app.readers.tagged.vocabulary import TaggedVocabulary as TaggedVocabulary

__getattr__, __dir__ = attach(__name__)
