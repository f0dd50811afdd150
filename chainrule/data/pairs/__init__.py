"""Pairs of sentences, a source and its target: files, vocabularies, numbers on disk, batches."""

from chainrule.data.pairs.batches import PairBatches, own_words_share, pair_evaluation
from chainrule.data.pairs.prepare import Pairs, encode_sentence, held_out_texts, open_pairs, prepare_pairs
from chainrule.data.pairs.sentences import Pair, PairedSentences, Sentences, read_pairs, read_sentences, source_context

__all__ = [
    "Pair",
    "PairBatches",
    "PairedSentences",
    "Pairs",
    "Sentences",
    "encode_sentence",
    "held_out_texts",
    "open_pairs",
    "own_words_share",
    "pair_evaluation",
    "prepare_pairs",
    "read_pairs",
    "read_sentences",
    "source_context",
]
