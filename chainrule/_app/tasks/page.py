"""Pages and figures on disk: where they go, written whole or not at all; the page of a model with attention."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule._app.results import Report
from chainrule._app.tasks.display import counted, quoted
from chainrule._app.tasks.run_directory import REPORT

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import nn

    from chainrule._app.pages import Page
    from chainrule._app.pages.attention_page import AttentionExample
    from chainrule._app.tasks.task import Task


def checked_page(out: Path | None, run: Path, name: str = REPORT) -> Path:
    """The page to write: `out`, or the file of that name in the run directory."""
    page = run / name if out is None else out
    if page.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out {page}: expected a name that ends in .html, so that no other file is replaced")
    if page.is_dir():
        raise ValueError(f"--out {page}: this is a directory; name a file in it")
    if not page.parent.is_dir():
        raise FileNotFoundError(f"--out {page}: there is no directory {page.parent}: make it first")
    return page


def write_page(page: Path, content: str) -> None:
    """Write a page, whole or not at all."""
    from chainrule.data._atomic import write_text

    try:
        write_text(page, content)
    except OSError as error:
        raise OSError(f"--out {page}: cannot be written ({error.strerror}): name another place") from None


def inspect_again(run: "Task[Any]", file: str | None = None, **options: Any) -> str:
    """The command that makes a page again; options that are None are left out."""
    given = [f"--{name} {value}" for name, value in options.items() if value is not None]
    return " ".join(["chainrule inspect", quoted(run.path), *([] if file is None else [quoted(Path(file))]), *given])


def page_report(
    run: "Task[Any]", content: "Page", figures: dict[str, Any], lines: Iterable[str], *, about: str = ""
) -> Report:
    """A report of a page, its figures and its lines.

    Args:
        run: the run that it is about.
        content: the page.
        figures: for JSON, after the run and its model.
        lines: after one about the model.
        about: the model in words; the lead of the page by default.
    """
    facts = {"run": str(run.path), "model": run.config.model, "recipe": run.recipe}
    return Report(facts | figures, (f"{run.path}: {about or content.lead}", *lines), str(content))


def save_figure(figure: "Figure", path: Path, dpi: float = 120) -> None:
    """Write a figure, whole or not at all, in the format that the name ends in."""
    from chainrule.data._atomic import write_bytes

    content = io.BytesIO()
    figure.savefig(content, format=path.suffix.removeprefix(".").lower() or "png", dpi=dpi)
    write_bytes(path, content.getvalue())


def attention_report(
    run: "Task[Any]",
    model: "nn.Module",
    examples: "Sequence[AttentionExample]",
    *,
    looks_at: str,
    command: str,
) -> Report:
    """The page of a model with attention, and what is on it.

    Args:
        run: the run.
        model: its model.
        examples: rows of the data, a section of the page each.
        looks_at: the memory of the model in words, such as "symbols of the source".
        command: that makes the page again.
    """
    from chainrule._app.pages.page import Page, Section, parts_section
    from chainrule.diagnostics._attention_maps import attention_focus
    from chainrule.diagnostics._parts import parts_of, parts_table

    parts = parts_of(model)
    figures: dict[str, Any] = {"parameters": parts, "attention": None}
    finding = f"none: all {looks_at} are read into one vector, from which the decoder begins"
    if weights := [example.weights for example in examples if example.weights is not None]:
        focus = attention_focus(weights)
        figures["attention"] = {"greatest": focus.greatest, "entropy_bits": focus.entropy, "even_bits": focus.even}
        finding = (
            f"over {counted(focus.queries, 'symbol')} written, "
            f"the greatest weight is {focus.greatest:.2f} on average and the "
            f"entropy {focus.entropy:.2f} bits; even weights over all {looks_at} would have {focus.even:.2f} bits"
        )
    attention = Section("Attention", [f"{finding[:1].upper()}{finding[1:]}."], "attention")
    described = f"{run.recipe} with {counted(sum(parts.values()), 'parameter')}"
    sections = [parts_section(parts), attention, *(example.section for example in examples)]
    symbols = sum(len(example.written) for example in examples)
    surprise = sum(sum(example.nats) for example in examples) / max(symbols, 1)
    figures |= {"nats_per_symbol": surprise, "rows": [example.figures for example in examples]}
    lines = [*parts_table(parts), f"attention: {finding}", f"surprise: {surprise:.4f} nats per symbol"]
    return page_report(run, Page(f"Inside {run.path}", described, sections, command), figures, lines)
