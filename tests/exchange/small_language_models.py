"""Small language models with weights that are all different, and what the tests do with them."""

import torch

from chainrule.models import TransformerLM

SMALL = {"model_size": 16, "num_layers": 2, "num_heads": 2, "ngram_order": 1, "context_length": 220}
RECURRENT = {
    "hidden_size": 8,
    "num_layers": 1,
    "embedding_size": 6,
    "ngram_order": 1,
    "ngram_dropout": 0.0,
    "dropout": 0.0,
    "embedding_dropout": 0.0,
    "tie_weights": False,
    "adaptive_softmax": False,
    "num_members": 1,
}


def before(x: torch.Tensor, start: int) -> torch.Tensor:
    """What each element follows: the start symbol, then x without its last."""
    return torch.cat([torch.full_like(x[:, :1], start), x[:, :-1]], 1)


def greedy(model: TransformerLM, length: int) -> list[int]:
    """The likeliest symbols, one after the other."""
    return model.sample(1, length=length, temperature=0.0)[0].tolist()


def shaken(model: torch.nn.Module) -> torch.nn.Module:
    """A model whose weights are all different, biases and norms too."""
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return model.eval()
