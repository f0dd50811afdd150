"""Pairs of sentences, a source and its target: files, vocabularies, numbers on disk, batches."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.data._pairs.batches import (
        PairedSentences,
        pair_batches,
        pair_evaluation,
        scheduled_sampling_rate,
        source_context,
    )
    from chainrule.data._pairs.prepare import (
        Pair,
        Pairs,
        encode_sentence,
        held_out_texts,
        open_pairs,
        prepare_pairs,
        read_pairs,
        read_sentences,
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
