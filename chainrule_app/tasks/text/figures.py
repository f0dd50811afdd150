"""Figures of a text's likelihood."""

from collections.abc import Mapping
from typing import Any

from chainrule.training import bits


def text_figures(nats: float, counts: Mapping[str, int]) -> dict[str, Any]:
    """Compute metrics of a text from its nats and the counts of elements, unknown symbols, characters and bytes.

    `<unk>` replaces text that the vocabulary lacks: report its share, because a small vocabulary is easy to predict.

    >>> text_figures(8.0, {"elements": 4, "unknown": 1, "characters": 8, "bytes": 16})["unknown_share"]
    0.25
    """
    total = bits(nats)
    return {
        "bits_per_character": total / max(counts["characters"], 1),
        "bits_per_byte": total / max(counts["bytes"], 1),
        "unknown_share": counts["unknown"] / max(counts["elements"], 1),
    }


def describe_figures(figures: Mapping[str, Any], *, of_characters: bool = False) -> str:
    """Describe `text_figures`, without bits per character for a line `of_characters` that already states them.

    >>> describe_figures({"bits_per_character": 2.0, "bits_per_byte": 1.9, "unknown_share": 0.25})
    '2.0000 bits per character, 1.9000 per byte of the text, 25.0% of the symbols <unk>'
    >>> describe_figures({"bits_per_character": 2.0, "bits_per_byte": 1.9, "unknown_share": 0.0}, of_characters=True)
    '1.9000 bits per byte of the text'
    """
    share = figures["unknown_share"]
    unknown = f", {share:.1%} of the symbols <unk>" if share else ""
    characters = "" if of_characters else f"{figures['bits_per_character']:.4f} bits per character, "
    return f"{characters}{figures['bits_per_byte']:.4f} {'bits ' * of_characters}per byte of the text{unknown}"
