"""A plain WaveNet (van den Oord et al. 2016): dilated causal convolutions with gates, residual and skip paths.

    python plain_wavenet.py train.tar.gz test.tar.gz [--channels 48] [--layers 9] [--seconds 180] [--seed 1]

Archives of wav files of 16 bits, read as 256 μ-law levels, each a sequence. Prints bits a sample over all test files.
"""

import io
import math
import random
import tarfile
import time
import wave

import numpy as np
import torch
from timed_training import arguments, fit
from torch import Tensor, nn
from torch.nn import functional as F

LEVELS = 256  # the next number is the silence before the first sample
PAD = -1


def read(path: str) -> list[Tensor]:
    """The μ-law levels of each file."""
    clips = []
    with tarfile.open(path) as archive:
        for member in sorted(archive.getnames()):
            content = archive.extractfile(member)
            if content is None or not member.endswith(".wav"):
                continue
            with wave.open(io.BytesIO(content.read())) as sound:
                x = np.frombuffer(sound.readframes(sound.getnframes()), "<i2") / 32768
            y = np.sign(x) * np.log1p((LEVELS - 1) * np.abs(x)) / math.log(LEVELS)
            clips.append(torch.from_numpy(np.floor((y + 1) / 2 * (LEVELS - 1) + 0.5).astype(np.int64)))
    return clips


class Layer(nn.Module):
    def __init__(self, channels: int, skip: int, dilation: int):
        super().__init__()
        self.dilation = dilation
        self.gated = nn.Conv1d(channels, 2 * channels, 2, dilation=dilation)
        self.out = nn.Conv1d(channels, channels + skip, 1)
        self.sizes = [channels, skip]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        filtered, gate = self.gated(F.pad(x, (self.dilation, 0))).chunk(2, 1)
        residual, skipped = self.out(filtered.tanh() * gate.sigmoid()).split(self.sizes, 1)
        return x + residual, skipped


class WaveNet(nn.Module):
    def __init__(self, channels: int, skip: int, blocks: int, layers: int):
        super().__init__()
        self.embedding = nn.Embedding(LEVELS + 1, channels)
        self.layers = nn.ModuleList(Layer(channels, skip, 2**i) for _ in range(blocks) for i in range(layers))
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(skip, skip, 1), nn.ReLU(), nn.Conv1d(skip, LEVELS, 1))

    def forward(self, levels: Tensor) -> Tensor:
        """(B, T) levels to the scores of each, given those before it, (B, 256, T)."""
        x = self.embedding(F.pad(levels.clamp(min=0)[:, :-1], (1, 0), value=LEVELS)).transpose(1, 2)
        total: Tensor | float = 0.0
        for layer in self.layers:
            x, skipped = layer(x)
            total = total + skipped
        return self.head(total)


def main() -> None:
    parser = arguments(__doc__, "train", "test")
    for name, default in (("channels", 48), ("skip", 128), ("blocks", 2), ("layers", 9), ("batch", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--held-out", action="store_true", help="train without each tenth file, and test on those")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    random.seed(options.seed)
    train = read(options.train)
    if options.held_out:
        test, train = train[::10], [clip for place, clip in enumerate(train) if place % 10]
    else:
        test = read(options.test)
    net = WaveNet(options.channels, options.skip, options.blocks, options.layers)
    order: list[list[Tensor]] = []
    samples = 0

    def batch_loss() -> Tensor:
        nonlocal order, samples
        if not order:
            by_length = sorted(train, key=lambda clip: len(clip) + 100 * random.random())
            order = [by_length[start : start + options.batch] for start in range(0, len(train), options.batch)]
            random.shuffle(order)
        clips = order.pop()
        samples += sum(map(len, clips))
        levels = nn.utils.rnn.pad_sequence(clips, batch_first=True, padding_value=PAD)
        return F.cross_entropy(net(levels), levels, ignore_index=PAD)

    began = time.monotonic()
    steps = fit(net, batch_loss, options.seconds, rate=options.rate)
    seconds = time.monotonic() - began
    with torch.no_grad():
        nats = sum(F.cross_entropy(net(clip[None]), clip[None], reduction="sum").item() for clip in test)
    bits = nats / sum(map(len, test)) / math.log(2)
    print(f"{bits:.4f} bits/sample, {steps} steps, {samples} samples in {seconds:.1f} s")


if __name__ == "__main__":
    main()
