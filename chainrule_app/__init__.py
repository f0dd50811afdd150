"""The application around `chainrule`: files and frames in, trained runs, answers and pages out."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule_app.exchange import import_model as import_model
    from chainrule_app.fitting import fit as fit
    from chainrule_app.fitting import load as load
    from chainrule_app.listing import runs as runs
    from chainrule_app.readers.corpus import open_corpus as open_corpus
    from chainrule_app.readers.corpus import prepare_corpus as prepare_corpus
    from chainrule_app.readers.help_topics import builtin_text as builtin_text
    from chainrule_app.readers.images.source import grid as grid
    from chainrule_app.readers.images.source import png as png
    from chainrule_app.readers.labelled.encoded_texts import TextSymbols as TextSymbols
    from chainrule_app.readers.music import midi_file as midi_file
    from chainrule_app.readers.series.prepare import prepare_series as prepare_series
    from chainrule_app.readers.sounds.prepare import clip_batches as clip_batches
    from chainrule_app.readers.sounds.prepare import clip_evaluation as clip_evaluation
    from chainrule_app.readers.sounds.prepare import prepare_sounds as prepare_sounds
    from chainrule_app.readers.sounds.sound_file import write_wav as write_wav
    from chainrule_app.readers.tables.prepare import prepare_table as prepare_table
    from chainrule_app.readers.text import read_lines as read_lines
    from chainrule_app.readers.text import read_text as read_text
    from chainrule_app.results import Report as Report
    from chainrule_app.results import Result as Result
    from chainrule_app.run import Run as Run
    from chainrule_app.tasks import open_run as open_run

__getattr__, __dir__ = attach(__name__)
