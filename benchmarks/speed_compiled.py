"""Training and drawing compared with scripts that `torch.compile` has compiled, on a GPU or on a processor.

    python benchmarks/speed_compiled.py [--device cuda] [--rounds 5] [--batch 64] [--only "Transformer 6×384"]

Training: one step of AdamW on rows of 256 symbols, in bfloat16 on a GPU and in float32 on a processor. By turns: ours;
the usual script (nanoGPT's blocks, `scaled_dot_product_attention`, a fused optimiser) as it is, and compiled; Hugging
Face's GPT-2 compiled; x-transformers' decoder compiled, where it is installed; for the LSTM, torch.nn's, which is
cuDNN's on a GPU. Compiling is left out of these times and printed: a shorter training gains nothing from it.

Drawing, with one row and with 64: ours, and Hugging Face's `generate` with a static cache, which it compiles.

Targets on a GPU: training at least 1.0 times the best of them, drawing at least 1.5 times Hugging Face. It takes at
most ten minutes there. On a processor, `--device cpu --batch 8 --rounds 3` takes about ten minutes.
"""

import argparse
import importlib.util
import time
from collections.abc import Callable

import torch
from side_by_side import claim, interleaved, median_ratio, publish
from speed_gpu import GPT2, SYMBOLS, TIME, PlainLSTM, PlainTransformer, XTransformer, loss
from torch import Tensor, nn

from chainrule.models import RecurrentLM, TransformerLM

SIZES = {"Transformer 6×384": (384, 6, 6), "Transformer 12×768": (768, 12, 12)}


def training(device: str, model: nn.Module, value: Callable[[], Tensor]) -> Callable[[], None]:
    """A step of training."""
    optimiser = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def run() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            mean = value()
        optimiser.zero_grad()
        mean.backward()
        optimiser.step()
        finish(device)

    return run


def finish(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def transformers(sizes: tuple[int, int, int]) -> dict[str, tuple[nn.Module, bool]]:
    """The peers by name, and whether they are compiled."""
    peers: dict[str, tuple[nn.Module, bool]] = {
        "plain": (PlainTransformer(*sizes), False),
        "plain, compiled": (PlainTransformer(*sizes), True),
    }
    if importlib.util.find_spec("transformers"):
        peers["Hugging Face, compiled"] = (GPT2(*sizes), True)
    if importlib.util.find_spec("x_transformers"):
        peers["x-transformers, compiled"] = (XTransformer(*sizes), True)
    return peers


def trained(
    device: str, ours: nn.Module, peers: dict[str, tuple[nn.Module, bool]], text: Tensor, rounds: int
) -> tuple[dict[str, object], float]:
    """A row of rates, and ours divided by the best of the others."""
    ways = {"ours": training(device, ours, lambda: -ours.log_prob(text).mean())}
    compiling: dict[str, object] = {}
    for name, (peer, compiled) in peers.items():
        used = torch.compile(peer.to(device)) if compiled else peer.to(device)
        ways[name] = training(device, peer, lambda used=used: loss(used, text))
        began = time.perf_counter()
        ways[name]()
        if compiled:
            compiling[f"s to compile {name.removesuffix(', compiled')}"] = round(time.perf_counter() - began, 1)
    seconds = interleaved(ways, rounds)
    mine = seconds.pop("ours")
    ratios = {name: median_ratio(values, mine) for name, values in seconds.items()}
    rate = text.numel() / sorted(mine)[len(mine) // 2]
    row = {"symbols/s": rate} | {f"ours ÷ {name}": ratio for name, ratio in ratios.items()} | compiling
    return row, min(ratios.values())


def drawn(device: str, ours: TransformerLM, sizes: tuple[int, int, int], batch: int) -> tuple[dict[str, object], float]:
    """Symbols a second of sampling, and ours divided by Hugging Face's with a static cache."""
    peer = GPT2(*sizes).to(device).eval().model
    begun = torch.ones(batch, 1, dtype=torch.long, device=device)
    length = TIME - 8
    settings = {"do_sample": True, "top_k": 0, "max_new_tokens": length, "min_new_tokens": length, "pad_token_id": 0}

    def theirs() -> None:
        with torch.no_grad():
            peer.generate(begun, cache_implementation="static", **settings)
        finish(device)

    def own() -> None:
        ours.sample(batch, length=length)
        finish(device)

    seconds = interleaved({"ours": own, "Hugging Face": theirs}, 3, 1)
    ratio = median_ratio(seconds["Hugging Face"], seconds["ours"])
    return {"symbols/s": batch * length / sorted(seconds["ours"])[1], "ours ÷ Hugging Face, static cache": ratio}, ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64, help="rows of a step of training")
    parser.add_argument("--only", default="", help="one model")
    parser.add_argument("--no-drawing", action="store_true")
    options = parser.parse_args()
    device = options.device
    if device == "cuda" and not torch.cuda.is_available():
        print("skipped: no CUDA device is available; --device cpu compares on the processor")
        return
    torch.manual_seed(0)
    text = torch.randint(SYMBOLS, (options.batch, TIME), device=device)
    rows, claims = list[dict[str, object]](), []
    if options.only in ("", "LSTM 2×512"):
        recurrent = RecurrentLM(SYMBOLS, "lstm", 512, 512, 2).to(device)
        row, least = trained(device, recurrent, {"torch.nn": (PlainLSTM(), False)}, text, options.rounds)
        rows.append({"model": "LSTM 2×512", "work": "training"} | row)
        claims.append(claim(f"LSTM 2×512: training, ours ÷ torch.nn, {device}", least, ">=", 1.0))
    for name, sizes in SIZES.items():
        if options.only not in ("", name):
            continue
        size, layers, heads = sizes
        model = TransformerLM(SYMBOLS, model_size=size, num_layers=layers, num_heads=heads, context_length=TIME)
        row, least = trained(device, model.to(device), transformers(sizes), text, options.rounds)
        rows.append({"model": name, "work": "training"} | row)
        claims.append(claim(f"{name}: training, ours ÷ the best compiled peer, {device}", least, ">=", 1.0))
        if options.no_drawing or not importlib.util.find_spec("transformers"):
            continue
        for batch in (1, 64):
            row, ratio = drawn(device, model.eval(), sizes, batch)
            rows.append({"model": name, "work": f"drawing {batch}"} | row)
            claims.append(claim(f"{name}: drawing {batch}, ours ÷ Hugging Face, {device}", ratio, ">=", 1.5))
        model.train()
    publish(f"speed_compiled_{device}", rows, claims)


if __name__ == "__main__":
    main()
