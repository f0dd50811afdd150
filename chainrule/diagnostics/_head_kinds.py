"""Kinds of attention heads: the rule that the weights of a head follow, and how closely."""

from dataclasses import dataclass
from math import log

import torch
from torch import Tensor

from chainrule._modes import wide

SHARE = 0.4  # of a head's weight, on average, that makes it one of a kind
BROAD = 0.9  # of the entropy of even attention
FARTHEST = 64  # elements back that a head of a fixed position may look

RULES = {
    "induction": f"at least {SHARE:g} of its weight, beyond an even share, is on elements that came after an earlier "
    "occurrence of the present symbol: what followed it then",
    "same token": f"at least {SHARE:g} of its weight, beyond an even share, is on earlier occurrences of the present "
    "symbol",
    "start": f"at least {SHARE:g} of its weight is on the start symbol, often as an attention sink",
    "present token": f"at least {SHARE:g} of its weight is on the present symbol itself",
    "previous token": f"at least {SHARE:g} of its weight is on the symbol before the present one",
    "position": f"at least {SHARE:g} of its weight is on the symbol at one distance, 2 to {FARTHEST} back",
    "broad": f"its entropy is at least {BROAD:g} of that of even attention, and no rule above applies",
    "mixed": "no rule above applies",
}


@dataclass(frozen=True)
class HeadFigures:
    """Behaviour of one head on the rows that were read, means over all queries.

    Attributes:
        kind: a name in `RULES`; of several rules that apply, the one with the largest number.
        score: the number that the rule looks at: a share of the weight, for "broad" of the even entropy, for "mixed"
            the largest of the others.
        offset: how far before the present symbol a head of kind "position" looks; None for the others.
        shares: of the weight by kind; of "induction" and "same token" beyond an even share, (on − even) / (1 − even),
            over the queries that have such an element to read, as frequent symbols have a large even share.
        entropy: of the weights, bits.
        even: entropy that even weights would have, bits.
        distance: elements back, averaged by weight.
    """

    kind: str
    score: float
    offset: int | None
    shares: dict[str, float]
    entropy: float
    even: float
    distance: float


def head_figures(weights: Tensor, symbols: Tensor, window: int | None = None) -> list[HeadFigures]:
    """The figures of each head, from causal attention over symbols.

    The start symbol, the first that is read, is left out as a query: it has itself alone to read.

    Args:
        weights: (B, H, T, T): how much query t reads symbol s ≤ t; rows of queries that are not real hold NaN or zeros.
        symbols: (B, T) that were read, the start symbol first; -1 after a row's end.
        window: symbols that a query may read; None for all.

    Raises:
        ValueError: shapes differ, or there is no query.

    Source: Olsson et al. 2022, "In-context learning and induction heads", for induction and previous-token heads.

    >>> symbols = torch.tensor([[9, 1, 2, 3, 1]])
    >>> before = torch.diag(torch.ones(4), -1)  # query t reads t - 1
    >>> before[0, 0] = 1
    >>> [head.kind for head in head_figures(before[None, None], symbols)]
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
        """Mean weight on some keys, (H,), and their even share, over the queries that have one of them."""
        asked = real & mask.any(2)
        count = asked.sum().clamp(min=1)
        on = (weights * mask.unsqueeze(1)).sum(3).masked_fill(~asked.unsqueeze(1), 0).sum((0, 2)) / count
        even = ((mask.sum(2) / visible).masked_fill(~asked, 0).sum() / count).item()
        return on, even

    found = {name: share(masks[name]) for name in ("induction", "same token", "start", "present token")}
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
            {name: (on[head].item(), level) for name, (on, level) in found.items()},
            offsets[:, head].tolist(),
            entropy[head].item(),
            even.item(),
            distance[head].item(),
        )
        for head in range(weights.shape[1])
    ]


def key_masks(symbols: Tensor, window: int | None = None) -> dict[str, Tensor]:
    """The keys that each rule asks for, and those that are "visible", (B, T, T) booleans; arguments as `head_figures`.

    >>> masks = key_masks(torch.tensor([[9, 1, 2, 1]]))
    >>> masks["induction"][0, 3].tolist(), masks["same token"][0, 3].tolist()
    ([False, False, True, False], [False, True, False, False])
    """
    time = symbols.shape[1]
    visible = torch.ones(time, time, dtype=torch.bool, device="cpu").tril()
    if window is not None:
        visible = visible.triu(1 - window)
    visible = visible.expand(len(symbols), -1, -1)
    earlier = visible.tril(-1)
    same = (symbols.unsqueeze(2) == symbols.unsqueeze(1)) & (symbols >= 0).unsqueeze(2)
    after = torch.zeros_like(same)
    follows = same[:, :, :-1] & ~same[:, :, 1:]  # in a run of one symbol, what follows it is the same token
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
    found: dict[str, tuple[float, float]], offsets: list[float], entropy: float, even: float, distance: float
) -> HeadFigures:
    """Apply the rules."""
    shares = {
        name: (on - level) / (1 - level) if name in ("induction", "same token") and level < 1 else on
        for name, (on, level) in found.items()
    }
    shares["previous token"] = offsets[0]
    place = max(range(1, len(offsets)), key=offsets.__getitem__, default=0)
    shares["position"] = offsets[place] if place else 0.0
    fulfilled = [name for name in RULES if shares.get(name, 0.0) >= SHARE]
    spread = entropy / even if even else 0.0
    if fulfilled:
        kind = max(fulfilled, key=shares.__getitem__)
        score = shares[kind]
    elif spread >= BROAD:
        kind, score = "broad", spread
    else:
        kind, score = "mixed", max(shares.values())
    return HeadFigures(kind, score, place + 1 if kind == "position" else None, shares, entropy, even, distance)
