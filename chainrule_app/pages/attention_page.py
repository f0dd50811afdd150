"""Pages of attention: for each symbol of a generated sequence, and over the words of a text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from torch import Tensor

from chainrule_app.pages.attention_figures import brightened
from chainrule_app.pages.page import Content, Figure, Group, Page, Picture, Section, Shade, Table, Text, marked
from chainrule_app.readers.images.source import Pixels

if TYPE_CHECKING:
    from chainrule_app.tasks.classify.labelling import LabelledAnswer


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


_DARKEST = 5  # times an even share


_LEGEND = (
    "Darker words receive more attention: pale words an even share of their text, the darkest five times as much or "
    "more. Point at a word for its share."
)


def attention_page(answers: "Sequence[LabelledAnswer]", names: Sequence[str], lead: str) -> Page:
    """Build a page of texts whose words are shaded by attention."""
    texts = [Text(_shaded(answer, names[answer.best]), "attended") for answer in answers]
    return Page("Where the classifier looked", lead, [Text(_LEGEND, "legend"), *texts])


def _shaded(answer: "LabelledAnswer", label: str) -> Markup:
    assert answer.attention is not None
    words = [
        marked('<i style="--a:{:.0f}%" title="{:.3f}">{}</i>', 100 * strength, weight, token)
        for token, weight, strength in zip(answer.tokens, answer.attention, _strengths(answer.attention), strict=True)
    ] or [Markup('<small class="note">empty: label frequencies of training</small>')]
    head = '<b>{}</b> {:.1f}% <small class="note">line {}</small><br>'
    return marked(head, label, 100 * exp(answer.log_probs[answer.best]), answer.row.line) + Markup("\n").join(words)


def _strengths(weights: Sequence[float]) -> list[float]:
    """Scale weights to opacities: 0.8 from five times an even share, proportional below.

    >>> [round(strength, 3) for strength in _strengths([0.125] * 8)] == [0.16] * 8, _strengths([0.75, 0.25, 0, 0, 0, 0])
    (True, [0.72, 0.24, 0.0, 0.0, 0.0, 0.0])
    """
    return [round(0.8 * min(weight * len(weights) / _DARKEST, 1.0), 3) for weight in weights]
