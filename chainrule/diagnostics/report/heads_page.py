"""The report of `chainrule inspect` on a causal Transformer: its heads over the text that was read."""

from collections.abc import Sequence
from math import inf, log
from statistics import median
from typing import NamedTuple

import numpy as np
from torch import Tensor

from chainrule.data.images.source import Pixels
from chainrule.diagnostics.head_kinds import RULES, HeadFigures
from chainrule.diagnostics.mixer_views import CacheSize, MixerView
from chainrule.diagnostics.report.page import Subject, reading_line
from chainrule.diagnostics.report.read_text import ReadText
from chainrule.diagnostics.report.render import render
from chainrule.diagnostics.report.surprise_text import surprise_text

START = "⊢"
MOST_DRAWN = 64  # elements to a side of an image of attention
_PALE, _DARK = (247, 251, 255), (8, 48, 107)


class Looked(NamedTuple):
    """An element that the last query drawn could read, and its weight."""

    text: str
    weight: float


class HeadDrawing(NamedTuple):
    """A head, and what is drawn of it."""

    number: int
    figures: HeadFigures
    levels: Pixels
    looked: list[Looked]


class Block(NamedTuple):
    """One block of the page."""

    number: int
    view: MixerView
    heads: list[HeadDrawing]
    kept: str


def heads_page(
    views: Sequence[MixerView], cache: CacheSize, bits: Tensor, read: ReadText, lengths: Tensor, subject: Subject
) -> str:
    """The whole page; the same arguments give the same page.

    Args:
        views: of the blocks, the first first.
        cache: of the state of a row.
        bits: (B, T) surprise of the elements.
        read: the text, row for row.
        lengths: (B,) elements of its rows.
        subject: the run.
    """
    elements = [START, *("".join(pair) for pair in read.rows[0].pieces())]
    drawn = min(int(lengths[0]), MOST_DRAWN)
    blocks = [
        Block(number, view, [_drawn(view, head, elements[:drawn]) for head in range(len(view.heads))], kept_line(view))
        for number, view in enumerate(views, 1)
    ]
    given = dict.fromkeys(head.kind for view in views for head in view.heads)
    mean = float(bits.double().sum() / lengths.sum())
    return render(
        "heads.html",
        blocks=blocks,
        cache=cache,
        cache_line=cache_line(cache),
        read=read,
        subject=subject,
        reading=reading_line(read, lengths, mean),
        last=elements[drawn - 1],
        drawn=drawn,
        palette=np.linspace(_PALE, _DARK, 256).round().astype(np.uint8),
        surprise=surprise_text(bits, read, lengths),
        rules={name: RULES[name] for name in [*given, *(name for name in RULES if name not in given)]},
    )


def head_line(head: HeadFigures) -> str:
    """The kind of a head with its number.

    >>> head_line(HeadFigures("position", 0.5, 3, {}, 1.0, 2.0, 3.0))
    'position, 3 back 0.50'
    """
    where = f", {head.offset} back" if head.offset is not None else ""
    return f"{head.kind}{where} {head.score:.2f}"


def kept_line(view: MixerView) -> str:
    """Describe how much the gates of a mixer without attention weights keep; empty for softmax attention.

    >>> kept_line(MixerView("MinGRU", kept=[0.5, 0.9, 0.99], unit="unit"))
    '3 units keep 0.50 to 0.99 of their memory a step, the middle one 0.90: half is gone after 1 to 69 elements'
    >>> kept_line(MixerView("LinearAttention", kept=[1.0, 1.0]))
    '2 heads keep all of their memory: it only grows'
    """
    if view.weights is not None:
        return ""
    if not view.kept:
        return "it has neither attention weights nor gates to show"
    low, high, count = min(view.kept), max(view.kept), len(view.kept)
    named = f"{count} {view.unit}{'s' * (count != 1)}"
    if low == 1:
        return f"{named} keep all of their memory: it only grows"
    return (
        f"{named} keep {low:.2f} to {high:.2f} of their memory a step, the middle one {median(view.kept):.2f}: "
        f"half is gone after {_half_life(low)} to {_half_life(high)} elements"
    )


def cache_line(cache: CacheSize) -> str:
    """The memory of a row's state in words."""
    if not cache.element:
        return f"{cache.constant:,} bytes a row, however long the text"
    return (
        f"{cache.formula} = {cache.element:,} bytes an element, of at most W − 1 = {cache.elements:,}: "
        f"{cache.most:,} bytes a row, however long the text"
    )


def _half_life(kept: float) -> str:
    steps = inf if kept >= 1 else 0.0 if kept <= 0 else log(0.5) / log(kept)
    return f"{steps:,.0f}" if steps < 1e6 else "a million and more"


def _drawn(view: MixerView, head: int, elements: Sequence[str]) -> HeadDrawing:
    """The first elements of the first row as queries and keys, and what the last of them looked at."""
    assert view.weights is not None
    weights = view.weights[head, : len(elements), : len(elements)].double().cpu().numpy()
    levels = (np.sqrt(weights.clip(0, 1)) * 255).round().astype(np.uint8)
    looked = [Looked(text, float(weight)) for text, weight in zip(elements, weights[-1], strict=True)]
    return HeadDrawing(head + 1, view.heads[head], levels, looked)
