"""Training attention in a window of W: bands of scores beside torch's kernel with a mask.

    python benchmarks/speed_windowed_attention.py [--rounds 5]

Forward and backward of `CausalAttention` with the projections, by turns with the same layer and
`torch.nn.functional.scaled_dot_product_attention` under a (T, T) mask, and, for a scale, without a window.
"""

import argparse
import os
import statistics
from collections.abc import Callable

import torch
from side_by_side import claim, interleaved, median_ratio, publish
from torch import Tensor

from chainrule.layers import CausalAttention

SHAPES = [(16, 784, 84), (4, 3072, 288), (4, 2048, 256), (4, 1024, 128)]  # rows, T, W
MODEL_SIZE, HEADS = 128, 2
TARGET = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rows, claims = [], []
    for batch, time, window in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            torch.manual_seed(0)
            x = torch.randn(batch, time, MODEL_SIZE)
            ways = {
                "bands": step(x, window, dtype),
                "mask": step(x, window, dtype, kernels="off"),
                "no window": step(x, time, dtype),
            }
            seconds = interleaved(ways, options.rounds)
            ratio = median_ratio(seconds["mask"], seconds["bands"])
            shape = f"{batch} × {time}, window {window}, {str(dtype).removeprefix('torch.')}"
            rows.append(
                {"shape": shape, **{f"{way}, ms": 1e3 * statistics.median(taken) for way, taken in seconds.items()},
                 "mask ÷ bands": ratio}
            )  # fmt: skip
            claims.append(claim(f"{shape}: speed of bands ÷ mask", ratio, ">=", TARGET))
    publish("speed_windowed_attention", rows, claims)


def step(x: Tensor, window: int, dtype: torch.dtype, kernels: str = "on") -> Callable[[], None]:
    """Forward and backward of a layer with its kernels, or without them."""
    layer = CausalAttention(MODEL_SIZE, HEADS, window, position=None)
    inputs = x.clone().requires_grad_()

    def run() -> None:
        os.environ["CHAINRULE_KERNELS"] = kernels
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            y, _ = layer(inputs)
        y.float().square().mean().backward()
        inputs.grad = None

    return run


if __name__ == "__main__":
    main()
