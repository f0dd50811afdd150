"""Inspection of a causal Transformer's blocks: kinds of attention heads, and the memory of other mixers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import log
from typing import ClassVar

import torch
from torch import Tensor, nn

from chainrule.layers._causal_attention import CausalAttention
from chainrule.layers._linear_attention import FastWeights
from chainrule.layers._minimal_recurrence import MinimalRecurrence
from chainrule.models import TransformerLM
from chainrule.modes import wide

SHARE = 0.4  # minimum mean share of a head's weight that defines its kind
BROAD = 0.9  # minimum entropy of a broad head, relative to uniform attention
FARTHEST = 64  # maximum distance of a positional head


@dataclass(frozen=True)
class HeadFigures:
    """Statistics of an attention head, means over all queries."""

    kind: str  # a key of `RULES`; if several rules apply, the one with the largest score
    # the number that the rule tests: a share of the weight; for "broad" the share of the even entropy; for "mixed"
    # the largest share
    score: float
    offset: int | None  # distance at which a head of kind "position" looks; None for other kinds
    # shares of the weight by kind. For "induction" and "same token" the share beyond an even share, (on − even) / (1
    # − even), over the queries that can read such an element, because frequent symbols have a large even share
    shares: dict[str, float]
    entropy: float  # entropy of the weights, bits
    even: float  # entropy of even weights, bits
    distance: float  # distance back, averaged by weight

    RULES: ClassVar[dict[str, str]] = {
        "induction": f"at least {SHARE:g} of its weight, beyond an even share, is on elements that came after an "
        "earlier occurrence of the present symbol: what followed it then",
        "same token": f"at least {SHARE:g} of its weight, beyond an even share, is on earlier occurrences of the "
        "present symbol",
        "start": f"at least {SHARE:g} of its weight is on the start symbol, often as an attention sink",
        "present token": f"at least {SHARE:g} of its weight is on the present symbol itself",
        "previous token": f"at least {SHARE:g} of its weight is on the symbol before the present one",
        "position": f"at least {SHARE:g} of its weight is on the symbol at one distance, 2 to {FARTHEST} back",
        "broad": f"its entropy is at least {BROAD:g} of the entropy of even attention, and no rule above applies",
        "mixed": "no rule above applies",
    }
    """Rule of each kind, in words."""

    @classmethod
    def of(cls, weights: Tensor, symbols: Tensor, window: int | None = None) -> list["HeadFigures"]:
        """Classify each head by its causal attention over symbols.

        The start symbol is not a query, because it can read only itself.

        Args:
            weights: (B, H, T, T) weight of query t on symbol s ≤ t; NaN or zeros for queries in padding.
            symbols: (B, T) symbols, the start symbol first; -1 in padding.
            window: number of symbols that a query may read; None for all.

        Source: Olsson et al. 2022, "In-context learning and induction heads", for induction and previous-token heads.

        >>> symbols = torch.tensor([[9, 1, 2, 3, 1]])
        >>> before = torch.diag(torch.ones(4), -1)  # query t reads t - 1
        >>> before[0, 0] = 1
        >>> [head.kind for head in HeadFigures.of(before[None, None], symbols)]
        ['previous token']
        """
        if weights.dim() != 4 or weights.shape[2:] != (symbols.shape[1],) * 2 or len(weights) != len(symbols):
            raise ValueError(
                f"weights: expected (B, H, T, T) for symbols {tuple(symbols.shape)}, got {tuple(weights.shape)}"
            )
        real = symbols >= 0
        real[:, 0] = False
        if not real.any():
            raise ValueError("symbols: expected a query after the start symbol, got none")
        masks = key_masks(symbols, window)
        weights = wide(weights).masked_fill(~real[:, None, :, None], 0)
        visible = wide(masks["visible"].sum(2)).clamp(min=1)  # (B, T) keys that each query may read
        queries = real.sum()

        def share(mask: Tensor) -> tuple[Tensor, float]:
            """Return the mean weight on some keys, (H,), and their even share, over the queries that have such keys."""
            able = real & mask.any(2)
            count = able.sum().clamp(min=1)
            on = (weights * mask.unsqueeze(1)).sum(3).masked_fill(~able.unsqueeze(1), 0).sum((0, 2)) / count
            even = ((mask.sum(2) / visible).masked_fill(~able, 0).sum() / count).item()
            return on, even

        levels = {name: share(masks[name]) for name in ("induction", "same token", "start", "present token")}
        reach = min(FARTHEST, symbols.shape[1] - 1 if window is None else min(window, symbols.shape[1]) - 1)
        offsets = torch.stack(
            [
                weights.diagonal(-offset, 2, 3).sum((0, 2)) / real[:, offset:].sum().clamp(min=1)
                for offset in range(1, reach + 1)
            ]
            or [weights.new_zeros(weights.shape[1])]
        )
        entropy = -torch.special.xlogy(weights, weights).sum(3).sum((0, 2)) / queries / log(2)
        even = (visible.log2() * real).sum() / queries
        away = torch.arange(symbols.shape[1], device="cpu")
        distance = (weights * (away.unsqueeze(1) - away)).sum(3).sum((0, 2)) / queries
        return [
            _figures(
                {name: (on[head].item(), level) for name, (on, level) in levels.items()},
                offsets[:, head].tolist(),
                entropy[head].item(),
                even.item(),
                distance[head].item(),
            )
            for head in range(weights.shape[1])
        ]


def key_masks(symbols: Tensor, window: int | None = None) -> dict[str, Tensor]:
    """Return the keys of each rule, and all "visible" keys, as (B, T, T) booleans; see `HeadFigures.of`."""
    time = symbols.shape[1]
    visible = torch.ones(time, time, dtype=torch.bool, device="cpu").tril()
    if window is not None:
        visible = visible.triu(1 - window)
    visible = visible.expand(len(symbols), -1, -1)
    earlier = visible.tril(-1)
    same = (symbols.unsqueeze(2) == symbols.unsqueeze(1)) & (symbols >= 0).unsqueeze(2)
    after = torch.zeros_like(same)
    follows = same[:, :, :-1] & ~same[:, :, 1:]  # within a run of equal symbols the next one counts as same token
    after[:, :, 1:] = follows & torch.ones(time, time - 1, dtype=torch.bool, device="cpu").tril(-1)
    first = torch.zeros(time, dtype=torch.bool, device="cpu")
    first[0] = True
    return {
        "visible": visible,
        "induction": after & visible,
        "same token": same & earlier,
        "start": visible & first,
        "present token": visible & torch.eye(time, dtype=torch.bool, device="cpu"),
    }


def _figures(
    levels: dict[str, tuple[float, float]], offsets: list[float], entropy: float, even: float, distance: float
) -> HeadFigures:
    """Apply the rules."""
    shares = {
        name: (on - level) / (1 - level) if name in ("induction", "same token") and level < 1 else on
        for name, (on, level) in levels.items()
    }
    shares["previous token"] = offsets[0]
    farther = max(range(1, len(offsets)), key=offsets.__getitem__, default=0)
    shares["position"] = offsets[farther] if farther else 0.0
    fulfilled = [name for name in HeadFigures.RULES if shares.get(name, 0.0) >= SHARE]
    spread = entropy / even if even else 0.0
    if fulfilled:
        kind = max(fulfilled, key=shares.__getitem__)
        score = shares[kind]
    elif spread >= BROAD:
        kind, score = "broad", spread
    else:
        kind, score = "mixed", max(shares.values())
    return HeadFigures(kind, score, farther + 1 if kind == "position" else None, shares, entropy, even, distance)


@dataclass(frozen=True)
class MixerView:
    """A block's mixer on some rows; the heads of softmax attention, or how much of its memory another mixer keeps."""

    name: str  # class of the mixer
    heads: list[HeadFigures] = field(default_factory=list)  # heads of softmax attention; empty for other mixers
    weights: Tensor | None = None  # (H, T, T) attention of the first row; None for other mixers
    # share of its memory that each head or unit of another mixer keeps per step, averaged over the text
    retention: list[float] = field(default_factory=list)
    unit: str = "head"  # entries of `retention`, "head" or "unit"


@torch.no_grad()
def mixer_views(model: TransformerLM, x: Tensor, lengths: Tensor | None = None) -> tuple[list[MixerView], Tensor]:
    """Inspect each block of a model in evaluation mode on symbols (B, T); also return the bits of each, (B, T)."""
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
                heads = HeadFigures.of(weights, symbols, mixer.window)
                views.append(MixerView(type(mixer).__name__, heads, weights[0].clone()))
            case FastWeights():
                views.append(MixerView(type(mixer).__name__, retention=_means(mixer.decays(features), real)))
            case MinimalRecurrence():
                retention = _means(mixer.kept(features), real)
                views.append(MixerView(type(mixer).__name__, retention=retention, unit="unit"))
            case _:
                views.append(MixerView(type(mixer).__name__))
    return views, (-log_probs / torch.tensor(2.0, device="cpu").log()).masked_fill(~real, 0)


@contextmanager
def _inputs(model: TransformerLM) -> Iterator[list[Tensor]]:
    """Record the inputs (B, T, D) of each block's mixer while the model is called."""
    inputs: list[Tensor] = []

    def record(mixer: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        inputs.append(arguments[0])

    hooks = [block.mixer.register_forward_pre_hook(record) for block in model.stack.layers]
    try:
        yield inputs
    finally:
        for hook in hooks:
            hook.remove()


def _means(values: Tensor, real: Tensor) -> list[float]:
    """Average (B, T, N) over real elements, for each of the N."""
    return [float(mean) for mean in wide(values[real]).mean(0)]
