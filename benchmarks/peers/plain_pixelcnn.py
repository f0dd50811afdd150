"""A plain PixelCNN: 7×7 mask A, residual 3×3 mask B blocks (van den Oord et al. 2016), as tutorials write it.

    python plain_pixelcnn.py binarized_mnist.npz [--channels 64] [--blocks 7] [--seconds 180] [--seed 1]

The npz has train, valid and test: uint8 0 or 1, N × 784. Prints nats a picture over all test pictures.
"""

import time

import numpy as np
import torch
from timed_training import arguments, fit
from torch import Tensor, nn
from torch.nn import functional as F

BATCH = 32


class MaskedConv2d(nn.Conv2d):
    """Reads the pixels above and to the left; with mask B also the pixel itself."""

    mask: Tensor

    def __init__(self, kind: str, features: int, channels: int, side: int):
        super().__init__(features, channels, side, padding=side // 2)
        mask = torch.ones(side, side)
        mask[side // 2, side // 2 + (kind == "B") :] = 0
        mask[side // 2 + 1 :] = 0
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        return self._conv_forward(x, self.weight * self.mask, self.bias)


class Block(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        half = channels // 2
        self.net = nn.Sequential(
            nn.ReLU(), nn.Conv2d(channels, half, 1),
            nn.ReLU(), MaskedConv2d("B", half, half, 3),
            nn.ReLU(), nn.Conv2d(half, channels, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x + self.net(x)


def main() -> None:
    parser = arguments(__doc__, "pictures")
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=7)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    with np.load(options.pictures) as rows:
        train, test = (torch.from_numpy(rows[part]).float().view(-1, 1, 28, 28) for part in ("train", "test"))
    channels = options.channels
    net = nn.Sequential(
        MaskedConv2d("A", 1, channels, 7), *(Block(channels) for _ in range(options.blocks)),
        nn.ReLU(), nn.Conv2d(channels, channels, 1), nn.ReLU(), nn.Conv2d(channels, 1, 1),
    )  # fmt: skip

    def batch_loss() -> Tensor:
        x = train[torch.randint(len(train), (BATCH,))]
        return F.binary_cross_entropy_with_logits(net(x), x, reduction="sum") / BATCH

    began = time.monotonic()
    steps = fit(net, batch_loss, options.seconds, rate=3e-3, weight_decay=1e-4, clip=50.0)
    seconds = time.monotonic() - began
    with torch.no_grad():
        total = sum(F.binary_cross_entropy_with_logits(net(x), x, reduction="sum").item() for x in test.split(100))
    print(f"{total / len(test):.3f} nats/picture, {steps} steps, {steps * BATCH * 784} pixels in {seconds:.1f} s")


if __name__ == "__main__":
    main()
