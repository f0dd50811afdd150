"""Label spoken digits from waveforms: log-mel frames, a bidirectional GRU, attention over time.

    python examples/spoken_digits.py              synthetic telephone tones: half a minute
    python examples/spoken_digits.py TRAIN TEST   recordings like those of the Free Spoken Digit Dataset: folders or
                                                  .tar.gz of DIGIT_SPEAKER_INDEX.wav

The tenth of the repetitions with the lowest indices is the validation set; the test recordings are scored once, at the
end.
"""

import argparse
import io
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from log_mel import LogMel
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from chainrule.data import Batch
from chainrule.models import SequenceClassifier
from chainrule.training import MetricValue, TrainingOptions, ValidationMetric, train

RATE = 8000  # samples a second
KEYS = (941, 697, 697, 697, 770, 770, 770, 852, 852, 852), (1336, 1209, 1336, 1477, 1209, 1336, 1477, 1209, 1336, 1477)


@dataclass(frozen=True)
class Recording:
    """One spoken digit: (S,) samples in [-1, 1], the digit, and which repetition of its speaker it is."""

    samples: Tensor
    digit: int
    index: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path, nargs="*", metavar="TRAIN TEST")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.recordings:
        if len(options.recordings) != 2:
            parser.error("expected recordings to train on and recordings to test, or none")
        learnt, test = (read(path) for path in options.recordings)
        steps = options.steps or 1500
    else:
        learnt, test, steps = keys(400, seed=1), keys(200, seed=2), options.steps or 150
    speed = 0.15 if options.recordings else 0.02  # a key is told by its pitch, a word is not
    indices = sorted({recording.index for recording in learnt})
    held_out = set(indices[: max(len(indices) // 10, 1)])
    valid = [recording for recording in learnt if recording.index in held_out]
    learnt = [recording for recording in learnt if recording.index not in held_out]
    print(f"{len(learnt)} recordings to train on, {len(valid)} held out, {len(test)} to test")
    model, frames = fit(learnt, valid, steps, options.seed, speed)
    answers = classify(model, frames, test)
    right = [answer == recording.digit for answer, recording in zip(answers, test, strict=True)]
    print(f"test accuracy {100 * sum(right) / len(right):.2f}% ({sum(right)} of {len(right)})")


def read(path: Path) -> list[Recording]:
    """The recordings in a folder or a .tar.gz, in the order of their names."""
    import soundfile

    found = []
    if path.is_dir():
        files = {file.name: file.read_bytes() for file in path.glob("*.wav")}
    else:
        with tarfile.open(path) as archive:
            files = {Path(part.name).name: archive.extractfile(part).read() for part in archive if part.isfile()}
    for name in sorted(files):
        samples, rate = soundfile.read(io.BytesIO(files[name]), dtype="float32")
        if rate != RATE or samples.ndim != 1:
            raise ValueError(f"{path} {name}: expected one channel of {RATE} samples a second, got {rate}")
        digit, _, index = Path(name).stem.split("_")
        found.append(Recording(torch.from_numpy(samples), int(digit), int(index)))
    return found


def keys(count: int, seed: int) -> list[Recording]:
    """Synthesise telephone keys: two tones each, of random length and loudness, in noise."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for number in range(count):
        digit = number % 10
        seconds, phase, volume = (torch.rand(3, generator=generator) * torch.tensor([0.2, 6.3, 0.3])).tolist()
        time = torch.arange(int((0.1 + seconds) * RATE)) / RATE
        tones = sum(torch.sin(2 * torch.pi * pitches[digit] * time + phase) for pitches in KEYS)
        made.append(
            Recording((0.02 + volume) * tones + 0.1 * torch.randn(len(time), generator=generator), digit, number)
        )
    return made


class Frames:
    """Log-mel frames, each band with mean 0 and variance 1 over the recordings that are trained on."""

    def __init__(self, recordings: list[Recording]):
        self.mel = LogMel(RATE, num_bands=40)
        self.mean, self.scale = torch.zeros(40), torch.ones(40)
        context = self([recording.samples for recording in recordings])
        real = torch.cat([row[:n] for row, n in zip(context["inputs"], context["lengths"].tolist(), strict=True)])
        self.mean, self.scale = real.mean(0), real.std(0)

    def __call__(self, waveforms: list[Tensor]) -> dict[str, Tensor]:
        """What the model is conditioned on: frames (B, T, 40) and how many are real."""
        lengths = torch.tensor([len(samples) for samples in waveforms])
        frames, lengths = self.mel(pad_sequence(waveforms, batch_first=True), lengths)
        return {"inputs": (frames - self.mean) / self.scale, "lengths": lengths}


class Training:
    """Recordings altered anew at each step: faster or slower, louder or softer, later, under noise, and with parts of
    time and of the spectrum blotted out (Park et al. 2019)."""

    def __init__(self, recordings: list[Recording], frames: Frames, batch_size: int, seed: int, speed: float):
        self.recordings, self.frames, self.batch_size = recordings, frames, batch_size
        self.seed, self.speed = seed, speed
        self.steps_per_epoch = len(recordings) // batch_size

    def at(self, step: int) -> Batch:
        epoch, place = divmod(step, self.steps_per_epoch)
        chosen = [self.recordings[row] for row in self.arranged(epoch)[place].tolist()]
        generator = torch.Generator().manual_seed((self.seed + 1) * 10_000_000 + step)
        context = self.frames([altered(recording.samples, self.speed, generator) for recording in chosen])
        for row, length in zip(context["inputs"], context["lengths"].tolist(), strict=True):
            for _ in range(2):
                blot(row[:length], 0, length // 5, generator)
                blot(row[:length], 1, 8, generator)
        return Batch(torch.tensor([recording.digit for recording in chosen]), context=context, whole=True)

    def arranged(self, epoch: int) -> list[Tensor]:
        """The rows of each batch: of eight batches drawn together those of like length stand side by side."""
        generator = torch.Generator().manual_seed(self.seed * 10_000 + epoch)
        sizes = torch.tensor([len(recording.samples) for recording in self.recordings])
        batches: list[Tensor] = []
        for pool in torch.randperm(len(sizes), generator=generator).split(8 * self.batch_size):
            batches += pool[sizes[pool].argsort(stable=True)].split(self.batch_size)
        whole = [batch for batch in batches if len(batch) == self.batch_size]
        return [whole[place] for place in torch.randperm(len(whole), generator=generator).tolist()]


def altered(samples: Tensor, most: float, generator: torch.Generator) -> Tensor:
    """Change the speed of a recording by a share of up to `most`."""
    speed, louder, later, noisy = torch.rand(4, generator=generator).tolist()
    size = int(len(samples) * (1 + most * (2 * speed - 1)))
    samples = torch.nn.functional.interpolate(samples.view(1, 1, -1), size=size, mode="linear")[0, 0]
    samples = torch.nn.functional.pad(samples, (int(0.1 * RATE * later), 0)) * 10 ** (louder - 0.5)
    return samples + 10 ** (-2 - 2 * noisy) * torch.randn(samples.shape, generator=generator)


def blot(frames: Tensor, axis: int, most: int, generator: torch.Generator) -> None:
    """Put the mean, 0, in place of up to `most` neighbouring frames (axis 0) or bands (axis 1)."""
    size = int(torch.randint(most + 1, (), generator=generator))
    start = int(torch.randint(frames.shape[axis] - size + 1, (), generator=generator))
    frames.narrow(axis, start, size).zero_()


def batches(recordings: list[Recording], frames: Frames) -> Iterator[Batch]:
    """Every recording once, as it is."""
    for start in range(0, len(recordings), 100):
        part = recordings[start : start + 100]
        digits = torch.tensor([recording.digit for recording in part])
        yield Batch(digits, context=frames([recording.samples for recording in part]), whole=True)


def fit(
    learnt: list[Recording], valid: list[Recording], steps: int, seed: int, speed: float = 0.15
) -> tuple[SequenceClassifier, Frames]:
    """Train a model and keep the weights that did best on the validation set."""
    torch.manual_seed(seed)
    frames = Frames(learnt)
    sizes = {"hidden_size": 64, "num_layers": 2, "dropout": 0.3}
    model = SequenceClassifier(10, feature_size=40, cell="gru", pooling="attention", **sizes)

    def answer(model: SequenceClassifier, rows: np.ndarray) -> list[int]:
        return classify(model, frames, [valid[row] for row in rows])

    def compare(rows: np.ndarray, answers: list[int], step: int) -> MetricValue:
        right = [valid[row].digit == answer for row, answer in zip(rows, answers, strict=True)]
        return MetricValue("accuracy", sum(right) / len(right))

    with tempfile.TemporaryDirectory() as directory:
        train(
            model, Training(learnt, frames, 32, seed, speed), lambda: batches(valid, frames),
            TrainingOptions(steps=steps, learning_rate=3e-3, seed=seed), directory,
            metric=ValidationMetric(len(valid), answer, compare),
        )  # fmt: skip
    return model.eval(), frames


@torch.no_grad()
def classify(model: SequenceClassifier, frames: Frames, recordings: list[Recording]) -> list[int]:
    """The likeliest digit of each recording."""
    return [digit for batch in batches(recordings, frames) for digit in model(batch.context).logits.argmax(1).tolist()]


if __name__ == "__main__":
    main()
