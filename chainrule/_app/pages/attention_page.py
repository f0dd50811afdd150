"""A section of the report of `chainrule inspect`: a generated sequence and the attention for each symbol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

from torch import Tensor

from chainrule._app.pages.page import Content, Figure, Group, Picture, Section, Shade, Table
from chainrule._app.pages.render import marked
from chainrule.data._images.source import Pixels
from chainrule.diagnostics._attention_maps import brightened


@dataclass(frozen=True)
class AttentionExample:
    """One row of the data, the symbols generated for it, and their attention.

    Args:
        title: of its section.
        lines: texts by name.
        facts: for JSON.
        written: T symbols.
        nats: surprise of each of them.
        weights: (T, S) attention; None where the model has none.
        read: the S symbols that were attended to, of a sentence.
        image: (3, H, W) of 8 bits, whose S places were attended to, a square grid; None for a sentence.
    """

    title: str
    lines: dict[str, str]
    facts: Mapping[str, Any]
    written: Sequence[str]
    nats: Sequence[float]
    weights: Tensor | None
    read: Sequence[str] = ()
    image: Pixels | None = None

    @property
    def bits(self) -> list[float]:
        """The surprise in bits."""
        return [nats / log(2) for nats in self.nats]

    @property
    def figures(self) -> dict[str, Any]:
        """All of it for JSON."""
        attention = None if self.weights is None else self.weights.tolist()
        shown = {"symbols": list(self.written), "bits": self.bits, "attention": attention}
        return {**self.facts, "nats": sum(self.nats), **shown}

    @property
    def section(self) -> Section:
        """The example as a section of the page."""
        lines = [marked('<p><span class="note">{}</span> {}</p>', name, text) for name, text in self.lines.items()]
        shown = self._alignment() if self.image is None else self._looked(self.image)
        return Section(self.title, [*lines, shown])

    def _alignment(self) -> Table:
        weights: list[list[float]] = [[]] * len(self.written) if self.weights is None else self.weights.tolist()
        rows: list[list[Content]] = [
            [symbol, *map(Shade, shares), f"{bits:.2f}"]
            for symbol, shares, bits in zip(self.written, weights, self.bits, strict=True)
        ]
        read = () if self.weights is None else self.read
        return Table(["", *read, "bits"], rows, f"attention of {self.title}", named=True, kind="read")

    def _looked(self, image: Pixels) -> Group:
        """The image, bright where it was attended to when each symbol was written."""
        figures = [Figure([Picture(image.transpose(1, 2, 0), "image", filling=True)], "image")]
        for place, (symbol, bits) in enumerate(zip(self.written, self.bits, strict=True)):
            drawn: list[Picture] = []
            told = f"{bits:.2f} bits"
            if self.weights is not None:
                drawn = [Picture(brightened(image, self.weights[place]), symbol, filling=True)]
                told += f", weight up to {float(self.weights[place].max()):.2f}"
            figures.append(Figure(drawn, symbol, [told]))
        return Group("written", figures)
