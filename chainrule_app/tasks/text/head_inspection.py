"""Inspect a trained Transformer of a text: its heads or other mixers, the memory of its cache, and a page."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import inf, log
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from markupsafe import Markup, escape
from torch import Tensor

from chainrule.diagnostics import HeadFigures, MixerView, mixer_views
from chainrule.layers import CausalAttention
from chainrule.models import TransformerLM
from chainrule.option_error import OptionError, option
from chainrule.printing import one_line
from chainrule.state import leaves
from chainrule_app.pages.page import (
    Content,
    Figure,
    Group,
    Page,
    Picture,
    Section,
    Table,
    Terms,
    Text,
    marked,
    visible,
)
from chainrule_app.pages.read_text import ReadText, surprise_section
from chainrule_app.pages.recurrence_page import reading_line
from chainrule_app.printing import counted
from chainrule_app.results import Report
from chainrule_app.tasks.output import page_report
from chainrule_app.tasks.text.inspection import TextInspection, inspected_part, read_rows, read_window, row_figures

if TYPE_CHECKING:
    from chainrule_app.tasks.text.task import TextTask


START = "⊢"
MOST_DRAWN = 64  # elements to a side of an image of attention
_PALE, _DARK = (247, 251, 255), (8, 48, 107)
_PALETTE = np.linspace(_PALE, _DARK, 256).round().astype(np.uint8)
_HEADINGS = ("head", "kind", "share", "entropy, bits", "of even", "distance")
_TERMS = {
    "share": "share of the weight, as the rule of the kind counts it",
    "entropy": "entropy of the weights, also for even weights over all visible elements: 0 attends to a single element",
    "distance": "elements back from the current symbol, averaged by weight",
}


def heads_sections(
    views: Sequence[MixerView], cache: "CacheSize", bits: Tensor, read: ReadText, lengths: Tensor
) -> list[Content]:
    drawn = [START, *("".join(pair) for pair in read.rows[0].pieces())][: min(int(lengths[0]), MOST_DRAWN)]
    parts: list[Content] = [
        *([Text(read.note)] if read.note else []),
        Section("Memory", [f"{cache_line(cache)}."], "memory"),
        *(_block(number, view, drawn) for number, view in enumerate(views, 1)),
        Section("How to read the images", [_reading(drawn), Terms(_TERMS)], "reading"),
        surprise_section(bits, read, lengths),
    ]
    kinds = dict.fromkeys(head.kind for view in views for head in view.heads)
    if kinds:
        rules = {name: HeadFigures.RULES[name] for name in kinds} | HeadFigures.RULES
        words = "If several rules apply, the one with the largest score wins. The rules of this model come first."
        parts.append(Section("Kinds of heads", [words, Terms(rules, linked=True)], "rules"))
    return parts


def _reading(drawn: Sequence[str]) -> Markup:
    return marked(
        "<p>Each image is the beginning of row 1, {} elements and the start symbol ⊢ first. Each row of the image is a "
        "query, each column a key that it may read; darker is a larger weight (its square root is shown). "
        "Below it is the same text, shaded by the weights of the last of these queries, <code>{}</code>. The "
        "present symbol is the last one read; the model predicts the next. Figures are means over all rows.</p>",
        len(drawn),
        escape(visible(drawn[-1])),
    )


def _block(number: int, view: MixerView, drawn: Sequence[str]) -> Section:
    memory = kept_line(view)
    parts: list[Content] = [Text(f"{memory[:1].upper()}{memory[1:]}.", "verdict")]
    if not memory:
        rows = [_row(index, head) for index, head in enumerate(view.heads, 1)]
        heads = [_drawn(number, view, head, drawn) for head in range(len(view.heads))]
        parts = [Table(_HEADINGS, rows, f"figures of the heads of block {number}", named=True), Group("heads", heads)]
    return Section(f"Block {number}: {view.name}", parts, f"block-{number}")


def _row(number: int, head: HeadFigures) -> list[str]:
    kind = marked('<a href="#rule-{}">{}</a>', head.kind.replace(" ", "-"), head.kind)
    offset = "" if head.offset is None else f", {head.offset} back"
    numbers = [f"{value:.2f}" for value in (head.score, head.entropy, head.even)]
    return [str(number), kind + offset, *numbers, f"{head.distance:.1f}"]


def _drawn(block: int, view: MixerView, head: int, elements: Sequence[str]) -> Figure:
    """Draw the attention over the first elements of row 1, and shade the text by the last query's weights."""
    assert view.weights is not None
    weights = view.weights[head, : len(elements), : len(elements)].cpu().double().numpy()
    levels = (np.sqrt(weights.clip(0, 1)) * 255).round().astype(np.uint8)
    described = f"attention of head {head + 1} of block {block}, {len(elements)} by {len(elements)} elements"
    shade = '<i style="--a:{:.0f}%" title="{:.3f}">{}</i>'
    looked = [
        marked(shade, 100 * weight**0.5, weight, text) if weight >= 0.01 else marked("{}", text)
        for text, weight in zip(elements, weights[-1].tolist(), strict=True)
    ]
    picture = Picture(levels, described, _PALETTE, filling=True)
    kind = f"Head {head + 1}: {view.heads[head].kind}"
    return Figure([picture], kind, [Text(Markup("").join(looked), "looked")])


def head_line(head: HeadFigures) -> str:
    """Name the kind of a head with its score.

    >>> head_line(HeadFigures("position", 0.5, 3, {}, 1.0, 2.0, 3.0))
    'position, 3 back 0.50'
    """
    where = f", {head.offset} back" if head.offset is not None else ""
    return f"{head.kind}{where} {head.score:.2f}"


def kept_line(view: MixerView) -> str:
    """Describe how much the gates of a mixer keep; empty for softmax attention.

    >>> kept_line(MixerView("MinGRU", retention=[0.5, 0.9, 0.99], unit="unit"))
    '3 units keep 0.50 to 0.99 of their memory a step, the middle one 0.90: half is gone after 1 to 69 elements'
    >>> kept_line(MixerView("LinearAttention", retention=[1.0, 1.0]))
    '2 heads keep all of their memory: it only grows'
    """
    if view.weights is not None:
        return ""
    if not view.retention:
        return "it has neither attention weights nor gates to show"
    low, high, count = min(view.retention), max(view.retention), len(view.retention)
    named = counted(count, view.unit)
    if low == 1:
        return f"{named} keep all of their memory: it only grows"
    return (
        f"{named} keep {low:.2f} to {high:.2f} of their memory a step, the middle one {median(view.retention):.2f}: "
        f"half is gone after {_half_life(low)} to {_half_life(high)} elements"
    )


@dataclass(frozen=True)
class CacheSize:
    """Memory of a row's state, bytes."""

    element: int  # bytes per cached element; 0 if the state does not grow
    formula: str  # formula of `element` with its numbers
    elements: int  # maximum number of cached elements; 0 if the state does not grow
    constant: int  # bytes of the parts that do not grow

    @property
    def most(self) -> int:
        """Maximum size for rows of any length."""
        return self.element * self.elements + self.constant


def cache_size(model: TransformerLM) -> CacheSize:
    """Compute the memory of a row's state."""
    mixers = [block.mixer for block in model.stack.layers]
    attention = [mixer for mixer in mixers if isinstance(mixer, CausalAttention)]
    others = [mixer for mixer in mixers if not isinstance(mixer, CausalAttention)]
    constant = sum(leaf.numel() * leaf.element_size() for mixer in others for leaf in leaves(mixer.initial_state(1)))
    if not attention:
        return CacheSize(0, "", 0, constant)
    first, number = attention[0], attention[0].in_proj_weight.element_size()
    formula = f"2 · L · G · d · {number} = 2 · {len(attention)} · {first.num_kv_heads} · {first.head_size} · {number}"
    element = 2 * len(attention) * first.num_kv_heads * first.head_size * number
    return CacheSize(element, formula, first.window - 1, constant)


def cache_line(cache: CacheSize) -> str:
    """Describe the memory of a row's state."""
    if not cache.element:
        return f"{cache.constant:,} bytes a row, however long the text"
    return (
        f"{cache.formula} = {cache.element:,} bytes an element, of at most W − 1 = {cache.elements:,}: "
        f"{cache.most:,} bytes a row, however long the text"
    )


def _half_life(share: float) -> str:
    steps = inf if share >= 1 else 0.0 if share <= 0 else log(0.5) / log(share)
    return f"{steps:,.0f}" if steps < 1e6 else "a million and more"


MOST_WEIGHTS = 1 << 24  # of a head on all rows


def inspect_heads(
    run: "TextTask", model: TransformerLM, file: str | None, options: TextInspection, *, command: str
) -> Report:
    if broken := [name for name, weight in model.named_parameters() if not weight.isfinite().all()]:
        raise ValueError(f"{run.path}: {broken[0]} holds a non-finite number: this model cannot be inspected")
    if options.rows * options.steps**2 > MOST_WEIGHTS:
        raise OptionError(
            "rows",
            f"expected rows × {option('steps')}² of at most {MOST_WEIGHTS}, the "
            f"weights of a head, got {options.rows * options.steps**2}",
        )
    x, line_lengths, name = read_window(run, file, options.rows, options.steps)
    lengths = torch.full((len(x),), x.shape[1]) if line_lengths is None else line_lengths
    views, bits = mixer_views(model, x, line_lengths)
    rows, unknown = read_rows(run, x, line_lengths)
    were = "was" if unknown == 1 else "were"
    note = f"{counted(unknown, 'element')} {were} never seen in training and read as unknown." if unknown else ""
    read, cache = ReadText(name, run.config.data.level, rows, unknown, note=note), cache_size(model)
    width = model.embedding.embedding_dim
    described = f"{run.config.model} of {counted(len(views), 'block')} with {width} features"
    described += inspected_part(run)
    mean = float(bits.double().sum() / lengths.sum())
    reading = reading_line(read, lengths, mean)
    sections = heads_sections(views, cache, bits, read, lengths)
    content = Page(f"Inside {run.path}", f"{described}; {reading}", sections, command)
    figures: dict[str, Any] = {
        "text": name,
        "elements": int(lengths.sum()),
        "unknown": unknown,
        "bits_per_element": mean,
        "cache": asdict(cache),
        "blocks": [
            {"mixer": view.name, "heads": [asdict(head) for head in view.heads], "kept": view.retention}
            for view in views
        ],
        "rows": row_figures(run.vocabulary, x, bits, lengths),
    }
    lines = [one_line(reading), "", *_table(views), f"memory: {cache_line(cache)}"]
    return page_report(run, content, figures, lines, about=described)


def _table(views: Iterable[MixerView]) -> Iterable[str]:
    """Describe each head; blocks without attention weights get one line."""
    for number, view in enumerate(views, 1):
        if view.weights is None:
            yield f"block {number}, {view.name}: {kept_line(view)}"
        for index, head in enumerate(view.heads, 1):
            yield (
                f"block {number} head {index}: {head_line(head):<26} "
                f"entropy {head.entropy:5.2f} of {head.even:.2f} bits, {head.distance:5.1f} back"
            )
