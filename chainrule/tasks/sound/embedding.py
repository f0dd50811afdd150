"""Sounds as numbers: the features from which a trained model predicts the sample after the end of each."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainrule.tasks.abilities import Code

if TYPE_CHECKING:
    from chainrule.tasks.sound.task import SoundTask


@dataclass(frozen=True)
class SoundEmbedding:
    """Embed sounds: for each file the features of the last layer after its last sample, which see the receptive field.

    Args:
        data: A folder of sounds, an archive of them, or one file; resampled as those of the run were.
    """

    label: str | None = None
    """Label of all sounds, in a run with labels; read off their names if not given."""


def embed_sounds(run: "SoundTask", data: str, options: SoundEmbedding, *, device: str) -> Iterator[Code]:
    """The code of each file."""
    import torch

    from chainrule.data.sounds import Collection, read_sound
    from chainrule.tasks.sound.scoring import label_of

    model = run.model(device)
    place = next(model.parameters()).device
    for file in Collection(data).files:
        name, context = label_of(run, file, options.label)
        end: deque[int] = deque(maxlen=model.receptive_field)  # nothing earlier is seen
        for block in read_sound(file, run.rate):
            end.extend(run.levels.encode(block)[-model.receptive_field :].tolist())
        if not end:
            raise ValueError(f"{file.label}: expected a sound, got none: it has no samples")
        x = torch.tensor([[*end, 0]], device=place)  # the features at an element are of those before it
        with torch.no_grad():
            h = model.features(x, None if context is None else context.to(place))[0, -1]
        yield Code(file.name, h.float().cpu().tolist(), name)
