"""A section of the report of `chainrule inspect`: a generated sequence and the attention for each symbol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

from torch import Tensor

from chainrule._app.pages.page import Content, Figure, Group, Picture, Section, Shade, Table, marked
from chainrule.data._images.source import Pixels
from chainrule.diagnostics._attention_maps import brightened


@dataclass(frozen=True)
class AttentionExample:
    """Row of the data with the generated symbols and their attention."""

    title: str
    lines: dict[str, str]
    facts: Mapping[str, Any]
    written: Sequence[str]
    nats: Sequence[float]
    weights: Tensor | None  # (T, S) attention; None for a model without
    read: Sequence[str] = ()  # the S source symbols
    image: Pixels | None = None  # (3, H, W) of 8 bits, with S regions in a square grid

    @property
    def bits(self) -> list[float]:
        return [nats / log(2) for nats in self.nats]

    @property
    def figures(self) -> dict[str, Any]:
        attention = None if self.weights is None else self.weights.tolist()
        symbols = {"symbols": list(self.written), "bits": self.bits, "attention": attention}
        return {**self.facts, "nats": sum(self.nats), **symbols}

    @property
    def section(self) -> Section:
        lines = [marked('<p><span class="note">{}</span> {}</p>', name, text) for name, text in self.lines.items()]
        exhibit = self._alignment() if self.image is None else self._looked(self.image)
        return Section(self.title, [*lines, exhibit])

    def _alignment(self) -> Table:
        weights: list[list[float]] = [[]] * len(self.written) if self.weights is None else self.weights.tolist()
        rows: list[list[Content]] = [
            [symbol, *map(Shade, shares), f"{bits:.2f}"]
            for symbol, shares, bits in zip(self.written, weights, self.bits, strict=True)
        ]
        read = () if self.weights is None else self.read
        return Table(["", *read, "bits"], rows, f"attention of {self.title}", named=True, kind="read")

    def _looked(self, image: Pixels) -> Group:
        """Show the image once per symbol, brightened by attention."""
        figures = [Figure([Picture(image.transpose(1, 2, 0), "image", filling=True)], "image")]
        for index, (symbol, bits) in enumerate(zip(self.written, self.bits, strict=True)):
            drawn: list[Picture] = []
            note = f"{bits:.2f} bits"
            if self.weights is not None:
                drawn = [Picture(brightened(image, self.weights[index]), symbol, filling=True)]
                note += f", weight up to {float(self.weights[index].max()):.2f}"
            figures.append(Figure(drawn, symbol, [note]))
        return Group("written", figures)
