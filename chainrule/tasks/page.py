"""Pages and figures on disk: where they go, written whole or not at all."""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.display import quoted
from chainrule.tasks.run_directory import REPORT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from chainrule.diagnostics.report import Page
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


def check_number(name: str, value: int, low: int, high: int | None = None) -> None:
    """Raise ValueError for an option outside its range."""
    if value < low or (high is not None and value > high):
        wanted = f">= {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"--{name}: expected a whole number {wanted}, got {value}")


def inspect_again(run: "Task[Any]", file: str | None = None, **options: Any) -> str:
    """The command that makes a page again; options that are None are left out."""
    given = [f"--{name} {value}" for name, value in options.items() if value is not None]
    return " ".join(["chainrule inspect", quoted(run.path), *([] if file is None else [quoted(Path(file))]), *given])


def page_answer(
    run: "Task[Any]", page: Path, content: "Page", figures: dict[str, Any], lines: Iterable[str], *, about: str = ""
) -> Answer:
    """Write a page; answer with its figures and lines.

    Args:
        run: the run that it is about.
        page: the file.
        content: what to write.
        figures: for JSON, after the run, its model and the page.
        lines: between one about the model and one that names the page.
        about: the model in words; the lead of the page if not given.
    """
    write_page(page, str(content))
    facts = {"run": str(run.path), "model": run.config.model, "page": str(page)}
    told = [f"{run.path}: {about or content.lead}", *lines, f"page: {page}"]
    return Answer(iter([Record(facts | figures, "\n".join(told))]))


def save_figure(figure: "Figure", path: Path, dpi: float = 120) -> None:
    """Write a figure, whole or not at all, in the format that the name ends in.

    Raises:
        ValueError: matplotlib knows no such format.
    """
    from chainrule.data.atomic import write_bytes

    content = io.BytesIO()
    figure.savefig(content, format=path.suffix.removeprefix(".").lower() or "png", dpi=dpi)
    write_bytes(path, content.getvalue())
