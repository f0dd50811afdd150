"""Low-rank adapters (LoRA): training changes each weight by a product of two thin matrices, and then adds it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn

from chainrule.layers._multi_head_attention import MultiHeadAttention
from chainrule.layers._recurrent import Recurrent
from chainrule.layers._transformer_stack import ResidualBlock
from chainrule.option_error import OptionError, option


class LowRank(nn.Module):
    r"""The change of a linear layer's weight W, (M, N), while W itself is fixed (Hu et al. 2021).

    .. math:: y = W x + b + \frac{\alpha}{r} B A x

    A is (r, N), uniform at first within :math:`\pm 1/\sqrt N`. B is (M, r), zero at first, so that the layer begins as
    it was. r is at most the smaller of M and N.

    Args:
        weight: W, whose shape, format and device A and B take.
        rank: r.
        alpha: α.
        generator: draws A.

    >>> layer = nn.Linear(4, 3)
    >>> change = LowRank(layer.weight, rank=2, alpha=4.0, generator=torch.Generator().manual_seed(0))
    >>> change(torch.ones(5, 4)).shape, change.product().abs().max().item()
    (torch.Size([5, 3]), 0.0)
    """

    def __init__(self, weight: Tensor, rank: int, alpha: float, generator: torch.Generator):
        super().__init__()
        outputs, inputs = weight.shape
        self.scale = alpha / rank
        rank = min(rank, outputs, inputs)
        first = torch.rand(rank, inputs, generator=generator, dtype=torch.float64, device="cpu")
        self.a = nn.Parameter(((2 * first - 1) * inputs**-0.5).to(weight))
        self.b = nn.Parameter(weight.new_zeros(outputs, rank))

    def forward(self, x: Tensor, rows: slice | None = None) -> Tensor:
        """Return α/r · B A x, (..., M), or only the given rows."""
        b = self.b if rows is None else self.b[rows]
        return self.scale * nn.functional.linear(nn.functional.linear(x, self.a), b)

    def product(self) -> Tensor:
        """Return α/r · B A, (M, N)."""
        return self.scale * (self.b @ self.a)


@contextmanager
def adapted(model: nn.Module, rank: int | None, alpha: float | None, seed: int) -> Iterator[None]:
    """Train only low-rank changes of a model's blocks within the context; add them to the weights at its end.

    The linear layers of attention (or of what mixes elements in its place) and of feed-forward networks are changed.
    All other weights are fixed. Without a rank nothing happens.

    Args:
        model: its weights become W + α/r · B A.
        rank: r.
        alpha: α; twice the rank by default.
        seed: of the first A.
    """
    if rank is None:
        yield
        return
    layers, generator = adaptable(model), torch.Generator().manual_seed(seed)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    for weight in trained:
        weight.requires_grad_(False)
    for layer in layers:
        layer.low_rank = LowRank(_weight(layer), rank, 2.0 * rank if alpha is None else alpha, generator)
    # A hook makes prepared steps call the layer; attention adds the change of its projection itself.
    hooks = [layer.register_forward_hook(_with_change) for layer in layers if isinstance(layer, nn.Linear)]
    try:
        yield
    finally:
        with torch.no_grad():
            for layer in layers:
                _weight(layer).add_(cast(LowRank, layer.low_rank).product())
                if isinstance(layer, MultiHeadAttention):
                    layer.low_rank = None
                else:
                    del layer.low_rank
        for hook in hooks:
            hook.remove()
        for weight in trained:
            weight.requires_grad_(True)


def adaptable(model: nn.Module) -> list[nn.Linear | MultiHeadAttention]:
    """Return the layers of a model's blocks that `adapted` changes.

    Raises:
        OptionError: the model has none.
    """
    blocks = [part for part in model.modules() if isinstance(part, ResidualBlock)]
    parts = dict.fromkeys(part for block in blocks for part in block.modules())
    layers = [part for part in parts if isinstance(part, nn.Linear | MultiHeadAttention)]
    if not layers:
        kind = next((type(part) for part in model.modules() if isinstance(part, Recurrent)), type(model)).__name__
        raise OptionError(
            "lora_rank",
            f"changes the linear layers of attention and feed-forward networks, and this model ({kind}) has none",
            f"leave out {option('lora_rank')} to train all weights",
        )
    return layers


def merged(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights of a model by name, each with its low-rank change if it has one."""
    weights = dict(model.state_dict())
    for name, part in model.named_modules():
        change = getattr(part, "low_rank", None)
        if isinstance(change, LowRank):
            prefix = f"{name}." if name else ""
            own = f"{prefix}{'weight' if isinstance(part, nn.Linear) else 'in_proj_weight'}"
            weights[own] = weights[own] + change.product().detach()
            weights = {other: weight for other, weight in weights.items() if not other.startswith(f"{prefix}low_rank.")}
    return weights


def _weight(layer: nn.Linear | MultiHeadAttention) -> Tensor:
    return layer.weight if isinstance(layer, nn.Linear) else layer.in_proj_weight


def _with_change(layer: nn.Module, inputs: tuple[Tensor, ...], y: Tensor) -> Tensor:
    return y + cast(LowRank, layer.low_rank)(inputs[0])
