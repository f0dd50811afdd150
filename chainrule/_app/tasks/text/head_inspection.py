"""Inspect a trained Transformer of a text: its heads or other mixers, the memory of its cache, and a page."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from chainrule._app.pages.heads_page import cache_line, head_line, heads_sections, kept_line
from chainrule._app.pages.page import Page
from chainrule._app.pages.read_text import ReadRow, ReadText
from chainrule._app.pages.recurrence_page import reading_line
from chainrule._app.results import Report
from chainrule._app.tasks.display import counted
from chainrule._app.tasks.output import page_report
from chainrule._app.tasks.text.inspection import TextInspection, count_unknown, inspected_part, read_window
from chainrule._printing import one_line
from chainrule.data._vocabulary import symbol_spans
from chainrule.diagnostics._mixer_views import MixerView, cache_size, mixer_views
from chainrule.models import TransformerLM

if TYPE_CHECKING:
    from chainrule._app.tasks.text.task import TextTask

MOST_WEIGHTS = 1 << 24  # of a head on all rows


def inspect_heads(
    run: "TextTask", model: TransformerLM, file: str | None, options: TextInspection, *, command: str
) -> Report:
    if options.property is not None:
        raise ValueError(f"--property: only recurrences have units to find, got {run.config.model}: leave it out")
    if broken := [name for name, weight in model.named_parameters() if not weight.isfinite().all()]:
        raise ValueError(f"{run.path}: {broken[0]} holds a non-finite number: this model cannot be inspected")
    if options.rows * options.steps**2 > MOST_WEIGHTS:
        raise ValueError(
            f"--rows {options.rows} --steps {options.steps}: expected rows × steps² of at most {MOST_WEIGHTS}, the "
            f"weights of a head, got {options.rows * options.steps**2}"
        )
    x, line_lengths, name = read_window(run, file, options.rows, options.steps)
    lengths = torch.full((len(x),), x.shape[1]) if line_lengths is None else line_lengths
    views, bits = mixer_views(model, x, line_lengths)
    counts = lengths.tolist()
    rows = [ReadRow(*symbol_spans(run.vocabulary, row[:count].numpy())) for row, count in zip(x, counts, strict=True)]
    unknown = 0 if run.vocabulary.unknown is None else count_unknown(run, x, counts)
    were = "was" if unknown == 1 else "were"
    note = f"{counted(unknown, 'element')} {were} never seen in training and read as unknown." if unknown else ""
    read, cache = ReadText(name, run.config.data.level, rows, unknown, note=note), cache_size(model)
    width = model.embedding.embedding_dim
    described = f"{run.config.model} of {len(views)} block{'s' * (len(views) != 1)} with {width} features"
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
        "rows": [
            {
                "symbols": row[:count].tolist(),
                "text": list(map(run.vocabulary.token, row[:count].tolist())),
                "bits": surprise[:count].tolist(),
            }
            for row, surprise, count in zip(x, bits, counts, strict=True)
        ],
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
