"""Data of sequence models that need no file format: vocabularies, batches, windows, levels of amplitudes."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule.data._batches import Batch as Batch
    from chainrule.data._batches import Batches as Batches
    from chainrule.data._batches import Shuffled as Shuffled
    from chainrule.data._batches import padded as padded
    from chainrule.data._characters import ByteVocabulary as ByteVocabulary
    from chainrule.data._characters import CharVocabulary as CharVocabulary
    from chainrule.data._characters import WordVocabulary as WordVocabulary
    from chainrule.data._corpus_batches import LineBatches as LineBatches
    from chainrule.data._corpus_batches import StreamBatches as StreamBatches
    from chainrule.data._levels import LinearLevels as LinearLevels
    from chainrule.data._levels import MuLawLevels as MuLawLevels
    from chainrule.data._subwords import BPEVocabulary as BPEVocabulary
    from chainrule.data._subwords import read_tokenizer as read_tokenizer
    from chainrule.data._tokens import Tokens as Tokens
    from chainrule.data._vocabulary import Beginning as Beginning
    from chainrule.data._vocabulary import Vocabulary as Vocabulary
    from chainrule.data._windows import SeriesWindows as SeriesWindows

__getattr__, __dir__ = attach(__name__)
