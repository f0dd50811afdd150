"""A file on disk becomes tensors: vocabularies, prepared corpora, batches."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.data._batches import Batch, Batches
    from chainrule.data._characters import ByteVocabulary, CharVocabulary, WordVocabulary
    from chainrule.data._corpus import Corpus, open_corpus, prepare_corpus
    from chainrule.data._corpus_batches import LineBatches, StreamBatches, stream_evaluation
    from chainrule.data._images import grid, png
    from chainrule.data._labelled import TextSymbols
    from chainrule.data._midi import midi_file
    from chainrule.data._series import SeriesWindows, prepare_series
    from chainrule.data._sounds import (
        LinearLevels,
        MuLawLevels,
        clip_batches,
        clip_evaluation,
        prepare_sounds,
        write_wav,
    )
    from chainrule.data._subwords import BPEVocabulary
    from chainrule.data._tables import prepare_table
    from chainrule.data._tagged import find_scheme, impossible, repaired
    from chainrule.data._text import builtin_text, read_lines, read_text
    from chainrule.data._vocabulary import Vocabulary

__all__ = [
    "BPEVocabulary",
    "Batch",
    "Batches",
    "ByteVocabulary",
    "CharVocabulary",
    "Corpus",
    "LineBatches",
    "LinearLevels",
    "MuLawLevels",
    "SeriesWindows",
    "StreamBatches",
    "TextSymbols",
    "Vocabulary",
    "WordVocabulary",
    "builtin_text",
    "clip_batches",
    "clip_evaluation",
    "find_scheme",
    "grid",
    "impossible",
    "midi_file",
    "open_corpus",
    "png",
    "prepare_corpus",
    "prepare_series",
    "prepare_sounds",
    "prepare_table",
    "read_lines",
    "read_text",
    "repaired",
    "stream_evaluation",
    "write_wav",
]

__getattr__, __dir__ = attach(__name__)
