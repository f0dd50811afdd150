"""Sound files become integers on disk: found, read, resampled, companded, and batched."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.data._sounds.prepare import (
        Labelling,
        Sounds,
        clip_batches,
        clip_evaluation,
        open_sounds,
        prepare_sounds,
    )
    from chainrule.data._sounds.sound_file import (
        Collection,
        LinearLevels,
        MuLawLevels,
        SoundFile,
        SoundLevels,
        make_levels,
        read_sound,
        resampled,
        sound_facts,
        write_wav,
    )

__all__ = [
    "Collection",
    "Labelling",
    "LinearLevels",
    "MuLawLevels",
    "SoundFile",
    "SoundLevels",
    "Sounds",
    "clip_batches",
    "clip_evaluation",
    "make_levels",
    "open_sounds",
    "prepare_sounds",
    "read_sound",
    "resampled",
    "sound_facts",
    "write_wav",
]

__getattr__, __dir__ = attach(__name__)
