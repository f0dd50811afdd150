"""The report of `chainrule inspect` on a model that writes while it attends to something."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from chainrule.data.images.source import Pixels
from chainrule.diagnostics.image_attention import brightened
from chainrule.diagnostics.report.render import render


@dataclass(frozen=True)
class AttentionExample:
    """One row of the data, and what was written of it.

    Args:
        title: of its section.
        lines: texts by name.
        written: T symbols.
        bits: surprise of each of them.
        weights: (T, S) attention; None where the model has none.
        read: the S symbols that were attended to, of a sentence.
        image: (3, H, W) of 8 bits, whose S places were attended to, a square grid; None for a sentence.
    """

    title: str
    lines: dict[str, str]
    written: Sequence[str]
    bits: Sequence[float]
    weights: Tensor | None
    read: Sequence[str] = ()
    image: Pixels | None = None

    @property
    def pixels(self) -> Pixels:
        """The image, (H, W, 3)."""
        assert self.image is not None
        return self.image.transpose(1, 2, 0)

    def looked_at(self, place: int) -> Pixels:
        """The image, bright where it was attended to when symbol `place` was written."""
        assert self.image is not None
        assert self.weights is not None
        return brightened(self.image, self.weights[place])


@dataclass(frozen=True)
class AttentionReport:
    """Everything that the page shows.

    Args:
        title: name of the run.
        model: a line about it.
        parts: parameters of each of its parts.
        finding: a sentence about its attention.
        examples: a section each.
        command: makes the page again.
    """

    title: str
    model: str
    parts: dict[str, int]
    finding: str
    examples: Sequence[AttentionExample]
    command: str


def attention_page(report: AttentionReport) -> str:
    """The whole page; the same arguments give the same page."""
    return render("attention_report.html", report=report)
