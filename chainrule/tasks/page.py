"""Where the page of `chainrule inspect` goes."""

from pathlib import Path

from chainrule.tasks.run_directory import REPORT


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
