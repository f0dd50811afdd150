"""Rows of a table through a code: bounds of their likelihood, codes, and how much of the code is in use."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from chainrule.tasks.abilities import Answer, Code, Record
from chainrule.tasks.codes import use_figures, use_table
from chainrule.tasks.ledger import LedgerEntry
from chainrule.tasks.table.inspection import TableInspection, rows_of

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.latent import LatentModel
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
    total, basis = BoundMeter(_code_model(run, device, "score"), samples), replace(run.basis, samples=samples)

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

    model = _code_model(run, device, "embed")
    place = next(model.parameters()).device
    for lines, x in _blocks(run, file):
        with torch.no_grad():
            codes = model.codes(x.to(place)).float().cpu().tolist()
        yield from map(Code, map(str, lines), codes)


def inspect_codes(run: "TableTask", file: str | None, options: TableInspection) -> Answer:
    """How much of the code is in use, on held-out rows or those of a file."""
    from chainrule.diagnostics.active_units import active_units

    if options.rows < 2:
        raise ValueError(f"--rows: expected a whole number >= 2, got {options.rows}")
    x = rows_of(run, file, options.rows)
    use = active_units(_code_model(run, "cpu", "inspect"), x)
    values = {"run": str(run.path), "rows": len(x)} | use_figures(use)
    return Answer(iter([Record(values, use_table(use, f"{len(x):,} rows"))]))


def _code_model(run: "TableTask", device: str, verb: str) -> "LatentModel":
    from chainrule.latent import LatentModel

    if not run.has_code:
        raise ValueError(f"{verb}: a run of {run.config.model} has no code: expected one of vae")
    model: Any = run.model(device)
    assert isinstance(model, LatentModel)
    return model


def _blocks(run: "TableTask", file: str) -> "Iterator[tuple[list[int], Tensor]]":
    """Lines and rows (B, D) of a file."""
    import torch

    encoded = run.schema.encoded(file)
    while block := list(islice(encoded, _BLOCK)):
        yield (
            [line for line, _, _ in block],
            torch.tensor([numbers for _, _, numbers in block], dtype=torch.float64),
        )
