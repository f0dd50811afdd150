"""Training rows that the conditional of a categorical target counts, beside the network's own."""

from typing import TYPE_CHECKING

from chainrule_app.heavy import np, torch
from chainrule_app.tasks.run_directory import NEIGHBOURS

if TYPE_CHECKING:
    from chainrule.models import TableEnsemble, TableMADE, TableNeighbours
    from chainrule_app.tasks.table.task import TableTask


def keep_neighbours(run: "TableTask") -> None:
    """Write the rows of a new run whose target has neighbours; a random part of a long table."""
    from chainrule.tensor_files import write_tensors

    if not run.has_neighbours:
        return
    rows, most = run.table().train, run.training.neighbours
    if len(rows) > most:
        rows = rows[np.sort(np.random.default_rng(run.training.seed).permutation(len(rows))[:most])]
    write_tensors(run.path / NEIGHBOURS, {"rows": torch.from_numpy(rows.copy())}, _record(run))


def with_neighbours(run: "TableTask", network: "TableMADE | TableEnsemble") -> "TableNeighbours":
    """Return the model of a network and the rows of a run."""
    from chainrule.models import TableNeighbours
    from chainrule.tensor_files import read_tensors

    path = run.path / NEIGHBOURS
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file, but the target has neighbours: restore it, or train again")
    tensors, record = read_tensors(path)
    try:
        if not _record(run).items() <= record.items() or tensors.keys() != {"rows"}:
            raise ValueError("expected rows of the run's table, got others")
        return TableNeighbours(network, tensors["rows"])
    except ValueError as error:
        raise ValueError(f"{path}: {error}: restore it from a copy, or train again") from None


def _record(run: "TableTask") -> dict[str, str]:
    return {"kind": "neighbours", "source": run.facts.source.sha256}
