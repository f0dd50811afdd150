"""Forward and backward of the recurrent layers beside torch.nn's, on this machine's processor.

    python benchmarks/speed_recurrent_training.py [--rounds 15]

Both sides compute the same function of the same weights (checked first). Full rows, then rows whose lengths are uniform
in 1..T: torch.nn packs those, ours takes `lengths`.
"""

import argparse
import statistics
from collections.abc import Callable

import torch
from side_by_side import claim, interleaved, median_ratio, publish
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from chainrule import layers

CELLS = {"LSTM": (layers.LSTM, nn.LSTM, 1.0), "GRU": (layers.GRU, nn.GRU, 1.3), "tanh RNN": (layers.RNN, nn.RNN, 1.5)}


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
    parser.add_argument("--hidden", type=int, default=256)
    options = parser.parse_args()
    batch, time, hidden = options.batch, options.time, options.hidden
    torch.manual_seed(0)
    x = torch.randn(batch, time, hidden)
    lengths = torch.randint(1, time + 1, (batch,))
    rows, claims = [], []
    for name, (ours, theirs, target) in CELLS.items():
        mine, peer = ours(hidden, hidden), theirs(hidden, hidden, batch_first=True)
        mine.load_state_dict(peer.state_dict())
        torch.testing.assert_close(mine(x)[0], peer(x)[0], rtol=1e-4, atol=1e-4)

        def packed(peer: nn.Module = peer) -> Tensor:
            output, _ = peer(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
            return pad_packed_sequence(output, batch_first=True, total_length=time)[0]

        torch.testing.assert_close(mine(x, lengths=lengths)[0], packed(), rtol=1e-4, atol=1e-4)

        def half(mine: nn.Module = mine) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return mine(x)[0].float()

        seconds = interleaved(
            {
                "torch": trained(lambda peer=peer: peer(x)[0], peer),
                "ours": trained(lambda mine=mine: mine(x)[0], mine),
                "ours bfloat16": trained(half, mine),
                "torch packed": trained(packed, peer),
                "ours lengths": trained(lambda mine=mine: mine(x, lengths=lengths)[0], mine),
            },
            options.rounds,
        )
        medians = {way: statistics.median(values) * 1e3 for way, values in seconds.items()}
        speed_up = median_ratio(seconds["torch"], seconds["ours"])
        unequal = median_ratio(seconds["ours lengths"], seconds["ours"])
        rows.append(
            {
                "layer": name,
                "torch.nn ms": medians["torch"],
                "ours ms": medians["ours"],
                "speed-up": speed_up,
                "speed-up, bfloat16": median_ratio(seconds["torch"], seconds["ours bfloat16"]),
                "unequal ÷ full rows, torch.nn packed": median_ratio(seconds["torch packed"], seconds["torch"]),
                "unequal ÷ full rows, ours": unequal,
            }
        )
        claims.append(claim(f"{name}: training speed ÷ torch.nn's", speed_up, ">=", target, "×"))
        claims.append(claim(f"{name}: lengths uniform in 1..T ÷ full rows", unequal, "<=", 1.15, "×"))
    print(f"B={batch} T={time} I=M={hidden}, float32 unless said, {options.rounds} rounds, medians")
    publish("speed_recurrent_training", rows, claims)


if __name__ == "__main__":
    main()
