"""Transformers: training beside a plain module of torch.nn, and generation beside the products it cannot do without.

    python benchmarks/speed_attention.py [--rounds 5] [--tokens 512] [--part training|generation]

Training, forward and backward of one batch: `TransformerLM`, and the module a user writes after nanoGPT, of torch.nn
layers and scaled_dot_product_attention with its causal flag. Both compute the same function of the same weights, which
is checked first. The model's own default positions, rotary, are timed beside it, and x-transformers of the same shape;
in float32, and, where the processor multiplies it, under autocast in bfloat16, as `chainrule train` then does.

Generation at batch 1 on one thread, sampling included: `model.sample`, whose compiled loops are loaded before, once a
process; as the floor, plain matrix-vector products with weights of the same shapes, NumPy's and torch's by turns, the
faster counted; and x-transformers and GPT-2 of Hugging Face of the same shape, with their caches. Time is CPU time.

The two packages are no dependency of chainrule; without them their rows are left out. Beside an installed chainrule,
    pip install --no-deps --target PEERS x-transformers einops einx loguru frozendict torch-einops-utils transformers \
        tokenizers huggingface-hub safetensors regex
    PYTHONPATH=PEERS python benchmarks/speed_attention.py
"""

import argparse
import statistics
from collections.abc import Callable
from itertools import product
from time import process_time

import torch
from side_by_side import claim, interleaved, median_ratio, publish
from torch import Tensor, nn

from chainrule.devices import multiplies_bfloat16
from chainrule.models import TransformerLM

VOCABULARY = 65
TRAINING = {"4×128, batch 32, 64 elements": (4, 128, 4, 32, 64), "6×384, batch 4, 256 elements": (6, 384, 6, 4, 256)}
LAYERS, SIZE, HEADS = 6, 384, 6  # of generation
WARM_UP = 16  # elements


class PlainBlock(nn.Module):
    def __init__(self, size: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size, bias=False), nn.Linear(size, size, bias=False)
        self.up, self.down = nn.Linear(size, 4 * size, bias=False), nn.Linear(4 * size, size, bias=False)
        self.gelu = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(D, dim=2)
        q, k, v = (part.view(B, T, self.heads, D // self.heads).transpose(1, 2) for part in (q, k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(B, T, D))
        return x + self.down(self.gelu(self.up(self.norm2(x))))


class PlainGPT(nn.Module):
    def __init__(self, vocabulary: int, layers: int, size: int, heads: int, context: int):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary + 1, size), nn.Embedding(context, size)
        self.blocks = nn.ModuleList(PlainBlock(size, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))

    @torch.no_grad()
    def take(self, model: TransformerLM) -> None:
        """The weights of ours, of which one embedding is of the start symbol."""
        self.tokens.weight.copy_(model.embedding.weight * model.embedding.embedding_dim**0.5)
        self.places.weight.copy_(model.stack.positions.weight)
        for mine, theirs in zip(self.blocks, model.stack.layers, strict=True):
            mine.norm1.load_state_dict(theirs.norm1.state_dict())
            mine.norm2.load_state_dict(theirs.norm2.state_dict())
            mine.qkv.weight.copy_(theirs.mixer.in_proj_weight)
            mine.out.weight.copy_(theirs.mixer.out_proj.weight)
            mine.up.weight.copy_(theirs.feed_forward.linear1.weight)
            mine.down.weight.copy_(theirs.feed_forward.linear2.weight)
        self.norm.load_state_dict(model.stack.norm.state_dict())
        self.head.weight.copy_(model.weight_ho)
        self.head.bias.copy_(model.bias_ho)


def trained(module: nn.Module, loss: Callable[[], Tensor], dtype: torch.dtype) -> Callable[[], None]:
    def run() -> None:
        module.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            nats = loss()
        nats.backward()

    return run


def training(rounds: int) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    rows, claims = [], []
    precisions = [torch.float32, torch.bfloat16] if multiplies_bfloat16() else [torch.float32]
    for (shape, (layers, size, heads, batch, time)), dtype in product(TRAINING.items(), precisions):
        name = f"{shape}, {str(dtype).removeprefix('torch.')}"
        sizes = {"model_size": size, "num_layers": layers, "num_heads": heads, "context_length": time}
        same, ours = TransformerLM(VOCABULARY, position="learned", **sizes), TransformerLM(VOCABULARY, **sizes)
        plain = PlainGPT(VOCABULARY, layers, size, heads, time)
        plain.take(same)
        x = torch.randint(VOCABULARY, (batch, time))
        before = torch.cat([torch.full_like(x[:, :1], VOCABULARY), x[:, :-1]], 1)
        with torch.no_grad():
            torch.testing.assert_close(same(x).logits, plain(before).log_softmax(2), rtol=1e-4, atol=1e-4)

        def cross_entropy(plain: nn.Module = plain, before: Tensor = before, x: Tensor = x) -> Tensor:
            return nn.functional.cross_entropy(plain(before).flatten(0, 1), x.flatten())

        ways = {
            "plain": trained(plain, cross_entropy, dtype),
            "same": trained(same, lambda same=same, x=x: -same.log_prob(x).mean(), dtype),
            "ours": trained(ours, lambda ours=ours, x=x: -ours.log_prob(x).mean(), dtype),
        }
        try:
            peer = x_transformer(layers, size, heads, time)
            ways["x-transformers"] = trained(peer, lambda peer=peer, x=x: peer(nn.functional.pad(x, (1, 0))), dtype)
        except ImportError as error:
            print(f"x-transformers: left out, as it cannot be imported ({error})")
        seconds = interleaved(ways, rounds, clock=process_time)
        rates = {way: batch * time / statistics.median(values) for way, values in seconds.items()}
        ratio = median_ratio(seconds["plain"], seconds["same"])
        rows.append(
            {
                "part": f"training {name}",
                "ours elements/s": rates["same"],
                "plain torch.nn elements/s": rates["plain"],
                "ours ÷ plain": ratio,
                "ours with rotary positions ÷ plain": median_ratio(seconds["plain"], seconds["ours"]),
            }
        )
        claims.append(claim(f"training {name}: elements/s ÷ a plain module's, same function", ratio, ">=", 1.0, "×"))
        if "x-transformers" in seconds:
            ratio = median_ratio(seconds["x-transformers"], seconds["ours"])
            rows[-1] |= {"x-transformers elements/s": rates["x-transformers"], "rotary ÷ x-transformers": ratio}
            claims.append(claim(f"training {name}: elements/s ÷ x-transformers'", ratio, ">=", 1.0, "×"))
    return rows, claims


def generation(rounds: int, tokens: int) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    model = TransformerLM(VOCABULARY, model_size=SIZE, num_layers=LAYERS, num_heads=HEADS, context_length=tokens).eval()
    made: dict[str, Callable[[int], Callable[[], object]]] = {
        "ours": lambda tokens: lambda: model.sample(1, length=tokens),
        "torch products": lambda tokens: products(tokens, in_numpy=False),
        "NumPy products": lambda tokens: products(tokens, in_numpy=True),
        "x-transformers": x_transformers,
        "Hugging Face GPT-2": hugging_face,
    }
    ways: dict[str, Callable[[], object]] = {}
    model.sample(1, length=tokens)  # a few elements would not load the loops
    for name, make in made.items():
        try:
            make(WARM_UP)()
            ways[name] = make(tokens)
        except ImportError as error:
            print(f"{name}: left out, as it cannot be imported ({error})")
    seconds = interleaved(ways, rounds, warmup=0, clock=process_time)
    floor = min(("torch products", "NumPy products"), key=lambda way: statistics.median(seconds[way]))
    rows = [
        {"part": f"generation {LAYERS}×{SIZE}", "way": way, "elements/s": tokens / statistics.median(values)}
        for way, values in seconds.items()
    ]
    what = f"generation {LAYERS}×{SIZE}, {tokens} elements, batch 1: elements/s ÷"
    claims = [claim(f"{what} {floor}", median_ratio(seconds[floor], seconds["ours"]), ">=", 0.5, "×")]
    for name in ("x-transformers", "Hugging Face GPT-2"):
        if name in seconds:
            claims.append(claim(f"{what} {name}", median_ratio(seconds[name], seconds["ours"]), ">=", 2.5, "×"))
    return rows, claims


def products(steps: int, *, in_numpy: bool) -> Callable[[], None]:
    """The products of a step, each weight read once, and nothing else."""
    shapes = [(3 * SIZE, SIZE), (SIZE, SIZE), (4 * SIZE, SIZE), (SIZE, 4 * SIZE)] * LAYERS + [(VOCABULARY, SIZE)]
    pairs = [(torch.randn(shape), torch.randn(shape[1])) for shape in shapes]
    arrays = [(weight.numpy(), vector.numpy()) for weight, vector in pairs]

    def run() -> None:
        for _ in range(steps):
            for weight, vector in arrays if in_numpy else pairs:
                weight @ vector

    return run


def x_transformer(layers: int, size: int, heads: int, time: int) -> nn.Module:
    """A decoder of x-transformers, rotary and with torch's fused attention; called with symbols, their loss."""
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    options = {"attn_dim_head": size // heads, "attn_flash": True, "rotary_pos_emb": True}
    decoder = Decoder(dim=size, depth=layers, heads=heads, **options)
    return AutoregressiveWrapper(
        TransformerWrapper(num_tokens=VOCABULARY, max_seq_len=time, attn_layers=decoder, use_abs_pos_emb=False)
    )


def x_transformers(tokens: int) -> Callable[[], object]:
    model = x_transformer(LAYERS, SIZE, HEADS, tokens).eval()
    start = torch.zeros(1, 1, dtype=torch.long)
    return lambda: model.generate(start, tokens, cache_kv=True)


def hugging_face(tokens: int) -> Callable[[], object]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=tokens + 1,
        n_embd=SIZE,
        n_layer=LAYERS,
        n_head=HEADS,
        bos_token_id=0,
        eos_token_id=None,
    )
    model = GPT2LMHeadModel(config).eval()
    start = torch.zeros(1, 1, dtype=torch.long)
    options = {"min_new_tokens": tokens, "max_new_tokens": tokens, "do_sample": True, "pad_token_id": 0}
    return lambda: model.generate(start, attention_mask=torch.ones_like(start), **options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--part", choices=("training", "generation"), action="append", help="both by default")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows, claims = [], []
    parts = options.part or ["training", "generation"]
    if "training" in parts:
        found = training(options.rounds)
        rows, claims = rows + found[0], claims + found[1]
    if "generation" in parts:
        found = generation(options.rounds, options.tokens)
        rows, claims = rows + found[0], claims + found[1]
    publish("speed_attention", rows, claims)


if __name__ == "__main__":
    main()
