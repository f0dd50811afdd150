"""The diagrams of the course, one function each, in one visual language: an SVG whose colours follow the page.

Blue is what a model keeps (states, features), grey what it reads, green what it computes from them, orange what
weighs or gates, red what must not be seen or what a gradient does. Masks, weights and intervals are not drawn by
hand: the functions take them from a layer or a model of the library.
"""

import json
import re
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

WIDTH = 440
"""Units across: a phone shows a unit as 0.8 pixels, so that the smallest text, 12 units, is about 10 pixels high."""

STYLE = """
.diagram{--ink:#1f2328;--grey:#767c84;--blue:#2563a8;--orange:#c2620a;--green:#2f8f4e;--red:#c0392b;--purple:#7b4fa3}
@media (prefers-color-scheme:dark){body:not([data-theme=light]) .diagram{--ink:#e6e8eb;--grey:#9aa2ac;--blue:#6aa6e8;
--orange:#f0a04b;--green:#67c587;--red:#f0796b;--purple:#b693de}}
body[data-theme=dark] .diagram{--ink:#e6e8eb;--grey:#9aa2ac;--blue:#6aa6e8;--orange:#f0a04b;--green:#67c587;
--red:#f0796b;--purple:#b693de}
.diagram svg{display:block;width:100%;max-width:660px;height:auto;margin:0 auto}
.diagram label{display:flex;gap:.6em;justify-content:center;align-items:center;font-size:.9rem}
.diagram label input{width:10rem}
.diagram label output{min-width:3em}
.diagram p{text-align:center;max-width:none}
.diagram text{fill:var(--ink);font:14px system-ui,sans-serif;text-anchor:middle}
"""

DASHES = ' stroke-dasharray="5 4"'
Point = tuple[float, float]


class Diagram:
    """An SVG of primitives, its description for those who do not see it, and its caption."""

    def __init__(self, height: int, alt: str, caption: str):
        self.height, self.alt, self.caption, self.parts = height, alt, caption, [""]

    def text(
        self, x: float, y: float, words: str, *, size: int = 14, colour: str = "ink", anchor: str = "middle"
    ) -> None:
        """Write words around (x, y); `h_t` and `h_{t-1}` have an index."""
        spans, down = "", False
        for number, part in enumerate(re.split(r"_\{([^}]*)\}|_(\w)", words)):
            if not part:
                continue
            index = bool(number % 3)
            style = ' dy="4" font-size="75%"' if index else ' dy="-4"' if down else ""
            spans += f"<tspan{style}>{escape(part)}</tspan>"
            down = index
        self.parts.append(
            f'<text x="{x:.1f}" y="{y + size * 0.35:.1f}" style="font-size:{size}px;text-anchor:{anchor};'
            f'fill:var(--{colour})">{spans}</text>'
        )

    def box(
        self, x: float, y: float, words: str = "", *, wide: float = 54, high: float = 34, colour: str = "blue",
        fill: float = 0.14, size: int = 14, dashed: bool = False,
    ) -> None:  # fmt: skip
        """A box around (x, y)."""
        self.parts.append(
            f'<rect x="{x - wide / 2:.1f}" y="{y - high / 2:.1f}" width="{wide:.1f}" height="{high:.1f}" rx="5" '
            f'fill="var(--{colour})" fill-opacity="{fill}" stroke="var(--{colour})" stroke-width="1.5"'
            f"{DASHES * dashed}/>"
        )
        if words:
            self.text(x, y, words, size=size)

    def circle(
        self, x: float, y: float, words: str = "", *, r: float = 13, colour: str = "orange", fill: float = 0.14,
        size: int = 14,
    ) -> None:  # fmt: skip
        """A circle around (x, y)."""
        self.parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" fill="var(--{colour})" fill-opacity="{fill}" '
            f'stroke="var(--{colour})" stroke-width="1.5"/>'
        )
        if words:
            self.text(x, y, words, size=size)

    def line(
        self, *points: Point, colour: str = "grey", wide: float = 1.5, dashed: bool = False, head: bool = False,
        faint: float = 1.0,
    ) -> None:  # fmt: skip
        """A line through the points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="var(--{colour})" stroke-width="{wide}" '
            f'stroke-opacity="{faint:.2f}"{DASHES * dashed}/>'
        )
        if head:
            (x0, y0), (x, y) = points[-2:]
            length = ((x - x0) ** 2 + (y - y0) ** 2) ** 0.5
            a, b = (x - x0) / length, (y - y0) / length
            corners = [(x, y), (x - 8 * a + 4 * b, y - 8 * b - 4 * a), (x - 8 * a - 4 * b, y - 8 * b + 4 * a)]
            shape = " ".join(f"{u:.1f},{v:.1f}" for u, v in corners)
            self.parts.append(f'<polygon points="{shape}" fill="var(--{colour})"/>')

    def arrow(self, *points: Point, **style: Any) -> None:
        """A line with a head."""
        self.line(*points, head=True, **style)

    def grid(
        self, x: float, y: float, cells: Sequence[Sequence[tuple[str, float, str]]], size: float, *, letters: int = 12
    ) -> None:
        """Cells of (colour, opacity, words) from the top left corner (x, y)."""
        for row, line in enumerate(cells):
            for column, (colour, opacity, words) in enumerate(line):
                left, top = x + column * size, y + row * size
                self.parts.append(
                    f'<rect x="{left:.1f}" y="{top:.1f}" width="{size:.1f}" height="{size:.1f}" '
                    f'fill="var(--{colour})" fill-opacity="{opacity:.2f}" stroke="var(--grey)" stroke-width="0.8"/>'
                )
                if words:
                    self.text(left + size / 2, top + size / 2, words, size=letters)

    def frame(self, x: float, y: float, wide: float, high: float, *, colour: str = "ink", thick: float = 2.5) -> None:
        """An empty rectangle from the top left corner (x, y)."""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="none" '
            f'stroke="var(--{colour})" stroke-width="{thick}"/>'
        )

    def svg(self) -> str:
        """The picture alone."""
        return (
            f'<svg viewBox="0 0 {WIDTH} {self.height}" role="img" aria-label="{escape(self.alt)}" '
            f'xmlns="http://www.w3.org/2000/svg">{"".join(self.parts)}</svg>'
        )

    def _repr_html_(self) -> str:
        caption = f'<figcaption><p><span class="caption-text">{escape(self.caption)}</span></p></figcaption>'
        return f'<figure class="diagram align-default"><style>{STYLE}</style>{self.svg()}{caption}</figure>'


def cells(
    mask: Tensor, yes: str = "blue", words: Callable[[int, int], str] = lambda row, column: ""
) -> list[list[tuple[str, float, str]]]:
    """The cells of a mask, (rows, columns) booleans or shares of 1."""
    return [
        [(yes, 0.08 + 0.72 * value if value else 0.0, words(row, column)) for column, value in enumerate(line)]
        for row, line in enumerate(mask.to(torch.float64).tolist())
    ]


# Recurrence


def unrolled() -> Diagram:
    """Forward pass and backpropagation through time."""
    d = Diagram(
        292,
        "Four copies of a recurrent network in a row. Grey arrows carry states from left to right; red arrows carry "
        "gradients from each loss down and from right to left.",
        "A network unrolled over four steps. Forward (grey): every step applies the same weights. Backward (red): the "
        "total gradient at a state is its own local gradient plus what the next state passes back.",
    )
    places = [95 + 98 * t for t in range(4)]
    d.circle(24, 135, "h_0", r=15, colour="grey")
    for t, x in enumerate(places, 1):
        before = places[t - 2] + 27 if t > 1 else 39
        d.arrow((before, 127), (x - 27, 127))
        d.text((before + x - 27) / 2, 113, "W_{hh}", size=12)
        if t > 1:
            d.arrow((x - 27, 143), (before, 143), colour="red", dashed=True)
            d.text((before + x - 27) / 2, 160, f"J_{t}ᵀδ_{t}", size=12, colour="red")
        d.arrow((x, 215), (x, 152))
        d.text(x + 6, 190, "W_{ih}", size=12, anchor="start")
        d.circle(x, 230, f"x_{t}", r=15, colour="grey")
        d.box(x, 135, f"h_{t}")
        d.arrow((x - 8, 118), (x - 8, 56))
        d.arrow((x + 8, 56), (x + 8, 118), colour="red", dashed=True)
        d.text(x + 14, 88, f"g_{t}", size=12, colour="red", anchor="start")
        d.circle(x, 40, f"ℓ_{t}", r=15, colour="green")
    d.text(WIDTH / 2, 274, "L = w_1ℓ_1 + w_2ℓ_2 + w_3ℓ_3 + w_4ℓ_4", size=13)
    return d


def lstm_cell() -> Diagram:
    """Input, forget and output gate, and the carousel."""
    d = Diagram(
        310,
        "An LSTM cell. The cell state runs along the top through a product with the forget gate and a sum with the "
        "gated candidate; the output gate multiplies its tanh.",
        "LSTM. The cell (blue) meets one product and one sum, and no matrix: this is the carousel. The three gates "
        "(orange) and the candidate (green) all read the same two vectors.",
    )
    d.arrow((42, 50), (398, 50), colour="blue", wide=3)
    d.text(22, 50, "c_{t-1}")
    d.text(418, 50, "c_t")
    for x, gate, function, colour in (
        (100, "f_t", "σ", "orange"), (180, "i_t", "σ", "orange"), (270, "g_t", "tanh", "green"),
        (350, "o_t", "σ", "orange"),
    ):  # fmt: skip
        d.arrow((x, 252), (x, 217))
        d.box(x, 200, function, wide=52, colour=colour)
        d.text(x + 9, 168, gate, size=13, anchor="start")
    d.line((42, 252), (350, 252))
    d.text(22, 252, "h_{t-1}")
    d.arrow((70, 282), (70, 253))
    d.text(70, 294, "x_t")
    d.arrow((100, 183), (100, 64), colour="orange")
    d.arrow((180, 183), (180, 120), (212, 120), colour="orange")
    d.arrow((270, 183), (270, 120), (238, 120), colour="green")
    d.arrow((225, 107), (225, 64), colour="green")
    d.arrow((350, 50), (350, 68), colour="blue")
    d.box(350, 82, "tanh", wide=46, high=26)
    d.arrow((350, 95), (350, 112), colour="blue")
    d.arrow((350, 183), (350, 138), colour="orange")
    d.arrow((363, 125), (398, 125), colour="blue", wide=2)
    d.text(418, 125, "h_t")
    for x, y, sign in ((100, 50, "×"), (225, 50, "+"), (225, 120, "×"), (350, 125, "×")):
        d.circle(x, y, sign, colour="ink", fill=0.1, size=16)
    d.text(165, 30, "f_t ⊙ c_{t-1}", size=12)
    d.text(290, 30, "+ i_t ⊙ g_t", size=12)
    return d


def gru_cell() -> Diagram:
    """Reset and update gate."""
    d = Diagram(
        300,
        "A GRU cell. The state runs along the top through a product with z and a sum with the candidate times one "
        "minus z; the reset gate acts on what the candidate reads of the state.",
        "GRU with the reset after the product. One gate, z, decides how much of the old state stays and how much of "
        "the candidate enters, so the two shares always sum to one.",
    )
    d.arrow((42, 50), (398, 50), colour="blue", wide=3)
    d.text(22, 50, "h_{t-1}")
    d.text(418, 50, "h_t")
    for x, gate, function, colour in (
        (100, "z_t", "σ", "orange"),
        (205, "r_t", "σ", "orange"),
        (330, "n_t", "tanh", "green"),
    ):
        d.arrow((x, 246), (x, 217))
        d.box(x, 200, function, wide=52, colour=colour)
        d.text(x + 9, 168, gate, size=13, anchor="start")
    d.line((42, 246), (330, 246))
    d.text(22, 246, "h_{t-1}", size=13)
    d.arrow((70, 274), (70, 247))
    d.text(70, 286, "x_t")
    d.arrow((60, 50), (60, 130), (192, 130), colour="blue")
    d.text(140, 117, "W_{hn} h_{t-1}", size=12)
    d.arrow((205, 183), (205, 143), colour="orange")
    d.arrow((218, 130), (258, 130), (258, 200), (304, 200), colour="blue")
    d.arrow((100, 183), (100, 64), colour="orange")
    d.arrow((100, 90), (317, 90), colour="orange")
    d.text(210, 77, "1 − z_t", size=12)
    d.arrow((330, 183), (330, 104), colour="green")
    d.arrow((330, 77), (330, 64), colour="green")
    for x, y, sign in ((100, 50, "×"), (330, 50, "+"), (330, 90, "×"), (205, 130, "×")):
        d.circle(x, y, sign, colour="ink", fill=0.1, size=16)
    d.text(180, 30, "z_t ⊙ h_{t-1}", size=12)
    return d


# Sequence tasks


def sequence_types() -> Diagram:
    """The five shapes of tasks."""
    d = Diagram(
        370,
        "Five small networks: one to one, one to many, many to one, many to many of equal length, and encoder-decoder.",
        "Five shapes of a task. Grey: inputs, blue: states, green: outputs. A decoder (dashed) reads its own previous "
        "output as its next input.",
    )

    def network(left: float, top: float, title: str, reads: str, writes: str, example: str, back: str = "") -> None:
        """A column for each character; x in `reads` has an input, y in `writes` an output, < in `back` a way back."""
        places = [left + 17 + 44 * column for column in range(len(reads))]
        middle = (places[0] + places[-1]) / 2
        d.text(middle, top, title, size=13)
        for column, x in enumerate(places):
            d.box(x, top + 72, wide=26, high=22)
            if column:
                d.arrow((places[column - 1] + 13, top + 72), (x - 13, top + 72))
            if reads[column] == "x":
                d.box(x, top + 116, wide=20, high=18, colour="grey")
                d.arrow((x, top + 107), (x, top + 83))
            if writes[column] == "y":
                d.box(x, top + 28, wide=20, high=18, colour="green")
                d.arrow((x, top + 61), (x, top + 37))
            if back[column : column + 1] == "<":
                d.arrow(
                    (places[column - 1] + 10, top + 28), (x - 20, top + 28), (x - 20, top + 100), (x, top + 100),
                    (x, top + 83), dashed=True, colour="green",
                )  # fmt: skip
        d.text(middle, top + 142, example, size=12, colour="grey")

    network(14, 16, "one–one", "x", "y", "label")
    network(112, 16, "one–many", "x__", "yyy", "image → words", " <<")
    network(300, 16, "many–one", "xxx", "__y", "review → mood")
    network(14, 216, "many–many", "xxx", "yyy", "words → tags")
    network(190, 216, "encoder–decoder", "xxx__", "__yyy", "sentence → sentence", "   <<")
    return d


def teacher_forcing() -> Diagram:
    """What a decoder reads in training and when it writes alone."""
    d = Diagram(
        330,
        "Two rows of decoder steps. Above, each step reads the true previous word; below, each step reads the word "
        "that the model itself wrote, and an error at the second step is read by all later ones.",
        "Training reads the truth (above), writing alone reads its own words (below). The wrong word at step 2 is an "
        "input that training never showed: exposure bias.",
    )
    for top, title, written, read in (
        (20, "training: teacher forcing", ["two", "six", "men", "."], ["<sos>", "two", "old", "men"]),
        (186, "writing alone: free running", ["two", "six", "six", "six"], ["<sos>", "two", "six", "six"]),
    ):
        free = top > 100
        d.text(10, top - 4, title, size=13, anchor="start")
        for t in range(4):
            x = 60 + 106 * t
            wrong = written[t] == "six"
            d.text(x, top + 24, written[t], size=13, colour="red" if wrong else "ink")
            d.arrow((x, top + 56), (x, top + 34))
            d.box(x, top + 73, f"h_{t + 1}", wide=46)
            d.arrow((x, top + 114), (x, top + 91))
            d.text(x, top + 124, read[t], size=13, colour="red" if free and read[t] == "six" else "grey")
            if t:
                d.arrow((x - 83, top + 73), (x - 24, top + 73))
                if free:
                    d.arrow(
                        (x - 86, top + 24), (x - 52, top + 24), (x - 52, top + 124), (x - 26, top + 124), dashed=True,
                        colour="green",
                    )  # fmt: skip
    return d


def trellis(crf: Any, emissions: Tensor, tags: Sequence[str]) -> Diagram:
    """The paths of a chain of tags, with the best one."""
    steps, count = emissions.shape
    path = crf.decode(emissions[None])[0].tolist()
    marginals = crf.marginals(emissions[None])[0].tolist()
    d = Diagram(
        26 + 62 * count,
        f"A lattice of {count} tags at {steps} places; the best path is drawn in bold.",
        f"All {count**steps} tag sequences are paths through one lattice. The forward algorithm adds up the paths "
        "that reach a node, Viterbi keeps the best of them (bold). Numbers: marginals of the library's CRF.",
    )
    across = [92 + (WIDTH - 130) / (steps - 1) * t for t in range(steps)]
    down = [46 + 62 * k for k in range(count)]
    for t in range(1, steps):
        for j in range(count):
            for k in range(count):
                best = (path[t - 1], path[t]) == (j, k)
                d.line(
                    (across[t - 1] + 22, down[j]), (across[t] - 22, down[k]), colour="blue" if best else "grey",
                    wide=4 if best else 1, faint=1 if best else 0.6,
                )  # fmt: skip
    for k, tag in enumerate(tags):
        d.text(8, down[k], tag, size=12, anchor="start")
        for t in range(steps):
            on = path[t] == k
            d.circle(across[t], down[k], f"{marginals[t][k]:.2f}", r=21, size=12, colour="blue" if on else "grey")
    for t in range(steps):
        d.text(across[t], 12, f"t = {t + 1}", size=12, colour="grey")
    return d


def attention_decoder() -> Diagram:
    """An encoder, its memory and a decoder that looks back."""
    d = Diagram(
        330,
        "An encoder turns four source words into a memory of four vectors; a decoder state weighs them, and their "
        "weighted sum enters the next word.",
        "A decoder with attention. Before each word, the state is compared with every vector of the memory; the "
        "weights sum to one, and the sum of the weighted vectors joins the state.",
    )
    weights, words = (0.05, 0.1, 0.8, 0.05), ("vier", "und", "zwanzig", "<eos>")
    places = [60 + 106 * s for s in range(4)]
    for s, x in enumerate(places):
        d.text(x, 314, words[s], size=13, colour="grey")
        d.arrow((x, 302), (x, 283))
        d.box(x, 266, f"m_{s + 1}", wide=50)
        if s:
            d.arrow((places[s - 1] + 25, 261), (x - 25, 261))
            d.arrow((x - 25, 271), (places[s - 1] + 25, 271))
        d.line((x, 248), (220, 187), colour="orange", wide=1 + 8 * weights[s], faint=0.35 + 0.6 * weights[s])
        d.text(x + (30, -4, 14, -22)[s], 222, f"α_{s + 1}", size=12, colour="orange")
    d.circle(220, 174, "Σ", r=14)
    d.arrow((220, 160), (220, 123))
    d.text(230, 143, "z_t", size=13, anchor="start")
    d.box(220, 105, "h_t", wide=60)
    d.box(80, 105, "h_{t-1}", wide=60)
    d.arrow((110, 105), (190, 105))
    d.box(360, 105, "h_{t+1}", wide=60, dashed=True)
    d.arrow((250, 105), (330, 105))
    d.arrow((220, 87), (220, 50))
    d.text(220, 36, "twenty", size=14, colour="green")
    d.arrow((250, 36), (300, 36), (300, 150), (350, 150), (350, 123), colour="green", dashed=True)
    d.text(120, 60, "p(y_t | y_{<t}, x)", size=13)
    return d


# Masks


def made_masks(made: Any) -> Diagram:
    """The network of a MADE with one hidden layer, and its masks."""
    first, last = made.hidden[0].mask.bool(), made.output.mask.bool()
    units, columns = first.shape
    degree = (made.order.argsort() + 1).tolist()
    own = [int(row.nonzero().numel() and max(degree[j] for j in row.nonzero()[:, 0].tolist())) for row in first]
    target = degree.index(columns - 1)  # the column before the last in the order
    d = Diagram(
        444,
        f"A network of {columns} inputs, {units} hidden units and {columns} outputs with masked connections, and the "
        "two masks and their product as grids.",
        f"A MADE of the library with the order {[1 + int(i) for i in made.order]}. Numbers: degrees. Blue: every path "
        f"into output {target + 1}. Below: both masks, and their product, which says what each output sees.",
    )

    def across(count: int, one: int) -> float:
        return 50 + (WIDTH - 100) / (count - 1) * one

    used = last[target]
    for k in range(units):
        for j in range(columns):
            if first[k, j]:
                on = bool(used[k])
                d.line((across(columns, j), 205), (across(units, k), 133), colour="blue" if on else "grey",
                       wide=1.8 if on else 0.8, faint=0.9 if on else 0.5)  # fmt: skip
        for i in range(columns):
            if last[i, k]:
                on = i == target
                d.line((across(units, k), 107), (across(columns, i), 47), colour="blue" if on else "grey",
                       wide=1.8 if on else 0.8, faint=0.9 if on else 0.5)  # fmt: skip
    for j in range(columns):
        x = across(columns, j)
        d.circle(x, 218, str(degree[j]), colour="grey")
        d.text(x, 244, f"x_{j + 1}", size=13)
        d.circle(x, 34, str(degree[j]), colour="green")
        d.text(x, 10, f"p(x_{j + 1} | …)", size=12)
    for k in range(units):
        d.circle(across(units, k), 120, str(own[k]), colour="blue")
    size = 17
    for left, mask, title in (
        (30, first, "M: hidden × input"), (190, last, "M^V: output × hidden"),
        (348, last.double() @ first.double() > 0, "product"),
    ):  # fmt: skip
        d.text(left + mask.shape[1] * size / 2, 270, title.replace("^V", "ⱽ"), size=12)
        d.grid(left, 284, cells(mask), size)
    return d


def kernel_masks(layers: dict[str, Any], coloured: dict[str, Any]) -> Diagram:
    """Type A and type B, in space and between colours."""
    d = Diagram(
        236,
        "Four grids: the kernels of type A and B, whose centre is hidden in A and open in B, and the centre tap "
        "between the colours red, green and blue, strictly triangular in A and with its diagonal in B.",
        "Masks of the library's MaskedConv2d. Left: a kernel of 5×5; the frame marks the pixel that is predicted. "
        "Right: the tap at that pixel between colours, each row an output.",
    )
    for left, (kind, layer) in zip((8, 128), layers.items(), strict=True):
        mask = layer.mask[0, 0]
        d.text(left + 2.5 * 21, 20, f"type {kind}", size=13)
        d.grid(left, 38, cells(mask), 21)
        d.frame(left + 42, 80, 21, 21)
    for left, (kind, layer) in zip((266, 366), coloured.items(), strict=True):
        middle = layer.mask.shape[2] // 2
        mask = layer.mask[:, :, middle, middle]
        d.text(left + 33, 20, f"{kind}, colours", size=13)
        d.grid(left, 58, cells(mask, "orange"), 22)
        for place, name in enumerate("RGB"):
            d.text(left + 22 * place + 11, 48, name, size=12)
            d.text(left - 8, 58 + 22 * place + 11, name, size=12)
    d.text(8, 172, "A: the first layer, which reads the image.", size=12, anchor="start")
    d.text(8, 194, "B: every later layer. Its input at this pixel has not seen the pixel.", size=12, anchor="start")
    d.text(8, 216, "Colours are drawn in the order R, G, B, so G may read R.", size=12, anchor="start")
    return d


def blind_spot(depths: Tensor, row: int, column: int) -> Diagram:
    """From which depth on a stack of masked convolutions sees each pixel; 0 is never."""
    height, width = depths.shape
    size, deepest = 400 / width, int(depths.max())

    def colour(i: int, j: int) -> tuple[str, float, str]:
        depth = int(depths[i, j])
        if depth:
            return "blue", 0.75 - 0.6 * (depth - 1) / deepest, str(depth)
        return ("red", 0.4, "") if (i, j) < (row, column) else ("grey", 0.0, "")

    d = Diagram(
        round(height * size) + 30,
        "A grid of pixels with the number of layers after which each is seen; a staircase of pixels to the upper right "
        "is never seen.",
        f"How the blind spot arises: the number of layers (A, then B, each 3×3) after which the framed pixel sees a "
        f"pixel. A step to the right costs a step up, so the {int((depths == 0)[:row].sum())} red pixels above are "
        "never seen.",
    )
    d.grid(20, 10, [[colour(i, j) for j in range(width)] for i in range(height)], size)
    d.frame(20 + column * size, 10 + row * size, size, size)
    return d


def gated_stacks(reached: Tensor, row: int, column: int) -> Diagram:
    """A layer of a gated PixelCNN, and what its two stacks see."""
    height, width = reached.shape
    size = 200 / width
    d = Diagram(
        352,
        "A vertical stack and a horizontal stack side by side; the vertical one feeds the horizontal one. Below, the "
        "rows above a pixel belong to the vertical stack and the pixels to its left to the horizontal stack.",
        "A layer of a gated PixelCNN. The vertical stack (blue) reads rows above, the horizontal stack (green) reads "
        "pixels to the left and the vertical stack, a row above it. Below, by derivatives of the library's model.",
    )
    for x, title, kernel, colour in (
        (100, "vertical stack", "rows above", "blue"),
        (330, "horizontal stack", "left, type B", "green"),
    ):
        d.text(x, 16, title, size=13)
        d.arrow((x, 32), (x, 47))
        d.box(x, 64, kernel, wide=120, colour=colour, size=13)
        d.arrow((x, 81), (x, 103))
        d.box(x, 120, "tanh ⊙ σ", wide=90, colour="orange", size=13)
        d.arrow((x, 137), (x, 188))
    d.arrow((160, 64), (270, 64), colour="blue")
    d.text(215, 50, "one row down", size=12)
    d.line((330, 38), (420, 38), (420, 160), (343, 160), head=True)
    d.circle(330, 160, "+", colour="ink", fill=0.1, size=16)
    d.text(378, 148, "residual", size=12)

    def colour(i: int, j: int) -> tuple[str, float, str]:
        if not reached[i, j]:
            return "grey", 0.0, ""
        return ("blue" if i < row else "green"), 0.5, ""

    d.grid(120, 206, [[colour(i, j) for j in range(width)] for i in range(height)], size)
    d.frame(120 + column * size, 206 + row * size, size, size)
    return d


def recurrent_rows(fields: dict[str, Tensor], row: int, column: int) -> Diagram:
    """Row LSTM and Diagonal BiLSTM: the step at which each pixel is computed, and what one pixel sees."""
    height, width = next(iter(fields.values())).shape
    size = 200 / width
    d = Diagram(
        round(height * size) + 78,
        "Two grids numbered by steps: rows for the Row LSTM, diagonals for the Diagonal BiLSTM. The first sees a "
        "triangle above the framed pixel, the second sees everything before it.",
        "Equal numbers are computed at the same time: whole rows (left), or diagonals of the skewed image (right, the "
        "direction from the left). Blue: what the framed pixel sees, by derivatives of the library's models.",
    )
    for left, (name, seen) in zip((12, 228), fields.items(), strict=True):
        diagonal = name.startswith("Diagonal")
        d.text(left + 100, 14, name, size=13)
        d.grid(
            left, 32,
            [
                [("blue" if seen[i, j] else "grey", 0.5 if seen[i, j] else 0.0, str(i + j + 1 if diagonal else i + 1))
                 for j in range(width)]
                for i in range(height)
            ],
            size,
        )  # fmt: skip
        d.frame(left + column * size, 32 + row * size, size, size)
        bottom = 32 + height * size + 12
        d.text(
            left + 100,
            bottom + 12,
            f"{height + width - 1 if diagonal else height} steps for {height * width} pixels",
            size=12,
        )
    return d


def dilated(stack: Any) -> Diagram:
    """Causal convolutions whose dilations double, with the tree that one output reads."""
    layers = list(stack.layers)
    reach = 1 + sum((layer.weight.shape[2] - 1) * layer.dilation for layer in layers)
    height = 48 * len(layers) + 70

    def across(t: int) -> float:
        return 58 + (WIDTH - 76) / (reach - 1) * t

    def level(layer: int) -> float:
        return height - 44 - 48 * layer

    d = Diagram(
        height,
        f"{len(layers)} layers above a row of {reach} samples; the connections of the last output form a tree that "
        "reaches every sample.",
        f"{len(layers)} layers of the library's WaveNet with dilations "
        f"{', '.join(str(layer.dilation) for layer in layers)}: one output reads {reach} samples. "
        f"Without dilation it would read {1 + sum(layer.weight.shape[2] - 1 for layer in layers)}.",
    )
    wanted, read = {reach - 1}, []
    for layer in reversed(layers):
        edges = {(t, t - tap * layer.dilation) for t in wanted for tap in range(layer.weight.shape[2])}
        read.insert(0, edges)
        wanted = {early for _, early in edges}
    for number, edges in enumerate(read):
        for t in range(layers[number].dilation, reach):
            for early in (t, t - layers[number].dilation):
                on = (t, early) in edges
                d.line((across(early), level(number) - 6), (across(t), level(number + 1) + 6),
                       colour="blue" if on else "grey", wide=2 if on else 0.7, faint=1 if on else 0.35)  # fmt: skip
    for number in range(len(layers) + 1):
        on = {early for _, early in read[number]} if number < len(layers) else {reach - 1}
        for t in range(reach):
            d.circle(across(t), level(number), r=6, colour="blue" if t in on else "grey", fill=0.7 if t in on else 0.1)
        if number:
            d.text(
                4, level(number) + 24, f"d = {layers[number - 1].dilation}", size=12, colour="orange", anchor="start"
            )
    d.text(WIDTH / 2, height - 14, "x_{t-" + str(reach - 1) + "}, …, x_t", size=13)
    return d


# Attention


def attention_lookup(query: Tensor, keys: Tensor, values: Tensor, names: Sequence[str]) -> Diagram:
    """One query, its scores, its weights and the mean of the values."""
    scores = keys @ query / len(query) ** 0.5
    weights = scores.softmax(0)
    read = weights @ values
    d = Diagram(
        102 + 44 * len(keys),
        f"A query is compared with {len(keys)} keys; each key has a score, a weight as a bar, and a value.",
        "Attention as a soft look-up: scores compare the query with every key, the softmax turns them into weights "
        "that sum to one, and the result is the weighted mean of the values.",
    )

    def vector(x: Tensor) -> str:
        return "(" + ", ".join(f"{float(v):.1f}" for v in x) + ")"

    d.text(8, 20, f"query q = {vector(query)}", anchor="start", colour="blue")
    for x, title, anchor in (
        (8, "key", "start"),
        (186, "score", "end"),
        (205, "weight", "start"),
        (432, "value", "end"),
    ):
        d.text(x, 52, title, size=12, colour="grey", anchor=anchor)
    for row, name in enumerate(names):
        y = 80 + 44 * row
        d.text(8, y - 8, name, size=13, anchor="start")
        d.text(8, y + 10, vector(keys[row]), size=12, anchor="start", colour="grey")
        d.text(186, y, f"{float(scores[row]):.2f}", size=13, anchor="end")
        d.box(205 + 55 * float(weights[row]), y, wide=110 * float(weights[row]), high=18, colour="orange", fill=0.5)
        d.text(211 + 110 * float(weights[row]), y, f"{float(weights[row]):.2f}", size=12, anchor="start")
        d.text(432, y, vector(values[row]), size=13, anchor="end")
    bottom = 80 + 44 * len(names) + 4
    d.line((8, bottom - 16), (432, bottom - 16))
    d.text(8, bottom + 4, "sum of weight × value", size=13, anchor="start")
    d.text(432, bottom + 4, vector(read), anchor="end", colour="green")
    return d


def multi_head(weights: Tensor) -> Diagram:
    """Heads side by side; weights (H, T, T) are those of a layer."""
    heads, steps, _ = weights.shape
    wide = WIDTH / heads
    size = min(16.0, (wide - 14) / steps)
    d = Diagram(
        360,
        f"Features are projected to {heads} heads; each has its own map of weights below the diagonal; the heads' "
        "results are joined by one matrix.",
        f"{heads} heads of a causal attention layer of the library, untrained, on {steps} elements: row t holds the "
        "weights of query t. What lies above the diagonal is masked.",
    )
    d.box(WIDTH / 2, 336, "features, (T, D)", wide=180, high=30)
    d.box(WIDTH / 2, 24, "y, (T, D)", wide=180, high=30, colour="green")
    d.box(WIDTH / 2, 76, "[head_1, …, head_H] W_o", wide=250, high=30, colour="orange")
    d.arrow((WIDTH / 2, 61), (WIDTH / 2, 40))
    for head in range(heads):
        x = wide * (head + 0.5)
        d.arrow((WIDTH / 2, 321), (x, 299))
        d.box(x, 284, "Q, K, V", wide=74, high=28, size=13)
        d.arrow((x, 270), (x, 148 + steps * size + 8))
        d.grid(x - steps * size / 2, 148, cells(weights[head], "orange"), size)
        d.arrow((x, 134), (x, 92))
        d.text(x - 6, 140, f"head {head + 1}", size=12, anchor="end")
    return d


def transformer(source: Tensor, past: Tensor, across: Tensor) -> Diagram:
    """Encoder and decoder, with the three masks as (T, S) booleans."""
    d = Diagram(
        452,
        "A Transformer encoder on the left, a decoder on the right with causal self-attention, cross-attention to the "
        "encoder's memory and a small network, and three grids of what each attention may read.",
        "Encoder and decoder. Each branch adds to the stream (pre-norm). Grids: what a row may read; the encoder reads "
        "everything, the decoder its past, cross-attention the whole source without padding.",
    )
    for x, title, branches in (
        (30, "encoder", ((290, "self-attention", "blue"), (210, "MLP", "green"))),
        (
            262,
            "decoder",
            ((290, "causal self-attention", "blue"), (210, "cross-attention", "orange"), (130, "MLP", "green")),
        ),
    ):
        middle = x + 80
        d.line((x, 372), (x, branches[-1][0] - 40), wide=3, colour="blue", faint=0.6)
        for y, words, colour in branches:
            d.arrow((x, y + 34), (middle, y + 34), (middle, y + 16))
            d.box(middle, y, words, wide=136, high=30, colour=colour, size=13)
            d.arrow((middle, y - 15), (middle, y - 32), (x + 10, y - 32))
            d.circle(x, y - 32, "+", colour="ink", r=9, fill=0.1, size=13)
        d.text(x - 10, 388, "embedding + position", size=12, anchor="start")
        d.text(x - 10, 408, {"encoder": "source x", "decoder": "y_{<t}"}[title], size=13, colour="grey", anchor="start")
        d.text(middle, 16, title, size=14)
    d.text(42, 150, "memory m", size=13, colour="blue", anchor="start")
    d.arrow((30, 170), (30, 132), (222, 132), (222, 210), (272, 210), colour="orange")
    d.arrow((262, 90), (262, 60))
    d.text(252, 46, "softmax: p(y_t | y_{<t}, x)", size=13, anchor="start")
    for left, mask, colour, title in (
        (20, source, "blue", "source"),
        (86, across, "orange", "cross"),
        (152, past, "blue", "past"),
    ):
        d.grid(left, 40, cells(mask, colour), 48 / mask.shape[1])
        d.text(left + 24, 102, title, size=12)
    d.text(WIDTH / 2, 438, "N blocks of each", size=12, colour="grey")
    return d


def vision_transformer(image: Tensor, patch: int) -> Diagram:
    """An image, (H, W) in [0, 1], its patches as tokens, and the class token."""
    side = image.shape[0] // patch
    d = Diagram(
        360,
        f"An image cut into {side * side} patches; each becomes a token; a class token joins them; blocks of attention "
        "follow; the class token alone is read.",
        f"A Vision Transformer. {side * side} patches of {patch}×{patch} pixels become tokens with learnt positions; "
        "the class token collects what the label needs.",
    )
    size = 128 / image.shape[0]
    d.grid(16, 212, cells(image, "ink"), size)
    for band in range(side + 1):
        d.line((16 + 128 / side * band, 212), (16 + 128 / side * band, 340), colour="orange", wide=2)
        d.line((16, 212 + 128 / side * band), (144, 212 + 128 / side * band), colour="orange", wide=2)
    d.arrow((152, 276), (196, 276), colour="orange")
    d.box(274, 276, "patch · E + position", wide=154, high=30, size=13, colour="orange")
    d.arrow((274, 260), (274, 198))
    d.box(150, 182, "class", wide=46, high=26, size=12, colour="green")
    for token in range(5):
        d.box(206 + 48 * token, 182, ("1", "2", "3", "…", str(side * side))[token], wide=34, high=26, size=12)
    for x in (150, 206, 254, 302, 350, 398):
        d.arrow((x, 169), (x, 148))
    d.box(276, 128, "blocks of attention and MLP, no mask", wide=300, high=38, size=13)
    d.arrow((150, 109), (150, 72), colour="green")
    d.box(150, 56, "linear, softmax", wide=120, high=30, size=13, colour="green")
    d.text(150, 24, "p(label | image)", size=13)
    return d


def shifted_windows(attention: Any, height: int, width: int) -> Diagram:
    """Swin's windows, before and after the shift, with the mask of the layer."""
    side, shift = attention.window, attention.shift
    mask = attention.mask
    size = 144 / width
    d = Diagram(
        382,
        "An image divided into windows, then into shifted windows that wrap around its edge, and the mask of the "
        "window at the corner, which keeps its four parts apart.",
        f"Swin: windows of {side}×{side} places (left), moved by {shift} in the next block (right). Windows that "
        "wrap around hold parts of opposite borders. Below: the library's mask of the last window, of four parts.",
    )
    colours = ("blue", "green", "orange", "purple")
    across = width // side
    for left, moved, title in ((48, 0, "one block"), (250, shift, "next block")):
        cut = [
            [
                (colours[((i - moved) % height) // side * across % 4 + ((j - moved) % width) // side], 0.3, "")
                for j in range(width)
            ]
            for i in range(height)
        ]
        d.text(left + 72, 14, title, size=13)
        d.grid(left, 30, cut, size)
        for edge in range(moved, width + 1, side):
            d.line((left + edge * size, 30), (left + edge * size, 174), colour="ink", wide=2.5)
            d.line((left, 30 + edge * size), (left + 144, 30 + edge * size), colour="ink", wide=2.5)
        d.frame(left, 30, 144, 144)
    places = side * side
    cell = 168 / places
    d.grid(24, 200, cells(mask[-1].double(), "purple"), cell)
    part = [next(k for k in range(places) if mask[-1][k, one]) for one in range(places)]
    names = {first: "abcd"[number] for number, first in enumerate(sorted(set(part)))}
    for one in range(places):
        d.text(24 + (one + 0.5) * cell, 192, names[part[one]], size=12 if cell >= 10 else 9)
    letters = [names[one] for one in part]
    shades = [
        [("purple", 0.12 + 0.18 * "abcd".index(one), one) for one in letters[i * side :][:side]] for i in range(side)
    ]
    d.grid(280, 214, shades, 26)
    d.text(280 + 13 * side, 214 + 26 * side + 16, "the last window", size=12)
    d.text(280 + 13 * side, 214 + 26 * side + 34, "and its parts", size=12)
    return d


# Latent variables and coding


def evidence_bound(reconstruction: float, kl: float, exact: float) -> Diagram:
    """A variational autoencoder, and its bound in nats beside the exact value."""
    gap = reconstruction + kl - exact
    scale = 400 / (reconstruction + kl)
    d = Diagram(
        322,
        "An encoder, a code and a decoder in a row; below, a bar of the reconstruction and the divergence, and a "
        "shorter bar of the exact negative log-likelihood.",
        "A variational autoencoder and its bound, in nats, for a model whose likelihood is known exactly. What the "
        "bound loses is the divergence of the encoder from the true posterior.",
    )
    d.box(30, 60, "x", wide=34, colour="grey")
    d.box(130, 60, "encoder", wide=84)
    d.box(236, 60, "z", wide=40, colour="orange")
    d.box(330, 60, "decoder", wide=84)
    d.box(420, 60, "x̂", wide=34, colour="green")
    for left, right in ((47, 88), (172, 216), (256, 288), (372, 403)):
        d.arrow((left, 60), (right, 60))
    d.text(194, 42, "μ, σ", size=12)
    d.arrow((236, 120), (236, 78))
    d.text(236, 132, "ε ~ N(0, I):  z = μ + σ ⊙ ε", size=13)
    for top, parts in (
        (186, ((reconstruction, "−E ln p(x|z)", "grey"), (kl, "KL(q‖p)", "blue"))),
        (260, ((exact, "−ln p(x)", "green"), (gap, "gap", "red"))),
    ):
        left = 20.0
        for share, words, colour in parts:
            d.box(left + share * scale / 2, top, wide=share * scale, high=32, colour=colour, fill=0.3)
            d.text(left + share * scale / 2, top, words, size=13 if share * scale > 90 else 12)
            d.text(left + share * scale / 2, top + 27, f"{share:.2f}", size=12, colour="grey")
            left += share * scale
    d.text(20, 158, "−ELBO =", size=13, anchor="start")
    return d


def intervals(steps: Sequence[tuple[Sequence[float], int]], symbols: str) -> Diagram:
    """Arithmetic coding: each step has the inner edges of [0, 1] and the symbol that was chosen."""
    d = Diagram(
        6 + 88 * len(steps),
        "Bars below each other; each divides the chosen part of the bar above in proportion to the next symbol's "
        "probabilities.",
        "Range coding, with the probabilities of a model of the library. Each bar is the chosen interval of the bar "
        "above, enlarged; its own width in [0, 1) is the product of all choices: the likelihood.",
    )
    low, width = 0.0, 1.0
    for number, (edges, chosen) in enumerate(steps):
        y = 46 + 88 * number
        ends = [float(edge) / float(edges[-1]) for edge in edges]
        d.text(220, y - 26, f"[{low:.4f}, {low + width:.4f})", size=12, colour="grey")
        for symbol in range(len(ends) - 1):
            left, right = 20 + 400 * ends[symbol], 20 + 400 * ends[symbol + 1]
            on = symbol == chosen
            d.box(
                (left + right) / 2,
                y,
                wide=right - left,
                high=28,
                colour="blue" if on else "grey",
                fill=0.4 if on else 0.08,
            )
            if right - left > 14:
                d.text((left + right) / 2, y, symbols[symbol], size=14)
        left, right = 20 + 400 * ends[chosen], 20 + 400 * ends[chosen + 1]
        if number + 1 < len(steps):
            d.line((left, y + 14), (20, y + 74), dashed=True, colour="blue")
            d.line((right, y + 14), (420, y + 74), dashed=True, colour="blue")
        low, width = low + width * ends[chosen], width * (ends[chosen + 1] - ends[chosen])
    d.text(220, 88 * len(steps) - 12, f"[{low:.4f}, {low + width:.4f}): width {width:.5f}", size=12, colour="blue")
    return d


# Figures with sliders


class Sliders:
    """A figure that `_sliders.js` draws from these numbers; the script is part of it, so that it works anywhere."""

    def __init__(self, name: str, caption: str, **numbers: Any):
        self.name, self.caption, self.numbers = name, caption, numbers

    def _repr_html_(self) -> str:
        script = (Path(__file__).parent / "_sliders.js").read_text(encoding="utf-8")
        caption = f'<figcaption><p><span class="caption-text">{escape(self.caption)}</span></p></figcaption>'
        return (
            f'<figure class="diagram align-default" data-figure="{self.name}" '
            f'data-numbers="{escape(json.dumps(self.numbers))}"><style>{STYLE}</style>{caption}</figure>'
            f"<script>{script}</script>"
        )


def truncation(names: Sequence[str], log_p: Tensor) -> Sliders:
    """Temperature, top-k and top-p on a distribution."""
    return Sliders(
        "truncation",
        "The likeliest symbols of a trained model (grey), and what the three settings draw from instead (blue). "
        "Every setting but temperature 1 with all symbols is another model.",
        names=list(names),
        log_p=[round(float(value), 4) for value in log_p],
    )


def powers() -> Sliders:
    """Norms of the powers of a matrix with one eigenvalue."""
    return Sliders(
        "powers",
        "Powers of the matrix with the radius on its diagonal and the coupling above it: their norm (blue) and radiusᵏ "
        "(orange). With coupling, gradients grow first, even below a radius of 1.",
    )


def reach() -> Sliders:
    """Receptive field of causal convolutions."""
    return Sliders("reach", "How many samples one output of a stack of causal convolutions sees.")


def root(z: Tensor) -> Sliders:
    """Attention with and without the root."""
    return Sliders(
        "root",
        "Weights of random keys. Scores of independent vectors have variance d; divided by the root, "
        "they keep variance 1.",
        z=[round(float(value), 3) for value in z],
    )


def plane(images: Tensor, limit: float) -> Sliders:
    """Decoded codes, (side, side, pixels) in [0, 1], from the bottom left of the plane."""
    digits = (images * 9).round().long().flatten().tolist()
    return Sliders(
        "plane",
        "The decoder's pixels for a code of two numbers. Move through the plane: neighbours look alike.",
        side=len(images),
        pixels=images.shape[2],
        limit=limit,
        images="".join(map(str, digits)),
    )


def price() -> Sliders:
    """Code length of a coin under a model of it."""
    return Sliders(
        "price",
        "Bits per toss of a coin p, coded with a model q (grey curve, blue dot). The entropy (green) is "
        "the least, at q = p.",
    )
