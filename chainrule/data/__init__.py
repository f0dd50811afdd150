"""A file on disk becomes tensors: vocabularies, prepared corpora, batches."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.data.batches import Batch, Batches
    from chainrule.data.characters import ByteVocabulary, CharVocabulary, WordVocabulary
    from chainrule.data.corpus import LEVELS, Corpus, load_vocabulary, open_corpus, prepare_corpus, vocabulary_from_json
    from chainrule.data.corpus_batches import LineBatches, StreamBatches, line_evaluation, stream_evaluation
    from chainrule.data.subwords import BPEVocabulary
    from chainrule.data.text import builtin_text, fingerprint, read_lines, read_text
    from chainrule.data.vocabulary import FileTokens, MemoryTokens, Tokens, Vocabulary

__all__ = [
    "LEVELS",
    "BPEVocabulary",
    "Batch",
    "Batches",
    "ByteVocabulary",
    "CharVocabulary",
    "Corpus",
    "FileTokens",
    "LineBatches",
    "MemoryTokens",
    "StreamBatches",
    "Tokens",
    "Vocabulary",
    "WordVocabulary",
    "builtin_text",
    "fingerprint",
    "line_evaluation",
    "load_vocabulary",
    "open_corpus",
    "prepare_corpus",
    "read_lines",
    "read_text",
    "stream_evaluation",
    "vocabulary_from_json",
]

__getattr__, __dir__ = attach(__name__)
