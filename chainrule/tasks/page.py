"""Pages and figures on disk: where they go, written whole or not at all; the page of a model with attention."""

import io
from collections.abc import Sequence
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.display import quoted
from chainrule.tasks.run_directory import REPORT

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import nn

    from chainrule.diagnostics.report.attention_page import AttentionExample
    from chainrule.tasks.task import Task


def checked_page(out: Path | None, run: Path) -> Path:
    """The page to write: `out`, or report.html in the run directory.

    Raises:
        ValueError: the name does not end in .html, or is a directory.
        FileNotFoundError: its directory does not exist.
    """
    page = run / REPORT if out is None else out
    if page.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out {page}: expected a name that ends in .html, so that no other file is replaced")
    if page.is_dir():
        raise ValueError(f"--out {page}: this is a directory; name a file in it")
    if not page.parent.is_dir():
        raise FileNotFoundError(f"--out {page}: there is no directory {page.parent}: make it first")
    return page


def write_page(page: Path, content: str) -> None:
    """Write a page, whole or not at all.

    Raises:
        OSError: it cannot be written; the message has the remedy.
    """
    from chainrule.data.atomic import write_text

    try:
        write_text(page, content)
    except OSError as error:
        raise OSError(f"--out {page}: cannot be written ({error.strerror}): name another place") from None


def save_figure(figure: "Figure", path: Path, dpi: float = 120) -> None:
    """Write a figure, whole or not at all, in the format that the name ends in.

    Raises:
        ValueError: matplotlib knows no such format.
    """
    from chainrule.data.atomic import write_bytes

    content = io.BytesIO()
    figure.savefig(content, format=path.suffix.removeprefix(".").lower() or "png", dpi=dpi)
    write_bytes(path, content.getvalue())


def attention_answer(
    run: "Task[Any]",
    model: "nn.Module",
    examples: "Sequence[AttentionExample]",
    texts: Sequence[dict[str, Any]],
    *,
    looks_at: str,
    page: Path,
    asked: str,
) -> Answer:
    """Write the page and say what is on it.

    Args:
        run: the run.
        model: its model.
        examples: a section of the page for each row.
        texts: of each row, for JSON.
        looks_at: the memory of the model in words, such as "symbols of the source".
        page: to write.
        asked: arguments of the command that makes the page again.
    """
    from chainrule.diagnostics.attention_focus import attention_focus
    from chainrule.diagnostics.parts import parts_of, parts_table
    from chainrule.diagnostics.report.attention_page import AttentionReport, attention_page

    parts, weights = parts_of(model), [example.weights for example in examples if example.weights is not None]
    described = f"{run.config.model} with {sum(parts.values()):,} parameters"
    figures: dict[str, Any] = {"run": str(run.path), "model": run.config.model, "page": str(page), "parameters": parts}
    if weights:
        focus = attention_focus(weights)
        figures["attention"] = {"greatest": focus.greatest, "entropy_bits": focus.entropy, "even_bits": focus.even}
        finding = (
            f"over {focus.queries:,} symbols written, the greatest weight is {focus.greatest:.2f} on average and the "
            f"entropy {focus.entropy:.2f} bits; even weights over all {looks_at} would have {focus.even:.2f} bits"
        )
    else:
        figures["attention"] = None
        finding = f"none: all {looks_at} are read into one vector, from which the decoder begins"
    command = f"chainrule inspect {quoted(run.path)}{asked}"
    write_page(page, attention_page(AttentionReport(str(run.path), described, parts, finding, examples, command)))
    rows = [
        {
            **row,
            "nats": sum(example.bits) * log(2),
            **({"read": list(example.read)} if example.read else {}),
            "symbols": list(example.written),
            "bits": list(example.bits),
            "attention": None if example.weights is None else example.weights.tolist(),
        }
        for row, example in zip(texts, examples, strict=True)
    ]
    surprise = sum(row["nats"] for row in rows) / max(sum(len(row["symbols"]) for row in rows), 1)
    figures |= {"nats_per_symbol": surprise, "rows": rows}
    lines = [f"{run.path}: {described}", *parts_table(parts), f"attention: {finding}"]
    lines += [f"surprise: {surprise:.4f} nats per symbol", f"page: {page}"]
    return Answer(iter([Record(figures, "\n".join(lines))]))
