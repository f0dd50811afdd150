"""A file of series becomes arrays on disk: a schema from training rows, values, covariates."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.option_error import OptionError, UserError, option
from chainrule_app.readers.series.schema import SeriesSchema
from chainrule_app.readers.series.series_file import SeriesFile, read_series
from chainrule_app.readers.sources import fingerprint
from chainrule_app.readers.store import Store, StoreWriter
from chainrule_app.readers.tables.table_file import TableSource

Floats = npt.NDArray[np.float64]
_MANIFEST = "series.json"


@dataclass(frozen=True)
class PreparedSeries:
    """Series of a prepared folder."""

    schema: SeriesSchema  # columns and units
    values: Floats  # (T, S) the targets, those held out at the end
    features: Floats  # (T, F) covariates as the model takes them; (T, S, F) where items have their own
    spans: npt.NDArray[np.int64]  # (S, 2) rows of each series: its first, and the one after its last
    train_rows: int  # how many of the rows are trained on
    facts: dict[str, Any]  # fingerprint and counts


def prepare_series(
    source: TableSource,
    folder: str | Path,
    *,
    target: str | None,
    horizon: int,
    covariates: str = "",
    past_covariates: str = "",
    date: str = "auto",
    header: bool | None = None,
    item: str = "auto",
    static: str = "",
    date_format: str = "",
    season: int | None = None,
    anchor: str = "last",
    validation_fraction: float = 0.1,
    schema: SeriesSchema | None = None,
) -> PreparedSeries:
    """Read a file, fit the schema on all rows but the last, which are held out, and write both into a folder.

    Of items that end at different dates the rows after one common date are held out.

    Args:
        source: a file, or a table in memory, see `read_series`.
        folder: created if it is missing; `series.json` is the last file written into it.
        target: see `read_series`.
        horizon: rows of a forecast; at least this many rows are held out.
        covariates, past_covariates: see `read_series`.
        date, header, item, static, date_format: see `read_series`.
        season: rows of a season; None takes the usual one for the step between dates.
        anchor: reference of the values: the "last" value, the value a "season" ago, or the "centre".
        validation_fraction: share of the rows that is held out, the last ones.
        schema: a schema fitted on other rows, which sets the columns, `season` and `anchor`; by default one is fitted.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file cannot be read, or has too few rows.
    """
    if schema is None:
        file = read_series(
            source, target, covariates, date, past_covariates=past_covariates,
            header=header, item=item, static=static, date_format=date_format,
        )  # fmt: skip
    else:
        file = schema.open(source)
    rows = len(file.values)
    held_out = max(round(validation_fraction * rows), horizon)
    if rows - held_out < 2 * horizon:
        raise UserError(
            f"{source}: expected at least {2 * horizon + held_out} rows for a horizon of {horizon}, got {rows}",
            f"choose a smaller {option('horizon')}",
        )
    if schema is None:
        length = season or (1 if file.frequency is None else file.frequency.season)
        if anchor == "season" and length == 1:
            raise OptionError(
                "anchor",
                "expected series with a season",
                f"pass its length with {option('season')}",
            )
        lag = {"last": 1, "season": length, "centre": 0}[anchor]
        past = len([name for name in past_covariates.split(",") if name.strip()])
        schema = SeriesSchema.fit(file, rows - held_out, length, lag, static, past, horizon)
    else:
        schema = schema.trained_on(file, rows - held_out)
    features = schema.features(file)[:rows]
    facts = {
        "source": fingerprint(source),
        "rows": {"train": rows - held_out, "valid": held_out},
        "future": file.future,
        "step": None if file.frequency is None else str(file.frequency),
        "season": schema.season,
        "items": None if file.item is None else len(file.targets),
        "missing": {part: int(count) for part, count in zip(("train", "valid"), _missing(file, held_out), strict=True)},
        "repeated": file.repeated,
    }
    with StoreWriter(folder, _MANIFEST) as writer:
        schema.save(writer.path("schema.json"))
        writer.array("values", file.values)
        writer.array("features", features)
        writer.array("spans", file.spans)
        writer.finish(facts)
    return open_series(folder)


def open_series(folder: str | Path) -> PreparedSeries:
    """Open a folder written by `prepare_series`; raises the errors of `Store`."""
    store = Store(folder, _MANIFEST, "series")
    schema, facts = SeriesSchema.load(store.directory / "schema.json"), store.manifest
    with store.checked():
        rows, train_rows = facts["rows"]["train"] + facts["rows"]["valid"], facts["rows"]["train"]
        values = store.array("values", "f8", (rows, len(schema.targets)))
        own = schema.item is not None and bool(schema.covariates or schema.statics)
        shape = (rows, len(schema.targets), schema.num_covariates) if own else (rows, schema.num_covariates)
        features = store.array("features", "f8", shape)
        spans = store.array("spans", "i8", (len(schema.targets), 2))
        if not ((spans >= 0).all() and (spans[:, 0] <= spans[:, 1]).all() and (spans <= rows).all()):
            raise ValueError(f"expected spans of at most {rows} rows")
    return PreparedSeries(schema, values, features, np.array(spans), train_rows, facts)


def _missing(file: SeriesFile, held_out: int) -> tuple[int, int]:
    """Missing values inside the spans of the series, of the rows to train on and of those held out."""
    rows = np.arange(len(file.values))[:, None]
    missing = np.isnan(file.values) & (rows >= file.spans[:, 0]) & (rows < file.spans[:, 1])
    return missing[:-held_out].sum(), missing[-held_out:].sum()
