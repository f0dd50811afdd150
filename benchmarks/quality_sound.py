"""WaveNet on spoken digits, bits a sample on the official test recordings, which decided nothing.

    python benchmarks/quality_sound.py [--steps N] [--out RUN] [--data FOLDER] [--seed 0] [--spectrograms sound.png]

FOLDER holds `fsdd/{train_5-19,test_0-4}.tar.gz` (default: ../shared/data, or the environment variable CHAINRULE_DATA):
the Free Spoken Digit Dataset, 8 kHz, six speakers; recordings 0 to 4 of each digit and speaker are the test set. Sounds
are 256 μ-law levels. The WaveNet is the one that `chainrule train` makes, conditioned on the digit; the step was
chosen on a tenth of the training recordings, held out. Its likelihood of a recording whose digit is not told is the
mean over the ten digits, an exact marginal. Beside it stand a histogram of levels, and linear prediction: order 32, by
least squares, with a logistic residual whose scale follows the past residuals (three exponential averages), fitted by
maximum likelihood. Every figure is of a distribution that sums to 1 over the 256 levels.
"""

import argparse
import math
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from side_by_side import claim, publish
from torch import Tensor

from chainrule.data import MuLawLevels
from chainrule.models import WaveNet
from chainrule_app import write_wav
from chainrule_app.cli.main import main as chainrule
from chainrule_app.readers.sounds.prepare import Labelling
from chainrule_app.readers.sounds.sound_file import Collection, read_sound
from chainrule_app.tasks.sound.run import SoundRun

RATE, ORDER = 8000, 32
AVERAGES = (0.9, 0.98, 0.995)
LEVELS = MuLawLevels(256)
Clips = list[npt.NDArray[np.int64]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--steps", type=int, default=1600)
    parser.add_argument("--out", type=Path, help="keep the run here; a run that is there is scored, not trained")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--spectrograms", type=Path, help="draw samples beside recordings into this PNG")
    options = parser.parse_args()
    train, test = (options.data / "fsdd" / f"{name}.tar.gz" for name in ("train_5-19", "test_0-4"))
    if not train.exists() or not test.exists():
        print(f"skipped, there is no {train} and {test}: name the folder with --data")
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        out, began = options.out or Path(folder) / "run", time.process_time()
        if not out.exists():
            arguments = ["train", train, "--label-pattern", "{label}_*", "--steps", options.steps]
            arguments += ["--optimiser", "adamw"]  # of the published run
            status = chainrule([str(part) for part in [*arguments, "--seed", options.seed, "--out", out]])
            if status:
                raise SystemExit(status)
        minutes = (time.process_time() - began) / 60
        run = SoundRun.open(out)
        validations = [record for record in run.metrics() if record["event"] == "validation"]
        recordings, digits = clips(test)
        known, _ = clips(train)
        nats = given_digits(run.model(), recordings)  # (clips, digits)
        samples = sum(map(len, recordings))
        bits = {
            "histogram of levels": histogram(known, recordings) / samples / math.log(2),
            "linear prediction, order 32": linear_prediction(known, recordings) / samples / math.log(2),
            "WaveNet": -float((nats.logsumexp(1) - math.log(10)).sum()) / samples / math.log(2),
        }
        told = -float(nats[torch.arange(len(digits)), digits].sum()) / samples / math.log(2)
        accuracy = float((nats.argmax(1) == digits).double().mean())
        if options.spectrograms is not None:
            spectrograms(run, recordings, digits, options.spectrograms)
        best = min(validations, key=lambda record: record["nats_per_element"])
        rows: list[dict[str, Any]] = [{"model": name, "test bits/sample": value} for name, value in bits.items()]
        rows[-1] |= {
            "digit told": told,
            "digits recognised": accuracy,
            "valid bits/sample, digit told": best["bits_per_element"],
            "parameters": sum(weight.numel() for weight in run.model().parameters()),
            "steps": options.steps,
            "best step": best["step"],
            "core minutes": minutes,
            "seed": options.seed,
        }
    better = claim(
        "WaveNet, spoken digits: test bits per sample below linear prediction's",
        bits["linear prediction, order 32"] - bits["WaveNet"],
        ">=",
        0.0,
    )
    publish("quality_sound", rows, [better])


def clips(path: Path) -> tuple[Clips, Tensor]:
    """The levels of each recording, and its digit."""
    files, labelling = Collection(path).files, Labelling("{label}_*")
    levels = [LEVELS.encode(np.concatenate(list(read_sound(file, RATE)))) for file in files]
    return levels, torch.tensor([int(labelling(file.name)) for file in files])


@torch.no_grad()
def given_digits(model: WaveNet, recordings: Clips) -> Tensor:
    """log p(x | digit), (clips, 10), nats."""
    model.eval()
    digits = torch.arange(10)
    return torch.stack([model.log_prob(torch.from_numpy(x).expand(10, -1), digits).double() for x in recordings])


def histogram(known: Clips, recordings: Clips) -> float:
    """Nats of recordings under the frequencies of levels, one added to each."""
    counts = np.bincount(np.concatenate(known), minlength=256) + 1
    return -float(np.log(counts / counts.sum())[np.concatenate(recordings)].sum())


def linear_prediction(known: Clips, recordings: Clips) -> float:
    """Nats of recordings under prediction from the last samples."""
    pasts, presents = zip(*(windows(x) for x in known[:: max(len(known) // 300, 1)]), strict=True)
    weights, *_ = np.linalg.lstsq(np.concatenate(pasts), np.concatenate(presents), rcond=None)
    fitted = [features(x, weights) for x in known[::9]]
    theta = torch.zeros(len(AVERAGES) + 1, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        theta[:-1] = 1 / len(AVERAGES)
    optimiser = torch.optim.LBFGS([theta], max_iter=30, line_search_fn="strong_wolfe")
    parts = [torch.cat(column) for column in zip(*fitted, strict=True)]

    def closure() -> float:
        optimiser.zero_grad()
        loss = -residual_log_prob(theta, *parts).mean()
        loss.backward()
        return float(loss.detach())

    optimiser.step(closure)
    with torch.no_grad():
        return -sum(float(residual_log_prob(theta, *features(x, weights)).sum()) for x in recordings)


def windows(x: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The last samples before each, silence before the first, (T, ORDER); and the samples (T,)."""
    amplitudes = LEVELS.decode(x).astype(np.float64)
    padded = np.concatenate([np.zeros(ORDER), amplitudes])
    return np.lib.stride_tricks.sliding_window_view(padded, ORDER)[:-1], amplitudes


def features(x: npt.NDArray[np.int64], weights: npt.NDArray[np.float64]) -> tuple[Tensor, Tensor, Tensor]:
    """Of each sample its level, its prediction, and the logarithms of averages of past residuals, (T, averages)."""
    from scipy.signal import lfilter

    past, amplitudes = windows(x)
    predicted = past @ weights
    size = np.concatenate([[0.0], np.abs(amplitudes - predicted)[:-1]])
    averages = [lfilter([1 - keep], [1, -keep], size) for keep in AVERAGES]
    logs = np.log(np.stack(averages, 1) + 1e-3)
    return torch.from_numpy(x), torch.from_numpy(predicted), torch.from_numpy(logs)


def residual_log_prob(theta: Tensor, x: Tensor, predicted: Tensor, logs: Tensor) -> Tensor:
    """log p of each level: the mass of a logistic around the prediction between the level's edges, nats."""
    middle = np.arange(1, 256) - 0.5
    y = 2 * middle / 255 - 1
    inner = torch.from_numpy(np.sign(y) * np.expm1(np.abs(y) * np.log(256)) / 255)
    far = torch.tensor([1e3], dtype=torch.float64)
    edges = torch.cat([-far, inner, far])
    scale = (logs @ theta[:-1] + theta[-1]).exp()
    a, b = (edges[x] - predicted) / scale, (edges[x + 1] - predicted) / scale
    mass = torch.nn.functional.logsigmoid(b) + torch.nn.functional.logsigmoid(-a)
    return mass + torch.log(-torch.expm1(-(b - a).clamp(min=1e-12)))


def spectrograms(run: SoundRun, recordings: Clips, digits: Tensor, path: Path) -> None:
    """A recording of each of five digits above a sample of it."""
    from matplotlib.figure import Figure

    chosen = [0, 2, 5, 7, 9]
    drawn = run.model().sample(5, torch.tensor(chosen), length=4000, generator=torch.Generator().manual_seed(0))
    real = [recordings[int((digits == digit).nonzero()[0])] for digit in chosen]
    figure = Figure(figsize=(15, 6))
    for row, sounds in enumerate((real, drawn.numpy())):
        for column, (digit, sound) in enumerate(zip(chosen, sounds, strict=True)):
            axes = figure.add_subplot(2, 5, 5 * row + column + 1)
            amplitudes = LEVELS.decode(sound)
            axes.specgram(amplitudes + 1e-5, NFFT=256, Fs=RATE, noverlap=192, vmin=-120, vmax=-30)
            axes.set_title(f"{'sample' if row else 'recording'}: {digit}")
            if row:
                write_wav(path.with_name(f"{path.stem}-{digit}.wav"), amplitudes, RATE)
    figure.tight_layout()
    figure.savefig(path, dpi=60)


if __name__ == "__main__":
    main()
