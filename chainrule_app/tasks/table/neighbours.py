"""Training rows that the conditional of a categorical target counts, beside the network's own."""

from pathlib import Path
from typing import TYPE_CHECKING

from chainrule_app.heavy import np, torch

if TYPE_CHECKING:
    import numpy.typing as npt

    from chainrule.models import TableEnsemble, TableMADE, TableNeighbours


def keep_neighbours(path: Path, rows: "npt.NDArray[np.float64]", most: int, *, seed: int, source: str) -> None:
    """Write the rows that are neighbours of others; a random part of a long table.

    Args:
        path: the file.
        rows: (N, D) training rows.
        most: rows to keep.
        seed: chooses them.
        source: fingerprint of the data.
    """
    from chainrule.tensor_files import write_tensors

    if len(rows) > most:
        rows = rows[np.sort(np.random.default_rng(seed).permutation(len(rows))[:most])]
    write_tensors(path, {"rows": torch.from_numpy(rows.copy())}, _record(source))


def with_neighbours(path: Path, network: "TableMADE | TableEnsemble", *, source: str) -> "TableNeighbours":
    """Return the model of a network and the rows of a file; raises FileNotFoundError or ValueError."""
    from chainrule.models import TableNeighbours
    from chainrule.tensor_files import read_tensors

    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file, but the target has neighbours: restore it, or train again")
    tensors, record = read_tensors(path)
    try:
        if not _record(source).items() <= record.items() or tensors.keys() != {"rows"}:
            raise ValueError("expected rows of the run's table, got others")
        return TableNeighbours(network, tensors["rows"])
    except ValueError as error:
        raise ValueError(f"{path}: {error}: restore it from a copy, or train again") from None


def _record(source: str) -> dict[str, str]:
    return {"kind": "neighbours", "source": source}
