"""How surprising a sound is to a trained model."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chainrule.data.sounds import SoundFile
    from chainrule.models.wavenet import WaveNet
    from chainrule.runs.sound import SoundRun

CHUNK = 1 << 14  # samples read in one pass
WINDOW = 0.05  # seconds over which surprise is averaged to find where it is highest


@dataclass(frozen=True)
class ScoredSound:
    """The surprise of a file; `most_at` is the second around which it is highest."""

    file: str
    label: str | None
    samples: int
    seconds: float
    nats: float
    bits_per_sample: float
    most_at: float


class Scorer:
    """Scores files one at a time, in memory that does not grow with them but for a number a sample.

    Args:
        run: of sounds.
        model: its model.
        label: of every file; `None` reads it off the name, in a run with labels.
    """

    def __init__(self, run: "SoundRun", model: "WaveNet", label: str | None = None):
        from chainrule.data.sounds.labels import label_number

        if label is not None and not run.labels:
            raise ValueError("--label: this run was trained without labels: leave it out")
        self.run, self.model, self.label = run, model, label
        if label is not None:
            label_number(run.labels, label)

    def score(self, file: "SoundFile") -> ScoredSound:
        """The surprise of one file.

        Raises:
            ValueError: it cannot be read, has no samples, or no label that the run knows.
        """
        import numpy as np
        import torch

        from chainrule.data.sounds import read_sound
        from chainrule.data.sounds.labels import label_number

        run, device = self.run, next(self.model.parameters()).device
        name = self.label if self.label is not None or not run.labels else run.labelling(file.name)
        try:
            context = None if name is None else torch.tensor([label_number(run.labels, name)], device=device)
        except ValueError as error:
            raise ValueError(f"{file.label}: {error}; --label says it for all") from None
        state, x_prev, surprise = self.model.initial_state(1, context), None, []
        with torch.no_grad():
            for block in read_sound(file, run.rate):
                for chunk in torch.from_numpy(run.levels.encode(block)).to(device).split(CHUNK):
                    conditionals, state = self.model.unroll(chunk.unsqueeze(0), state, x_prev)
                    surprise.append(-conditionals.log_prob(chunk.unsqueeze(0))[0].double().cpu().numpy())
                    x_prev = chunk[-1:]
        nats = np.concatenate(surprise) if surprise else np.zeros(0)
        if not len(nats):
            raise ValueError(f"{file.label}: expected a sound, got none: it has no samples")
        width = min(max(round(WINDOW * run.rate), 1), len(nats))
        means = np.convolve(nats, np.full(width, 1 / width), mode="valid")
        return ScoredSound(
            file=file.name,
            label=name,
            samples=len(nats),
            seconds=len(nats) / run.rate,
            nats=float(nats.sum()),
            bits_per_sample=float(nats.mean() / math.log(2)),
            most_at=float((means.argmax() + width / 2) / run.rate),
        )
