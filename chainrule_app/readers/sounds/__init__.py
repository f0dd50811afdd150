"""Sound files become integers on disk: found, read, resampled, companded, and batched."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule.data import LinearLevels as LinearLevels
    from chainrule.data import MuLawLevels as MuLawLevels
    from chainrule_app.readers.sounds.levels import SoundLevels as SoundLevels
    from chainrule_app.readers.sounds.levels import make_levels as make_levels
    from chainrule_app.readers.sounds.prepare import Labelling as Labelling
    from chainrule_app.readers.sounds.prepare import Sounds as Sounds
    from chainrule_app.readers.sounds.prepare import clip_batches as clip_batches
    from chainrule_app.readers.sounds.prepare import clip_evaluation as clip_evaluation
    from chainrule_app.readers.sounds.prepare import open_sounds as open_sounds
    from chainrule_app.readers.sounds.prepare import prepare_sounds as prepare_sounds
    from chainrule_app.readers.sounds.sound_file import Collection as Collection
    from chainrule_app.readers.sounds.sound_file import SoundFile as SoundFile
    from chainrule_app.readers.sounds.sound_file import read_sound as read_sound
    from chainrule_app.readers.sounds.sound_file import resampled as resampled
    from chainrule_app.readers.sounds.sound_file import sound_facts as sound_facts
    from chainrule_app.readers.sounds.sound_file import write_wav as write_wav

__getattr__, __dir__ = attach(__name__)
