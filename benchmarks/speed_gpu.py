"""Training and sampling on a GPU, compared with torch.nn on the same card and with our own plain forms.

    python benchmarks/speed_gpu.py [--rounds 7]

Training: one step of AdamW on 64 rows of 256 symbols, or of images, in float32 with torch's settings and in bfloat16.
`train`: the steps of `chainrule.training.train`, which records them; over the last 160 of 256 steps.
Sampling: 64 rows of 1,000 (LSTM), 250 (Transformer) or 128 symbols, or images. By turns: a model of ours; the same
with `CHAINRULE_KERNELS=off`; for the LSTM 2×512 and the Transformer 6×384 the usual script with torch.nn; and for the
Transformer also Hugging Face's GPT-2 and x-transformers' decoder of that size, where they are installed.
"""

import argparse
import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial

import torch
from side_by_side import interleaved, median_ratio, publish
from torch import Tensor, nn
from torch.nn import functional as F

from chainrule import AutoregressiveModel
from chainrule.data import Batch
from chainrule.models import GatedPixelCNN, PixelCNNPP, RecurrentLM, TransformerLM, WaveNet
from chainrule.training import TrainingOptions, train

SYMBOLS, ROWS, TIME = 256, 64, 256


class PlainLSTM(nn.Module):
    """The usual script."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, 512)
        self.lstm = nn.LSTM(512, 512, 2, batch_first=True)
        self.output = nn.Linear(512, SYMBOLS)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.lstm(self.embedding(x))[0])

    @torch.no_grad()
    def sample(self, length: int) -> Tensor:
        x, state, drawn = torch.zeros(ROWS, 1, dtype=torch.long, device="cuda"), None, []
        for _ in range(length):
            h, state = self.lstm(self.embedding(x), state)
            x = self.output(h[:, -1]).softmax(-1).multinomial(1)
            drawn.append(x)
        return torch.cat(drawn, 1)


class PlainBlock(nn.Module):
    """A pre-norm block."""

    def __init__(self, size: int = 384, heads: int = 6) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size, bias=False), nn.Linear(size, size, bias=False)
        self.feed = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, x: Tensor) -> Tensor:
        batch, time, size = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, time, size))
        return x + self.feed(self.norm_2(x))


class PlainTransformer(nn.Module):
    """The usual script, which draws without a cache."""

    def __init__(self, size: int = 384, layers: int = 6, heads: int = 6) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(SYMBOLS, size), nn.Embedding(TIME, size)
        self.blocks = nn.Sequential(*[PlainBlock(size, heads) for _ in range(layers)])
        self.output = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, SYMBOLS))

    def forward(self, x: Tensor) -> Tensor:
        positions = self.positions(torch.arange(x.shape[1], device=x.device))
        return self.output(self.blocks(self.embedding(x) + positions))

    @torch.no_grad()
    def sample(self, length: int) -> Tensor:
        x = torch.zeros(ROWS, 1, dtype=torch.long, device="cuda")
        for _ in range(length):
            x = torch.cat([x, self(x)[:, -1].softmax(-1).multinomial(1)], 1)
        return x


class GPT2(nn.Module):
    """Hugging Face's."""

    def __init__(self, size: int = 384, layers: int = 6, heads: int = 6) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        sizes = {"vocab_size": SYMBOLS, "n_positions": TIME, "n_embd": size, "n_layer": layers, "n_head": heads}
        zero = dict.fromkeys(["resid_pdrop", "embd_pdrop", "attn_pdrop"], 0.0)
        config = GPT2Config(**sizes, **zero, bos_token_id=None, eos_token_id=None)
        self.model = GPT2LMHeadModel(config)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).logits

    def sample(self, length: int) -> Tensor:
        begun = torch.ones(ROWS, 1, dtype=torch.long, device="cuda")
        return self.model.generate(begun, do_sample=True, top_k=0, max_new_tokens=length, pad_token_id=0)


class XTransformer(nn.Module):
    """x-transformers'."""

    def __init__(self, size: int = 384, layers: int = 6, heads: int = 6) -> None:
        super().__init__()
        from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

        blocks = Decoder(dim=size, depth=layers, heads=heads, attn_flash=True)
        self.model = AutoregressiveWrapper(TransformerWrapper(num_tokens=SYMBOLS, max_seq_len=TIME, attn_layers=blocks))

    def forward(self, x: Tensor) -> Tensor:
        return self.model.net(x)

    def sample(self, length: int) -> Tensor:
        begun = torch.zeros(ROWS, 1, dtype=torch.long, device="cuda")
        return self.model.generate(begun, length, filter_logits_fn=lambda logits: logits, cache_kv=True)


def installed(peers: dict[str, tuple[str, Callable[[], nn.Module]]]) -> dict[str, nn.Module]:
    return {name: make().cuda() for name, (module, make) in peers.items() if importlib.util.find_spec(module)}


def training(loss: Callable[[], Tensor], model: nn.Module, half: bool) -> Callable[[], None]:
    optimiser = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def run() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            value = loss()
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        torch.cuda.synchronize()

    return run


class Repeated:
    """One batch at every step, and when it was asked for."""

    steps_per_epoch = 100

    def __init__(self, x: Tensor):
        self._batch = Batch(x.cpu(), whole=x.dim() > 2)
        self.times: list[float] = []

    def at(self, step: int) -> Batch:
        self.times.append(time.perf_counter())
        return self._batch


def trained(model: AutoregressiveModel, x: Tensor, half: bool) -> float:
    """Seconds of a step of `train`."""
    batches, last = Repeated(x), 256
    settings = {"steps": last + 1, "validate_every": last + 1, "learning_rate": 1e-4, "device": "cuda"}
    options = TrainingOptions(**settings, precision="bfloat16" if half else "float32")
    validation = [Batch(x[:1].cpu(), whole=x.dim() > 2)]
    with tempfile.TemporaryDirectory() as directory:
        train(model, batches, lambda: validation, options, directory, progress=False)
    model.train()
    return (batches.times[last] - batches.times[96]) / (last - 96)  # figures are read, and waited for, every 16 steps


def without_kernels(function: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        os.environ["CHAINRULE_KERNELS"] = "off"
        function()
        torch.cuda.synchronize()
        del os.environ["CHAINRULE_KERNELS"]

    return run


def finished(function: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        function()
        torch.cuda.synchronize()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: no CUDA device is available")
        return
    torch.manual_seed(0)
    text = torch.randint(SYMBOLS, (ROWS, TIME), device="cuda")
    images = torch.randint(4, (ROWS, 1, 28, 28), device="cuda")
    pictures = torch.randint(256, (ROWS // 2, 3, 32, 32), device="cuda")
    cases: dict[str, tuple[AutoregressiveModel, dict[str, nn.Module], Tensor, int]] = {
        "LSTM 2×512": (RecurrentLM(SYMBOLS, "lstm", 512, 512, 2), {"torch": PlainLSTM().cuda()}, text, 1000),
        "Transformer 6×384": (
            TransformerLM(SYMBOLS, model_size=384, num_layers=6, num_heads=6, context_length=TIME),
            installed(
                {
                    "torch": ("torch", PlainTransformer),
                    "Hugging Face": ("transformers", GPT2),
                    "x-transformers": ("x_transformers", XTransformer),
                }
            ),
            text,
            250,
        ),
        "WaveNet": (WaveNet(SYMBOLS, channels=64, layers_per_block=8), {}, text, 128),
        "gated PixelCNN 28×28": (GatedPixelCNN((1, 28, 28), levels=4, channels=64, layers=7), {}, images, 784),
        "PixelCNN++ 32×32×3": (PixelCNNPP((3, 32, 32), channels=64, layers=3, components=8), {}, pictures, 0),
    }
    rows = []
    for name, (model, peers, x, length) in cases.items():
        model = model.cuda()
        for half in (False, True):
            ours = training(lambda model=model, x=x: -model.log_prob(x).mean(), model, half)
            ways = {"ours": ours, "plain form": without_kernels(ours)}
            ways |= {kind: training(lambda peer=peer: loss(peer, text), peer, half) for kind, peer in peers.items()}
            seconds = interleaved(ways, options.rounds)
            way = "training, bfloat16" if half else "training"
            rows.append(row(name, way, x.numel(), seconds))
            seconds["ours"] = [trained(model, x, half)] * options.rounds
            rows.append(row(name, f"{way}, `train`", x.numel(), seconds))
        if not length:
            continue
        model = model.eval()
        sample = finished(lambda model=model, length=length: model.sample(ROWS, length=length))
        ways = {"ours": sample, "plain form": without_kernels(sample)}
        ways |= {kind: finished(partial(peer.eval().sample, length)) for kind, peer in peers.items()}
        rows.append(row(name, "sampling", ROWS * length, interleaved(ways, 3, 1)))
    publish("speed_gpu", rows, [])


def loss(peer: nn.Module, text: Tensor) -> Tensor:
    return F.cross_entropy(peer(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


def row(name: str, what: str, symbols: int, seconds: dict[str, list[float]]) -> dict[str, object]:
    mine = seconds.pop("ours")
    rates = {f"ours ÷ {way}": median_ratio(values, mine) for way, values in seconds.items()}
    return {"model": name, "work": what, "symbols/s": symbols / statistics.median(mine)} | rates


if __name__ == "__main__":
    main()
