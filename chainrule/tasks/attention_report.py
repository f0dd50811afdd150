"""Figures and a page of `chainrule inspect` for a model that writes with attention to a memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule.tasks.abilities import Answer
from chainrule.tasks.page import page_answer

if TYPE_CHECKING:
    from torch import nn

    from chainrule.diagnostics.report.attention_page import AttentionExample
    from chainrule.tasks.task import Task


def attention_answer(
    run: "Task[Any]",
    model: "nn.Module",
    examples: "Sequence[AttentionExample]",
    *,
    looks_at: str,
    page: Path,
    command: str,
) -> Answer:
    """Write the page and say what is on it.

    Args:
        run: the run.
        model: its model.
        examples: rows of the data, a section of the page each.
        looks_at: the memory of the model in words, such as "symbols of the source".
        page: to write.
        command: that makes the page again.
    """
    from chainrule.diagnostics.attention_focus import attention_focus
    from chainrule.diagnostics.parts import parts_of, parts_table
    from chainrule.diagnostics.report.page import Page, Section, parts_section

    parts = parts_of(model)
    figures: dict[str, Any] = {"parameters": parts, "attention": None}
    finding = f"none: all {looks_at} are read into one vector, from which the decoder begins"
    if weights := [example.weights for example in examples if example.weights is not None]:
        focus = attention_focus(weights)
        figures["attention"] = {"greatest": focus.greatest, "entropy_bits": focus.entropy, "even_bits": focus.even}
        finding = (
            f"over {focus.queries:,} symbols written, the greatest weight is {focus.greatest:.2f} on average and the "
            f"entropy {focus.entropy:.2f} bits; even weights over all {looks_at} would have {focus.even:.2f} bits"
        )
    attention = Section("Attention", [f"{finding[:1].upper()}{finding[1:]}."], "attention")
    described = f"{run.config.model} with {sum(parts.values()):,} parameters"
    sections = [parts_section(parts), attention, *(example.section for example in examples)]
    symbols = sum(len(example.written) for example in examples)
    surprise = sum(sum(example.nats) for example in examples) / max(symbols, 1)
    figures |= {"nats_per_symbol": surprise, "rows": [example.figures for example in examples]}
    lines = [*parts_table(parts), f"attention: {finding}", f"surprise: {surprise:.4f} nats per symbol"]
    return page_answer(run, page, Page(f"Inside {run.path}", described, sections, command), figures, lines)
