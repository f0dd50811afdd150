"""The one place where likelihoods become reported figures: nats are measured, everything else is made here."""

import math
from collections.abc import Mapping
from typing import Any


def bits(nats: float) -> float:
    r"""Nats as bits: :math:`\text{nats} / \ln 2`.

    >>> bits(math.log(8))
    3.0
    """
    return nats / math.log(2)


def per_element(nats: float, elements: int) -> float:
    """The mean over elements, each weighing the same.

    Raises:
        ValueError: there is no element to average over.
    """
    if elements < 1:
        raise ValueError(f"elements: expected at least 1 to average over, got {elements}: the data is empty")
    return nats / elements


def perplexity(nats: float, elements: int) -> float:
    r"""The number of equally likely symbols that would surprise as much: :math:`e^{\text{nats} / \text{elements}}`.

    Infinite where a double cannot hold it.

    >>> round(perplexity(10 * math.log(27), 10), 6)
    27.0
    """
    mean = per_element(nats, elements)
    return math.exp(mean) if mean < 709 else math.inf


def text_figures(nats: float, counts: Mapping[str, int]) -> dict[str, Any]:
    """Figures of a text, ready for JSON.

    The symbol `<unk>` replaces any text that the vocabulary lacks, so a model with few symbols has
    little to predict: report its share with every figure.

    Args:
        nats: negative log-likelihood of the whole text.
        counts: `elements`, how many of them are `unknown`, and the `characters` and `bytes` they were read from.

    >>> text_figures(8.0, {"elements": 4, "unknown": 1, "characters": 8, "bytes": 16})["unknown_share"]
    0.25
    """
    total = bits(nats)
    return {
        "bits_per_character": total / max(counts["characters"], 1),
        "bits_per_byte": total / max(counts["bytes"], 1),
        "unknown_share": counts["unknown"] / max(counts["elements"], 1),
    }


def describe_figures(figures: Mapping[str, Any]) -> str:
    """`text_figures` in words.

    >>> describe_figures({"bits_per_character": 2.0, "bits_per_byte": 1.9, "unknown_share": 0.25})
    '2.0000 bits per character, 1.9000 per byte of the text, 25.0% of the symbols <unk>'
    """
    share = figures["unknown_share"]
    unknown = f", {share:.1%} of the symbols <unk>" if share else ""
    characters, size = figures["bits_per_character"], figures["bits_per_byte"]
    return f"{characters:.4f} bits per character, {size:.4f} per byte of the text{unknown}"
