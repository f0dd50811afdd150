"""Fill in the gaps of a table."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from cyclopts import Parameter

from chainrule.option_error import OptionError, option
from chainrule_app.results import Column, Result
from chainrule_app.tasks.config import Number
from chainrule_app.tasks.table.prediction import CellOptions, Kind, PredictedCell, Predictor, row_count

if TYPE_CHECKING:
    from chainrule_app.tasks.table.task import TableTask


@dataclass(frozen=True)
class TableFilling(CellOptions):
    """Fill in the gaps of a table: every empty cell and missing column, given the other cells of its row.

    Known cells are written as they are. Each gap gets its own mean, most probable value or median given all known
    cells; `--with draw` draws the gaps of a row together, for multiple imputation.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "file": "A table with empty cells.",
        "out": "A CSV file (.csv.gz compresses it) or a Parquet file; standard output by default.",
    }

    values: Annotated[Kind, Parameter(name="--with")] = "mean"
    """What a gap gets: the mean (of a number; the median of a date), the most probable value (mode), the median, or a
    draw. Categories get the most probable one, except with draw."""
    n: Annotated[Number, Parameter(name=["-n", "--number"])] = 1
    """Copies of each row; with --with draw."""


def fill_table(run: "TableTask", file: str, options: TableFilling, *, device: str) -> Result:
    if options.n > 1 and options.values != "draw":
        raise OptionError("n", f"requires {option('values', 'draw')}", "the others give equal copies")
    columns, _ = run.schema.partial(file)
    named = [Column(column.name, parse=column.parsed) for column in columns]
    predictor = Predictor(run, options, device, 0.8)
    filled: list[PredictedCell] = []
    rows = (
        predictor.drawn(file, options.n) if options.values == "draw" else predictor.filled(file, options.values, filled)
    )

    def cells() -> Result:
        names = [Column(name) for name in ("line", "column", "value", "low", "high", "probability")]
        others = [Column(name) for name in ("missing", "shares", "how")]
        listed = (
            [one.row.line, one.column.name, one.chosen(options.values), one.low, one.high, one.probability, one.missing,
             one.shares, one.how]
            for one in filled
        )  # fmt: skip
        return Result([*names, *others], listed)

    form: Literal["csv", "cells"] = "csv" if run.schema.header else "cells"
    about = {"seed": predictor.seed} if options.values == "draw" else {}
    count = row_count(file)
    hints = {"rows": None if count is None else count * options.n}
    views = {} if options.values == "draw" else {"cell": cells}
    return Result(named, rows, about=about, notes=predictor.notes, form=form, framed=True, hints=hints, views=views)
