"""Train on plucked strings of two pitches, find the odd recording, and draw new sounds as wav files.

python examples/sound.py [SECONDS]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from chainrule.models import WaveNet
from chainrule.training import TrainingOptions, train
from chainrule_app import clip_batches, clip_evaluation, prepare_sounds, write_wav

RATE, folder = 4000, Path(tempfile.mkdtemp(prefix="chainrule-"))
random = np.random.default_rng(0)


def plucked(hertz: float, samples: int = 800) -> np.ndarray:
    """Synthesise a plucked string (Karplus and Strong 1983): noise in a loop, smoothed at each turn."""
    turn = round(RATE / hertz)
    string = list(random.uniform(-0.9, 0.9, turn))
    while len(string) < samples:
        string.append(0.496 * (string[-turn] + string[1 - turn]))
    return np.array(string)


for pitch, hertz in {"low": 130, "high": 390}.items():
    (folder / "strings" / pitch).mkdir(parents=True)
    for number in range(30):
        write_wav(folder / "strings" / pitch / f"{number}.wav", plucked(hertz), RATE)

sounds = prepare_sounds(folder / "strings", folder / "data")  # the folders are the labels
torch.manual_seed(0)
model = WaveNet(levels=256, channels=24, blocks=2, layers_per_block=5, skip_channels=48, num_classes=2)
batches = clip_batches(sounds.train, 4, 800, sounds.train_labels)
options = TrainingOptions(budget=float(sys.argv[1]) if len(sys.argv) > 1 else 60.0, learning_rate=5e-3)
train(
    model,
    batches,
    lambda: clip_evaluation(sounds.valid, 8, 800, sounds.valid_labels),
    options,
    folder / "run",
)

labels = sounds.manifest["labels"]
played = {"a low string": plucked(130), "a high string": plucked(390), "a sine": 0.5 * np.sin(np.arange(800) / 3)}
for name, amplitudes in played.items():
    x = torch.from_numpy(sounds.levels.encode(amplitudes)).expand(len(labels), -1)
    nats = -model.log_prob(x, torch.arange(len(labels))).detach()  # given each of the labels
    bits = float(nats.min()) / len(amplitudes) / np.log(2)
    print(f"{name}: likeliest as {labels[int(nats.argmin())]}, {bits:.2f} bits a sample")

for number, label in enumerate(labels):
    drawn = model.sample(1, torch.tensor([number]), length=2 * RATE, generator=torch.Generator().manual_seed(1))
    write_wav(folder / f"new-{label}.wav", sounds.levels.decode(drawn[0].numpy()), RATE)
    print(f"drawn: {folder / f'new-{label}.wav'}")
