"""The likelihood of a text in units that compare between levels: per character and per byte of the original."""

from collections.abc import Mapping
from typing import Any


def text_figures(nats: float, counts: Mapping[str, int]) -> dict[str, Any]:
    """Figures of a text, ready for JSON.

    A symbol `<unk>` stands for any text the vocabulary lacks and does not say which, so a model with few symbols has
    little to predict: its share belongs beside every figure.

    Args:
        nats: negative log-likelihood of the whole text.
        counts: `elements`, how many of them are `unknown`, and the `characters` and `bytes` they were read from.

    >>> text_figures(8.0, {"elements": 4, "unknown": 1, "characters": 8, "bytes": 16})["unknown_share"]
    0.25
    """
    from chainrule.training import units

    bits = units.bits(nats)
    return {
        "bits_per_character": bits / max(counts["characters"], 1),
        "bits_per_byte": bits / max(counts["bytes"], 1),
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
