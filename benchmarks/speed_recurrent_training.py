"""Forward and backward of the recurrent layers beside torch.nn's, on this machine's processor.

    python benchmarks/speed_recurrent_training.py [--rounds 15]

Both sides compute the same function of the same weights (checked first). Full rows, then rows whose lengths are uniform
in 1..T: torch.nn packs those, ours takes `lengths`.
"""

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import torch
from side_by_side import claim, interleaved, median_ratio, publish
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from chainrule import layers

CELLS = {"LSTM": (layers.LSTM, nn.LSTM, 1.05), "GRU": (layers.GRU, nn.GRU, 1.35), "tanh RNN": (layers.RNN, nn.RNN, 1.5)}
WIDTH = 256  # whose targets these are; of others, 1.1


def trained(forward: Callable[[], Tensor], module: nn.Module) -> Callable[[], None]:
    def run() -> None:
        module.zero_grad()
        forward().square().sum().backward()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--time", type=int, default=128)
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, WIDTH, 1024])
    options = parser.parse_args()
    rows, claims = [], []
    for hidden in options.hidden:
        for name in CELLS:
            row, made = compared(name, hidden, options)
            rows.append(row)
            claims += made
    print(f"B={options.batch} T={options.time} I=M, float32 unless said, {options.rounds} rounds, medians")
    publish("speed_recurrent_training", rows, claims)


def compared(name: str, hidden: int, options: argparse.Namespace) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A row of figures of one layer, and its claims."""
    ours, theirs, target = CELLS[name]
    batch, time, usual = options.batch, options.time, hidden == WIDTH
    torch.manual_seed(0)
    x = torch.randn(batch, time, hidden)
    lengths = torch.randint(1, time + 1, (batch,))
    mine, peer = ours(hidden, hidden), theirs(hidden, hidden, batch_first=True)
    mine.load_state_dict(peer.state_dict())
    torch.testing.assert_close(mine(x)[0], peer(x)[0], rtol=1e-4, atol=1e-4)

    def packed() -> Tensor:
        output, _ = peer(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        return pad_packed_sequence(output, batch_first=True, total_length=time)[0]

    torch.testing.assert_close(mine(x, lengths=lengths)[0], packed(), rtol=1e-4, atol=1e-4)

    def half() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return mine(x)[0].float()

    ways = {
        "torch": trained(lambda: peer(x)[0], peer),
        "ours": trained(lambda: mine(x)[0], mine),
        "torch packed": trained(packed, peer),
        "ours lengths": trained(lambda: mine(x, lengths=lengths)[0], mine),
    }
    if usual:
        ways["ours bfloat16"] = trained(half, mine)
    seconds = interleaved(ways, options.rounds if hidden <= WIDTH else -(-options.rounds // 3))
    speed_up = median_ratio(seconds["torch"], seconds["ours"])
    unequal = median_ratio(seconds["torch packed"], seconds["ours lengths"])
    row = {
        "layer": name,
        "M": hidden,
        "torch.nn ms": statistics.median(seconds["torch"]) * 1e3,
        "ours ms": statistics.median(seconds["ours"]) * 1e3,
        "speed-up": speed_up,
        "speed-up, bfloat16": median_ratio(seconds["torch"], seconds["ours bfloat16"]) if usual else None,
        "speed-up, unequal rows": unequal,
        "unequal ÷ full rows, ours": median_ratio(seconds["ours lengths"], seconds["ours"]),
    }
    what = name if usual else f"{name}, M={hidden}"
    return row, [
        claim(f"{what}: training speed ÷ torch.nn's", speed_up, ">=", target if usual else 1.1, "×"),
        claim(f"{what}: lengths uniform in 1..T, speed ÷ torch.nn's packed", unequal, ">=", 1.8, "×"),
    ]


if __name__ == "__main__":
    main()
