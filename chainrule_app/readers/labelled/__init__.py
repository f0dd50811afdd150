"""Texts with labels on disk become labels to predict, conditioned on texts as numbers."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule_app.readers.labelled.encoded_texts import EncodedTexts as EncodedTexts
    from chainrule_app.readers.labelled.encoded_texts import TextSymbols as TextSymbols
    from chainrule_app.readers.labelled.labelled_file import Columns as Columns
    from chainrule_app.readers.labelled.labelled_file import LabelledFile as LabelledFile
    from chainrule_app.readers.labelled.labelled_file import LabelledText as LabelledText
    from chainrule_app.readers.labelled.labelled_file import open_texts as open_texts
    from chainrule_app.readers.labelled.prepare import LabelledTexts as LabelledTexts
    from chainrule_app.readers.labelled.prepare import Labels as Labels
    from chainrule_app.readers.labelled.prepare import contexts as contexts
    from chainrule_app.readers.labelled.prepare import encoded_part as encoded_part
    from chainrule_app.readers.labelled.prepare import labelled_batches as labelled_batches
    from chainrule_app.readers.labelled.prepare import labelled_evaluation as labelled_evaluation
    from chainrule_app.readers.labelled.prepare import load_counts as load_counts
    from chainrule_app.readers.labelled.prepare import load_ngrams as load_ngrams
    from chainrule_app.readers.labelled.prepare import open_labelled as open_labelled
    from chainrule_app.readers.labelled.prepare import part_facts as part_facts
    from chainrule_app.readers.labelled.prepare import prepare_labelled as prepare_labelled

__getattr__, __dir__ = attach(__name__)
