"""Pairs of sentences, a source and its target: files, vocabularies, numbers on disk, batches."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.data._pairs.prepare import (
        Pair,
        PairedSentences,
        Pairs,
        encode_sentence,
        held_out_texts,
        open_pairs,
        pair_batches,
        pair_evaluation,
        prepare_pairs,
        read_pairs,
        read_sentences,
        scheduled_sampling_rate,
        source_context,
    )

__all__ = [
    "Pair",
    "PairedSentences",
    "Pairs",
    "encode_sentence",
    "held_out_texts",
    "open_pairs",
    "pair_batches",
    "pair_evaluation",
    "prepare_pairs",
    "read_pairs",
    "read_sentences",
    "scheduled_sampling_rate",
    "source_context",
]

__getattr__, __dir__ = attach(__name__)
