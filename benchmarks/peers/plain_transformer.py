"""A plain character Transformer: pre-norm causal blocks, learned positions, softmax; no state is carried.

    python plain_transformer.py TEXT [--size 128] [--layers 4] [--heads 4] [--context 64] [--batch 32]
        [--test-fraction 0.1] [--seconds 180] [--seed 1]

Trains on the first part of TEXT, tests on the last: nats a character, over windows that overlap by half, of which only
the second halves count, so that each character sees at least half a context.
"""

import time
from pathlib import Path

import torch
from timed_training import arguments, fit
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, size: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size, bias=False), nn.Linear(size, size, bias=False)
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(B, T, D))
        return x + self.mlp(self.norm2(x))


class CharacterLM(nn.Module):
    def __init__(self, symbols: int, size: int, layers: int, heads: int, context: int):
        super().__init__()
        self.embedding = nn.Embedding(symbols, size)
        self.positions = nn.Parameter(0.02 * torch.randn(context, size))
        self.blocks = nn.Sequential(*[Block(size, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(size)
        self.output = nn.Linear(size, symbols)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.norm(self.blocks(self.embedding(x) + self.positions[: x.shape[1]])))


def main() -> None:
    parser = arguments(__doc__, "text")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--test-fraction", type=float, default=0.1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    text = Path(options.text).read_text(encoding="utf-8")
    number = {symbol: index for index, symbol in enumerate(sorted(set(text)))}
    data = torch.tensor([number[symbol] for symbol in text])
    cut = int((1 - options.test_fraction) * len(text))
    train, test, context = data[:cut], data[cut:], options.context
    net = CharacterLM(len(number), options.size, options.layers, options.heads, context)

    def batch_loss() -> Tensor:
        x = train[torch.randint(cut - context - 1, (options.batch, 1)) + torch.arange(context + 1)]
        return F.cross_entropy(net(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())

    began = time.monotonic()
    steps = fit(net, batch_loss, options.seconds, rate=2e-3, weight_decay=0.1, betas=(0.9, 0.99))
    seconds = time.monotonic() - began
    with torch.no_grad():
        windows = test.unfold(0, context + 1, context // 2)
        losses = [
            F.cross_entropy(net(part[:, :-1]).transpose(1, 2), part[:, 1:], reduction="none")[:, context // 2 :]
            for part in windows.split(64)
        ]
    nats = torch.cat(losses).mean().item()
    print(
        f"{nats:.4f} nats/char, {steps} steps, {steps * options.batch * context} characters in {seconds:.1f} s, "
        f"{options.layers} layers of {options.size}, context {context}"
    )


if __name__ == "__main__":
    main()
