"""Figures of a text's likelihood."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.training import Evaluation

if TYPE_CHECKING:
    from chainrule_app.tasks.text.rows import Row


def text_figures(nats: float, counts: Mapping[str, int]) -> dict[str, Any]:
    """Compute metrics of a text from its nats and the counts of elements, unknown symbols, characters and bytes.

    >>> text_figures(8.0, {"elements": 4, "unknown": 1, "characters": 8, "bytes": 16})["unknown_share"]
    0.25
    """
    columns = figures_of_texts([nats], {name: [count] for name, count in counts.items()})
    return {name: value for name, (value,) in columns.items()}


def figures_of_texts(nats: Sequence[float], counts: Mapping[str, Sequence[int]]) -> dict[str, list[float]]:
    """Compute the metrics of several texts, a column each.

    `<unk>` replaces text that the vocabulary lacks: report its share, because a small vocabulary is easy to predict.
    """
    total, divisors = np.array(nats) / math.log(2), {name: np.maximum(column, 1) for name, column in counts.items()}
    columns = {
        "bits_per_character": total / divisors["characters"],
        "bits_per_byte": total / divisors["bytes"],
        "unknown_share": np.array(counts["unknown"]) / divisors["elements"],
    }
    return {name: column.tolist() for name, column in columns.items()}


def figures_of_rows(rows: "Sequence[Row]", expected: float = 0.0) -> dict[str, Sequence[Any]]:
    """Return a column for each figure of rows, for their excess over `expected` nats per element, and for their text.

    Bits, perplexity and excess are None without elements.
    """

    measured = [Evaluation(row.nats, row.elements) if row.elements else None for row in rows]

    def known(figure: Callable[[Evaluation], float]) -> list[float | None]:
        return [None if one is None else figure(one) for one in measured]

    nats = [row.nats for row in rows]
    names = ("elements", "unknown", "characters", "bytes")
    counts = {name: [getattr(row, name) for row in rows] for name in names}
    return {
        "line": [row.line for row in rows],
        "index": [row.line - 1 for row in rows],
        "nats": nats,
        "elements": counts["elements"],
        "bits_per_element": known(lambda one: one.bits_per_element),
        "perplexity": known(lambda one: one.perplexity),
        "unknown": counts["unknown"],
        **figures_of_texts(nats, counts),
        "excess": known(lambda one: surprise(one, expected)),
        "text": [_readable(row.text) for row in rows],
    }


def _readable(text: str) -> str:
    """Replace what is no UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def surprise(measured: Evaluation, expected: float) -> float:
    """Divide the nats above the expected ones by the root of the length, so that rows of unequal length compare."""
    return (measured.nats - measured.elements * expected) / math.sqrt(measured.elements)


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
