"""Parts of the page about a code that are the same for images, rows of tables and sentences."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule.tasks.abilities import Answer
from chainrule.tasks.page import page_answer

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.diagnostics.active_units import LatentUse
    from chainrule.diagnostics.report.page import Content, Table
    from chainrule.latent import CodeModel
    from chainrule.tasks.task import Task

DIMENSIONS, STEPS = 12, 7  # of the traversals
REACH = 2.5  # standard deviations of the prior


def code_answer(
    run: "Task[Any]",
    page: Path,
    use: "LatentUse",
    sections: "list[Content]",
    facts: dict[str, Any],
    lines: Iterable[str] = (),
    *,
    about: str,
    command: str,
) -> Answer:
    """Write the page; answer with the figures and lines that every model with a code has.

    Args:
        run: the run.
        page: the file.
        use: that the model makes of its code.
        sections: of the page.
        facts: further figures, which come first.
        lines: further lines.
        about: a line about the model.
        command: makes the page again.
    """
    from chainrule.diagnostics.report import Page

    figures: dict[str, Any] = {
        **facts,
        "collapsed": use.collapsed,
        "remedies": list(use.remedies),
        "active": use.ranked,
        "kl": None if use.kl is None else use.kl.tolist(),
        "variance": use.variances.tolist(),
    }
    told = [str(use), *use.remedies]
    for place in use.ranked[:DIMENSIONS]:
        nats = "" if use.kl is None else f"{float(use.kl[place]):.3f} nats, "
        told.append(f"dimension {place}: {nats}variance of its mean {float(use.variances[place]):.4f}")
    return page_answer(run, page, Page(f"The code of {run.path}", about, sections, command), figures, [*told, *lines])


def about_code(run: "Task[Any]", model: "CodeModel", read: str) -> str:
    """The model in words, and the rows that were read."""
    parameters = sum(weight.numel() for weight in model.parameters())
    return f"{run.config.model} with {parameters:,} parameters, {model.latent_size} dimensions; {read}"


def traversed(use: "LatentUse") -> "Iterator[tuple[int, list[str], Tensor]]":
    """Each active dimension, the STEPS values that it takes, and codes with them, (STEPS, L), the rest at means."""
    import torch

    centre = use.codes.mean(0)
    for place in use.ranked[:DIMENSIONS]:
        if use.kl is None:
            values = use.codes[:, place].quantile(torch.linspace(0.02, 0.98, STEPS, dtype=use.codes.dtype))
        else:
            values = torch.linspace(-REACH, REACH, STEPS, dtype=use.codes.dtype)
        codes = centre.repeat(STEPS, 1)
        codes[:, place] = values
        yield place, [f"{round(value, 2) + 0.0:+.2f}" for value in values.tolist()], codes  # no -0.00


def traversal_words(use: "LatentUse", noun: str, how: str = "") -> str:
    """Sentences about traversals; `how` says in which way an input is made of a code."""
    if not use.ranked:
        return "No dimension is active: there is nothing to see along any of them."
    few = len(use.ranked) > DIMENSIONS
    which = f"The {DIMENSIONS} with most of {len(use.ranked)} active dimensions" if few else "All active dimensions"
    ends = (
        f"from its 2% to its 98% quantile over the {noun}s"
        if use.kl is None
        else f"from −{REACH} to {REACH} standard deviations of the prior"
    )
    return f"{which}: each strip changes one of them, {ends}, and leaves the others at their means.{how}"


def error_words(parts: str, noun: str) -> str:
    """Sentences about the figures of `errors`."""
    return (
        f"Mean nats, −ln p(x | z), of {parts} at the mean code z of its own {noun}, and at that of another {noun}: the "
        "difference is what the code tells of it."
    )


def errors(heading: str, names: Sequence[str], own: "Tensor", other: "Tensor") -> "Table":
    """Nats of parts of x, (P,), decoded from their own code and from another's, as a table."""
    from chainrule.diagnostics.report.page import Table

    told = (other - own).tolist()
    most = max(*told, 1e-12)
    rows = [
        [name, f"{nats:.3f}", f"{others:.3f}", f"{round(difference, 3) + 0.0:.3f}"]
        for name, nats, others, difference in zip(names, own.tolist(), other.tolist(), told, strict=True)
    ]
    headings = [heading, "nats", "other code", "told"]
    return Table(headings, rows, shares=[max(difference / most, 0.0) for difference in told], kind="barred")
