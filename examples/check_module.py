"""Test your own language model: here a small GPT, written without this library.

python examples/check_module.py
"""

import torch
from torch import nn

import chainrule


class GPT(nn.Module):
    """Maps symbols (B, T) to logits (B, T, V)."""

    def __init__(self, vocab_size: int = 12, size: int = 16, block_size: int = 32):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab_size, size), nn.Embedding(block_size, size)
        layer = nn.TransformerEncoderLayer(size, nhead=2, dim_feedforward=32, batch_first=True, norm_first=True)
        self.stack = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.output = nn.Linear(size, vocab_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1])
        later = places > places.unsqueeze(1)  # leave this mask out, and see what the report says
        return self.output(self.stack(self.tokens(x) + self.positions(places), mask=later))


print(chainrule.testing.check(GPT(), torch.randint(12, (4, 16))))
