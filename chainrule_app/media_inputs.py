"""Images, sounds and piano rolls in memory, as sources that the readers of their tasks take."""

from collections.abc import Iterable
from typing import Any

from chainrule.option_error import OptionError
from chainrule_app import frames
from chainrule_app.heavy import np
from chainrule_app.items import amplitudes_of, is_picture
from chainrule_app.readers.origin import DataSource, Origin


class MediaInputs:
    """What `Inputs` does with images, sounds and piano rolls.

    Args:
        task: of the run; empty where the data tell.
        rate: samples a second of sounds.
    """

    def __init__(self, task: str, rate: int | None):
        self.task, self._rate = task, rate
        self.description: dict[str, Any] | None = None
        self.items: int | None = None  # rows or strings in memory; each has one row in a result

    def _pictures(self, pictures: list[Any], origin: Origin, labels: Any) -> DataSource:
        self.task = {"": "image", "classify": "classify-images"}.get(self.task, self.task)
        if self.task not in ("image", "classify-images", "caption"):
            raise ValueError(f"{origin}: a run of the task {self.task} takes no images")
        for index, picture in enumerate(pictures):
            if not is_picture(picture):
                raise ValueError(f"{origin.at(index)}: expected rows of one kind, got {picture!r:.80}")
        self.items = len(pictures)
        return self._images(pictures, origin, labels)

    def _images(self, images: Any, origin: Origin, labels: Any) -> DataSource:
        from chainrule_app.readers.images.held import HeldImages

        if labels is not None and self.description is None:
            self.description = frames.describe_labels(np.asarray(labels).tolist())
        return HeldImages(origin, images, labels)

    def _rolls(self, rolls: Iterable[Any], origin: Origin) -> DataSource:
        from chainrule_app.readers.piano_rolls import HeldRolls

        held = HeldRolls(origin, rolls)
        self.items = len(held.files)
        return held

    def _sounds(self, sounds: Iterable[Any], origin: Origin) -> DataSource:
        from chainrule_app.readers.sounds.sound_file import HeldSounds

        self.task = self.task or "sound"
        if self._rate is None:
            raise OptionError("rate", "expected the samples a second of the sounds, such as rate=8000")
        amplitudes = (amplitudes_of(sound, origin.at(index)) for index, sound in enumerate(sounds))
        held = HeldSounds(origin, amplitudes, int(self._rate))
        self.items = len(held.files)
        return held
