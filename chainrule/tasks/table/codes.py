"""Rows of a table through a code: bounds of their likelihood, and codes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from chainrule.blocks import in_blocks
from chainrule.tasks.abilities import Answer, Code, Record
from chainrule.tasks.ledger import LedgerEntry

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.models import TableVAE
    from chainrule.tasks.table.scoring import TableScoring
    from chainrule.tasks.table.task import TableTask

_BLOCK = 1024  # rows read together


@dataclass(frozen=True)
class TableEmbedding:
    """Embed the rows of a table: for each its line, and the mean of its code.

    Args:
        data: The table.
    """


def score_by_bounds(run: "TableTask", file: str, options: "TableScoring", *, device: str) -> Answer:
    """Score the rows of a file by bounds."""
    from chainrule.tasks.bounds import BoundMeter, checked_samples

    samples = checked_samples(options.samples)
    total, basis = BoundMeter(code_model(run, device, "score"), samples), replace(run.basis, samples=samples)

    def records() -> Iterator[Record]:
        for lines, x in _blocks(run, file):
            for line, (nats, elbo, kl) in zip(lines, total.measure(x), strict=True):
                values = {"line": line, "nats_at_most": nats, "negative_elbo": elbo, "kl": kl}
                yield Record(values, f"{line:>8} {nats:>10.3f} {elbo:>10.3f} {kl:>8.3f}", nats)
        if not total.rows:
            raise ValueError(f"{file}: expected at least one row to score, got none")

    def closing() -> Iterable[str]:
        yield f"{total.rows:,} rows, {total.said('row')}"

    def entry() -> LedgerEntry:
        return LedgerEntry(basis, total.nats, total.rows * len(run.schema.kept), "", total.standard_error)

    return Answer(records(), f"{'line':>8} {'nats ≤':>10} {'-ELBO':>10} {'KL':>8}", closing, entry, basis)


def embed_rows(run: "TableTask", file: str, *, device: str) -> Iterator[Code]:
    """The code of each row."""
    import torch

    model = code_model(run, device, "embed")
    place = next(model.parameters()).device
    for lines, x in _blocks(run, file):
        with torch.no_grad():
            codes = model.codes(x.to(place)).float().cpu().tolist()
        yield from map(Code, map(str, lines), codes)


def code_model(run: "TableTask", device: str, verb: str) -> "TableVAE":
    """The trained model of a run that has a code.

    Raises:
        ValueError: the model has none.
    """
    from chainrule.models import TableVAE

    if not run.has_code:
        raise ValueError(f"{verb}: a run of {run.config.model} has no code: expected one of vae")
    model: Any = run.model(device)
    assert isinstance(model, TableVAE)
    return model


def _blocks(run: "TableTask", file: str) -> "Iterator[tuple[list[int], Tensor]]":
    """Lines and rows (B, D) of a file."""
    import torch

    for block in in_blocks(run.schema.encoded(file), _BLOCK):
        yield (
            [line for line, _, _ in block],
            torch.tensor([numbers for _, _, numbers in block], dtype=torch.float64),
        )
