"""Language models as people write them who know nothing of the contract: a GPT, one in Hugging Face's manner, an LSTM.

Faults are attributes, so that a mutant is a subclass with one of them set.
"""

from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 5


class Block(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads, self.norm, self.second_norm = heads, nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.projection = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.mlp = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))

    def forward(self, x, mask, past):
        """x (B, T, D), mask (B or 1, 1, T, P + T), past keys and values (B, H, P, D/H) or None."""
        split = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, 2))
        q, *both = split
        k, v = both if past is None else (torch.cat(pair, 2) for pair in zip(past, both, strict=True))
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[..., -k.shape[2] :])
        x = x + self.projection(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second_norm(x)), (k, v)


class GPT(nn.Module):
    """In the manner of nanoGPT, with a cache of keys and values."""

    lookahead = 0  # symbols that the causal mask lets through too many
    position_error = 0  # of symbols after a cache
    kept: int | None = None  # symbols that a cache keeps; all of them

    def __init__(self, vocab_size=VOCABULARY, size=8, heads=2, layers=2, block_size=64):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, size), nn.Embedding(block_size, size)
        self.blocks = nn.ModuleList(Block(size, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, vocab_size, bias=False)
        self.head.weight = self.wte.weight

    def embed(self, idx, positions):
        return self.wte(idx) + self.wpe(positions)

    def masked(self, time, seen):
        """(1, 1, T, P + T) what each symbol attends to."""
        return torch.ones(time, seen + time, dtype=torch.bool).tril(seen + self.lookahead)[None, None]

    def read(self, idx, seen=0, past=None, positions=None, real=None):
        """Logits of idx (B, T) behind `seen` symbols, and keys and values; real: (B, P + T) 1 where no padding is."""
        time = idx.shape[1]
        if positions is None:
            positions = torch.arange(seen, seen + time) + (self.position_error if seen else 0)
        mask = self.masked(time, seen)
        if real is not None:
            mask = mask & real[:, None, None].bool() | torch.eye(seen + time, dtype=torch.bool)[seen:]
        x, new = self.embed(idx, positions), []
        for number, block in enumerate(self.blocks):
            x, (k, v) = block(x, mask, None if past is None else past[number])
            new.append((k, v) if self.kept is None else (k[:, :, -self.kept :], v[:, :, -self.kept :]))
        return self.head(self.norm(x)), new

    def forward(self, idx):
        return self.read(idx)[0]


class CachedGPT(GPT):
    """Its `forward` takes and returns the number of symbols read, and keys and values."""

    def forward(self, idx, cache=None):
        seen, past = cache or (0, None)
        logits, new = self.read(idx, seen, past)
        return logits, (seen + idx.shape[1], new)


class Cache:
    """Keys and values by block, which the module that reads from it writes into."""

    def __init__(self):
        self.past = None
        self.seen = 0


class CausalLM(GPT):
    """In the manner of Hugging Face: named arguments, an answer with attributes, a cache that is written into."""

    def forward(self, input_ids, attention_mask=None, position_ids=None, past_key_values=None, use_cache=None):
        cache = past_key_values or Cache()
        logits, new = self.read(input_ids, cache.seen, cache.past, position_ids, self.marked(attention_mask))
        if use_cache:
            cache.past, cache.seen = new, cache.seen + input_ids.shape[1]
        return SimpleNamespace(logits=logits, past_key_values=cache if use_cache else None)

    def marked(self, attention_mask):
        return attention_mask


class LSTM(nn.Module):
    """Returns logits and its hidden state, whose batch is the second axis."""

    def __init__(self):
        super().__init__()
        self.embedding, self.output = nn.Embedding(VOCABULARY, 6), nn.Linear(6, VOCABULARY)
        self.lstm = nn.LSTM(6, 6, num_layers=2, batch_first=True)

    def forward(self, x, hidden=None):
        features, hidden = self.lstm(self.embedding(x), hidden)
        return self.output(features), hidden


class NanoGPT(GPT):
    """As the original: all logits only with targets, else those of the last symbol."""

    def forward(self, idx, targets=None):
        logits = super().forward(idx)
        if targets is None:
            return logits[:, [-1]], None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class OneByOne(CachedGPT):
    """Refuses several symbols after a cache."""

    def forward(self, idx, cache=None):
        assert cache is None or idx.shape[1] == 1
        return super().forward(idx, cache)
