"""A file of series becomes arrays on disk: a schema from training rows, values, covariates."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.data._series.schema import SeriesSchema
from chainrule.data._series.series_file import read_series
from chainrule.data._store import Store, StoreWriter
from chainrule.data._text import fingerprint

Floats = npt.NDArray[np.float64]
_MANIFEST = "series.json"
ANCHORS = ("last", "season", "centre")


@dataclass(frozen=True)
class PreparedSeries:
    """Series of a prepared folder.

    Args:
        schema: columns and units.
        values: (T, S) the targets, those held out at the end.
        features: (T, F) covariates as the model takes them.
        train_rows: how many of the rows are trained on.
        facts: fingerprint and counts.
    """

    schema: SeriesSchema
    values: Floats
    features: Floats
    train_rows: int
    facts: dict[str, Any]


def prepare_series(
    path: str | Path,
    folder: str | Path,
    *,
    target: str | None,
    horizon: int,
    covariates: str = "",
    date: str = "auto",
    fill: bool = False,
    season: int | None = None,
    anchor: str = "last",
    validation_fraction: float = 0.1,
    schema: SeriesSchema | None = None,
) -> PreparedSeries:
    """Read a file, fit the schema on all rows but the last, which are held out, and write both into a folder.

    Args:
        path: of the file, see `read_series`.
        folder: created if it is missing; `series.json` is the last file written into it.
        target: see `read_series`.
        horizon: rows of a forecast; at least this many rows are held out.
        covariates: see `read_series`.
        date: see `read_series`.
        fill: see `read_series`.
        season: rows of a season; None takes the usual one for the step between dates.
        anchor: reference of the values: the "last" value, the value a "season" ago, or the "centre".
        validation_fraction: share of the rows that is held out, the last ones.
        schema: of other rows, in place of one fitted on these; the columns, `season` and `anchor` are its own.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file cannot be read, or has too few rows.
    """
    if anchor not in ANCHORS:
        raise ValueError(f"anchor: expected one of {', '.join(ANCHORS)}, got {anchor!r}")
    if schema is None:
        file = read_series(path, target, covariates, date, fill=fill)
    else:
        file = schema.open(path)
    rows = len(file.values)
    held_out = max(round(validation_fraction * rows), horizon)
    if rows - held_out < 2 * horizon:
        raise ValueError(
            f"{path}: expected at least {2 * horizon + held_out} rows for a horizon of {horizon}, got {rows}: "
            "choose a smaller --horizon"
        )
    if schema is None:
        length = season or (1 if file.frequency is None else file.frequency.season)
        if anchor == "season" and length == 1:
            raise ValueError("--anchor season: expected series with a season: say its length with --season")
        lag = {"last": 1, "season": length, "centre": 0}[anchor]
        schema = SeriesSchema.fit(file, rows - held_out, length, lag, fill)
    else:
        schema = schema.trained_on(file, rows - held_out)
    features = schema.features(file)[:rows]
    facts = {
        "source": fingerprint(path),
        "rows": {"train": rows - held_out, "valid": held_out},
        "future": file.future,
        "step": None if file.frequency is None else str(file.frequency),
        "season": schema.season,
        "filled": {"train": int((~file.observed[:-held_out]).sum()), "valid": int((~file.observed[-held_out:]).sum())},
    }
    with StoreWriter(folder, _MANIFEST) as writer:
        schema.save(writer.path("schema.json"))
        writer.array("values", file.values)
        writer.array("features", features)
        writer.finish(facts)
    return open_series(folder)


def open_series(folder: str | Path) -> PreparedSeries:
    """Open a folder written by `prepare_series`; raises the errors of `Store`."""
    store = Store(folder, _MANIFEST, "series")
    schema, facts = SeriesSchema.load(store.directory / "schema.json"), store.manifest
    with store.checked():
        rows, train_rows = facts["rows"]["train"] + facts["rows"]["valid"], facts["rows"]["train"]
        values = store.array("values", "f8", (rows, len(schema.targets)))
        features = store.array("features", "f8", (rows, schema.num_covariates))
    return PreparedSeries(schema, values, features, train_rows, facts)
