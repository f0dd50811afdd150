"""Views of the blocks of a causal Transformer reading a text: attention heads, or the gates of another mixer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor, nn

from chainrule._modes import wide
from chainrule.diagnostics._head_kinds import HeadFigures, head_figures
from chainrule.layers._causal_attention import CausalAttention
from chainrule.layers._fast_weights import FastWeights
from chainrule.layers._minimal_recurrence import MinimalRecurrence
from chainrule.models._transformer_lm import TransformerLM
from chainrule.state import leaves


@dataclass(frozen=True)
class MixerView:
    """One block's mixer on the rows that were read.

    Attributes:
        name: its class.
        heads: of softmax attention; empty for others.
        weights: (H, T, T) attention of the first row; None for others.
        kept: of the others, the share of its memory that each head or unit keeps a step, averaged over the text.
        unit: counted by `kept`, "head" or "unit".
    """

    name: str
    heads: list[HeadFigures] = field(default_factory=list)
    weights: Tensor | None = None
    kept: list[float] = field(default_factory=list)
    unit: str = "head"


@torch.no_grad()
def mixer_views(model: TransformerLM, x: Tensor, lengths: Tensor | None = None) -> tuple[list[MixerView], Tensor]:
    """Behaviour of each block, and surprise of each element.

    Args:
        model: in evaluation mode.
        x: (B, T) symbols; every row begins at the start symbol.
        lengths: (B,) real symbols of each row; None where all are.

    Returns:
        The blocks' views, the first block first, and (B, T) bits, 0 after a row's end.

    >>> model = TransformerLM(5, model_size=8, num_layers=1, num_heads=2).eval()
    >>> [view], bits = mixer_views(model, torch.tensor([[0, 1, 2, 3]]))
    >>> len(view.heads), view.weights.shape, bits.shape
    (2, torch.Size([2, 4, 4]), torch.Size([1, 4]))
    """
    counts = torch.full((len(x),), x.shape[1], device="cpu") if lengths is None else lengths
    read = torch.cat([torch.full_like(x[:, :1], model.vocab_size), x[:, :-1]], 1)
    real = torch.arange(x.shape[1], device="cpu") < counts.unsqueeze(1)
    symbols = read.masked_fill(~real, -1)
    views: list[MixerView] = []
    with _inputs(model) as inputs:
        log_probs = model(x, lengths=lengths).log_prob(x)
    for block, features in zip(model.stack.layers, inputs, strict=True):
        match mixer := block.mixer:
            case CausalAttention():
                weights = mixer.attended(features)
                heads = head_figures(weights, symbols, mixer.window)
                views.append(MixerView(type(mixer).__name__, heads, weights[0].clone()))
            case FastWeights():
                views.append(MixerView(type(mixer).__name__, kept=_means(mixer.decays(features), real)))
            case MinimalRecurrence():
                kept = _means(mixer.kept(features), real)
                views.append(MixerView(type(mixer).__name__, kept=kept, unit="unit"))
            case _:
                views.append(MixerView(type(mixer).__name__))
    return views, (-log_probs / torch.tensor(2.0, device="cpu").log()).masked_fill(~real, 0)


@dataclass(frozen=True)
class CacheSize:
    """Memory of the state of one row, bytes.

    Attributes:
        element: of each element that the caches keep; 0 where the state does not grow.
        formula: how that comes about.
        elements: most that are kept; 0 where the state does not grow.
        constant: of what does not grow.
    """

    element: int
    formula: str
    elements: int
    constant: int

    @property
    def most(self) -> int:
        """Size for a row that has read any number of elements."""
        return self.element * self.elements + self.constant


def cache_size(model: TransformerLM) -> CacheSize:
    """The memory that a row's state takes while a text is read.

    >>> size = cache_size(TransformerLM(5, model_size=8, num_layers=3, num_heads=2, window=16))
    >>> size.element, size.formula, size.elements, size.most
    (192, '2 · L · G · d · 4 = 2 · 3 · 2 · 4 · 4', 15, 2880)
    """
    mixers = [block.mixer for block in model.stack.layers]
    attention = [mixer for mixer in mixers if isinstance(mixer, CausalAttention)]
    others = [mixer for mixer in mixers if not isinstance(mixer, CausalAttention)]
    constant = sum(
        prod(leaf.shape) * leaf.element_size() for mixer in others for leaf in leaves(mixer.initial_state(1))
    )
    if not attention:
        return CacheSize(0, "", 0, constant)
    first, number = attention[0], attention[0].in_proj_weight.element_size()
    formula = f"2 · L · G · d · {number} = 2 · {len(attention)} · {first.num_kv_heads} · {first.head_size} · {number}"
    element = 2 * len(attention) * first.num_kv_heads * first.head_size * number
    return CacheSize(element, formula, first.window - 1, constant)


@contextmanager
def _inputs(model: TransformerLM) -> Iterator[list[Tensor]]:
    """Inputs of each block's mixer while the model is called, (B, T, D) each."""
    found: list[Tensor] = []

    def watch(mixer: nn.Module, given: tuple[Tensor, ...]) -> None:
        found.append(given[0])

    hooks = [block.mixer.register_forward_pre_hook(watch) for block in model.stack.layers]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _means(values: Tensor, real: Tensor) -> list[float]:
    """(B, T, N) to the mean of each of the N over real elements."""
    return [float(mean) for mean in wide(values[real]).mean(0)]
