"""Train RNN-MADE on synthetic tunes with chords and let it compose: a MIDI file and its piano roll.

python examples/melody.py [FOLDER] [STEPS]
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch

from chainrule.models import RNNMADE
from chainrule_app import midi_file, png

LOWEST, KEYS = 48, 36  # three octaves from the C below middle C
SCALE = [0, 2, 4, 5, 7, 9, 11]  # major
PROGRESSIONS = [[0, 3, 4, 0], [0, 5, 3, 4], [0, 4, 5, 3]]  # I IV V I, I vi IV V, I V vi IV
FRAMES = 8  # of a bar: eighth notes


def tune(random: np.random.Generator, bars: int = 8) -> np.ndarray:
    """Make a tune, (T, 36) of 0 and 1: a triad for each bar, and a melody that walks the scale and meets the chord."""
    roll = np.zeros((bars * FRAMES, KEYS), np.float32)
    key = int(random.integers(12)) % 5
    chords = PROGRESSIONS[random.integers(len(PROGRESSIONS))]
    step = 7 + int(random.integers(7))  # of the scale, two octaves of it
    for bar in range(bars):
        chord = [chords[bar % 4] + third for third in (0, 2, 4)]
        roll[bar * FRAMES : (bar + 1) * FRAMES - 1, [note(key, degree % 7) for degree in chord]] = 1
        for beat in range(0, FRAMES, 2 if random.random() < 0.7 else 1):
            step = int(np.clip(step + random.integers(-2, 3), 7, 16))
            if beat % 4 == 0:  # on strong beats a note of the chord
                step = min(
                    range(7, 17), key=lambda degree: (degree % 7 not in [c % 7 for c in chord], abs(degree - step))
                )
            roll[bar * FRAMES + beat, note(key, step)] = 1
    return roll


def note(key: int, degree: int) -> int:
    return key + 12 * (degree // 7) + SCALE[degree % 7]


def train(steps: int) -> RNNMADE:
    """Train an RNN-MADE on a thousand tunes and print its nats a frame on held-out tunes."""
    random = np.random.default_rng(0)
    tunes = torch.from_numpy(np.stack([tune(random) for _ in range(1100)]))
    seen, held_out = tunes[:1000], tunes[1000:]
    torch.manual_seed(0)
    model = RNNMADE(KEYS, hidden_size=128, made_hidden=[128], dropout=0.1)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps + 1):
        if step % max(steps // 4, 1) == 0:
            with torch.no_grad():
                nats = -model.eval().log_prob(held_out).mean() / held_out.shape[1]
            print(f"step {step}: {nats:.3f} nats a frame on tunes not seen", flush=True)
            model.train()
        optimiser.zero_grad()
        loss = -model.log_prob(seen[torch.from_numpy(random.integers(len(seen), size=32))]).mean() / seen.shape[1]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * (1 - step / (steps + 1))
        optimiser.step()
    return model.eval()


def image(roll: np.ndarray) -> bytes:
    """Time to the right, pitch upwards, bars apart by shade."""
    shades = np.where(roll > 0, 2, (np.arange(len(roll)) // FRAMES % 2)[:, None]).T[::-1].astype(np.uint8)
    palette = np.array([[255, 255, 255], [238, 241, 246], [42, 111, 187]], np.uint8)
    return png(np.repeat(np.repeat(shades, 8, 0), 8, 1), palette)


def main(folder: str = ".", steps: str = "800") -> None:
    """Train, compose, write."""
    began = time.process_time()
    model = train(int(steps))
    roll = model.sample(1, length=16 * FRAMES, generator=torch.Generator().manual_seed(5))[0].numpy()
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    (out / "melody.mid").write_bytes(midi_file(roll, lowest=LOWEST, frames_per_quarter=2, quarters_per_minute=110))
    (out / "melody.png").write_bytes(image(roll))
    print(f"{out / 'melody.mid'} and {out / 'melody.png'}: 16 bars, {time.process_time() - began:.0f} core seconds")


if __name__ == "__main__":
    main(*sys.argv[1:])
