"""A file on disk becomes tensors: vocabularies, prepared corpora, batches."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.data._batches import Batch as Batch
    from chainrule.data._batches import Batches as Batches
    from chainrule.data._characters import ByteVocabulary as ByteVocabulary
    from chainrule.data._characters import CharVocabulary as CharVocabulary
    from chainrule.data._characters import WordVocabulary as WordVocabulary
    from chainrule.data._corpus import Corpus as Corpus
    from chainrule.data._corpus import open_corpus as open_corpus
    from chainrule.data._corpus import prepare_corpus as prepare_corpus
    from chainrule.data._corpus_batches import LineBatches as LineBatches
    from chainrule.data._corpus_batches import StreamBatches as StreamBatches
    from chainrule.data._corpus_batches import stream_evaluation as stream_evaluation
    from chainrule.data._images import grid as grid
    from chainrule.data._images import png as png
    from chainrule.data._labelled import TextSymbols as TextSymbols
    from chainrule.data._music import midi_file as midi_file
    from chainrule.data._series import SeriesWindows as SeriesWindows
    from chainrule.data._series import prepare_series as prepare_series
    from chainrule.data._sounds import LinearLevels as LinearLevels
    from chainrule.data._sounds import MuLawLevels as MuLawLevels
    from chainrule.data._sounds import clip_batches as clip_batches
    from chainrule.data._sounds import clip_evaluation as clip_evaluation
    from chainrule.data._sounds import prepare_sounds as prepare_sounds
    from chainrule.data._sounds import write_wav as write_wav
    from chainrule.data._subwords import BPEVocabulary as BPEVocabulary
    from chainrule.data._tables import prepare_table as prepare_table
    from chainrule.data._tagged import find_scheme as find_scheme
    from chainrule.data._tagged import impossible as impossible
    from chainrule.data._tagged import repaired as repaired
    from chainrule.data._text import builtin_text as builtin_text
    from chainrule.data._text import read_lines as read_lines
    from chainrule.data._text import read_text as read_text
    from chainrule.data._vocabulary import Vocabulary as Vocabulary

__getattr__, __dir__ = attach(__name__)
