"""Texts with labels on disk become labels to predict, conditioned on texts as numbers."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.data._labelled.encoded_texts import TEXT_LEVELS, EncodedTexts, TextLevel, TextSymbols
    from chainrule.data._labelled.labelled_file import Columns, LabelledFile, LabelledText
    from chainrule.data._labelled.prepare import (
        LabelledPart,
        LabelledTexts,
        Labels,
        encoded_part,
        label_counts,
        labelled_batches,
        labelled_evaluation,
        load_counts,
        load_ngrams,
        ngram_weights,
        open_labelled,
        part_facts,
        prepare_labelled,
    )

__all__ = [
    "TEXT_LEVELS",
    "Columns",
    "EncodedTexts",
    "LabelledFile",
    "LabelledPart",
    "LabelledText",
    "LabelledTexts",
    "Labels",
    "TextLevel",
    "TextSymbols",
    "encoded_part",
    "label_counts",
    "labelled_batches",
    "labelled_evaluation",
    "load_counts",
    "load_ngrams",
    "ngram_weights",
    "open_labelled",
    "part_facts",
    "prepare_labelled",
]

__getattr__, __dir__ = attach(__name__)
