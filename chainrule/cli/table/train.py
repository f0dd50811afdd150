"""`chainrule train rows.csv`: a table becomes a run directory."""

import re
import sys
from collections.abc import Iterable, Sequence
from copy import deepcopy
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from chainrule.cli.command_line import quoted
from chainrule.cli.options import DATA, MODEL, RUN, TRAINING, RunFlags
from chainrule.cli.trainer import Shard, Trainer, train_run
from chainrule.runs.config import RunConfig
from chainrule.runs.run import TABLE
from chainrule.runs.table import TableData, TableOptions, TableRun, TableTraining

if TYPE_CHECKING:
    from chainrule.data.tables import TableSchema
    from chainrule.training import TrainingBatches, ValidationBatches
    from chainrule.training.loop import TrainingResult
    from chainrule.training.validation import OnValidation

_ROWS = 1024  # of a validation batch
_SHOWN = 3
_LARGE = 50 << 20  # bytes of a file that takes a minute to read without polars


def train(
    data: Path | None = None,
    /,
    *,
    run: Annotated[RunFlags, Parameter(name="*", group=RUN)] = RunFlags(),
    validation: Annotated[Path | None, Parameter(group=DATA)] = None,
    table: Annotated[TableData, Parameter(name="*", group=DATA)] = TableData(),
    options: Annotated[TableOptions, Parameter(name="*", group=MODEL)] = TableOptions(),
    training: Annotated[TableTraining, Parameter(name="*", group=TRAINING)] = TableTraining(),
    given: Annotated[frozenset[str], Parameter(parse=False)],
) -> int:
    """Train a MADE on the rows of a table of mixed columns.

    Args:
        data: A table: .csv, .csv.gz, .tsv or .parquet. It is read as a text where --level or --reading is given.
        validation: A table to hold out in place of some rows of DATA.
    """
    if data is None and not run.resume:
        raise ValueError("DATA: expected a table to train on, got none")
    parse_types(table.types)
    asked = RunConfig(
        sources={"source": str(data), "validation": None if validation is None else str(validation)},
        data=table,
        facts={},
        model="made",
        options=options,
        extent=run.extent("1m"),
        training=training,
    )
    out = run.out or Path("runs") / f"{data.name.partition('.')[0] if data else 'table'}-made"
    return train_run(TableTrainer(), asked, out, run, given)


def parse_types(text: str) -> dict[str, str]:
    """The kinds of columns that a user named.

    >>> parse_types("age=real, zip=categorical")
    {'age': 'real', 'zip': 'categorical'}
    """
    pairs = [pair.rpartition("=") for pair in text.split(",") if pair.strip()]
    for name, _, kind in pairs:
        if not name.strip() or not kind.strip():
            raise ValueError(f"--types: expected COLUMN=KIND, separated by commas, got {name or kind!r}")
    return {name.strip(): kind.strip() for name, _, kind in pairs}


class TableTrainer(Trainer[TableRun]):
    """How a table is prepared and trained on."""

    RUN = TableRun

    def prepare(self, draft: TableRun) -> dict[str, Any]:
        from chainrule.data.tables import prepare_table, reads_quickly
        from chainrule.runs.memory import check_memory

        data, sources = draft.data, draft.config.sources
        assert sources["source"] is not None
        size = Path(sources["source"]).stat().st_size if Path(sources["source"]).is_file() else 0
        if size > _LARGE and not reads_quickly():
            print(
                f"{sources['source']}: {size >> 20} MiB, read without polars, which would take a tenth of the time: "
                "pip install 'chainrule[tables]'",
                file=sys.stderr,
            )

        def fits(schema: "TableSchema") -> None:
            columns, weights = len(schema.kept), draft.count_weights(schema)
            check_memory(
                weights,
                f"{sources['source']}: {columns:,} columns",
                "leave columns out with --types NAME=skip, or give fewer --components",
            )

        table = prepare_table(
            sources["source"],
            draft.path / TABLE,
            types=parse_types(data.types),  # type: ignore[arg-type]  # which kinds there are is checked there
            header={"auto": None, "yes": True, "no": False}[data.header],
            validation=sources["validation"],
            validation_fraction=data.validation_fraction,
            min_count=data.min_count,
            seed=draft.config.training.seed,
            check=fits,
        )
        return table.manifest

    def is_prepared(self, run: TableRun) -> bool:
        return (run.path / TABLE / "table.json").is_file()

    def batches(self, run: TableRun, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule.data.tables import TableBatches, table_evaluation

        table, training = run.table(), run.config.training
        batches = TableBatches(table.train, training.batch_size, training.seed, shard)
        return batches, lambda: table_evaluation(table.valid, _ROWS)

    def introduce(self, run: TableRun) -> Iterable[str]:
        table = run.config.facts
        yield (
            f"{table['source']['name']}, read as a table (--level char reads it as text): "
            f"{table['rows']['train']:,} rows to train on, {table['rows']['valid']:,} held out, "
            + ("with a header" if run.schema.header else "without a header")
        )
        yield from ("  " + line for line in columns_table(table))

    def on_validation(self, run: TableRun) -> "OnValidation":
        def preview(trained: Any, step: int, seconds: float) -> str:
            import torch

            device = next(trained.parameters()).device
            sampler = deepcopy(trained)
            sampler.exclude(run.schema.unseen())
            drawn = sampler.sample(_SHOWN, generator=torch.Generator(device).manual_seed(step))
            return "\n".join(", ".join(map(_short, row)) for row in run.schema.decode(drawn.cpu().numpy()))

        return preview

    def summary(self, run: TableRun, result: "TrainingResult") -> tuple[dict[str, Any], str]:
        best, width, rows = result.best, len(run.schema.kept), run.config.facts["rows"]["valid"]
        part = "" if best.elements >= width * rows else f"first {best.elements // width:,} of the "
        nats = best.nats_per_element * width
        return (
            {"nats_per_row": nats},
            f"{nats:.4f} nats per row on the {part}held-out rows ({width} columns)",
        )

    def next_steps(self, run: TableRun) -> Sequence[str]:
        path = quoted(run.path)
        return [
            f"chainrule sample {path} -n 16 --out rows.csv",
            f"chainrule score {path} {quote(str(run.config.sources['source']))} --sort",
        ]


def columns_table(table: dict[str, Any]) -> list[str]:
    """The columns as they were found, a line each."""
    rows = [("column", "kind", "different", "missing")]
    for column in table["columns"]:
        kind = column["kind"] if column["kind"] == column["found"] else f"{column['kind']} (not {column['found']})"
        rows.append((column["name"], kind, column["distinct"], f"{column['missing']:,}"))
    name, kind, count = (max(len(row[place]) for row in rows) for place in range(3))
    return [f"{row[0]:<{name}}  {row[1]:<{kind}}  {row[2]:>{count}}  {row[3]:>7}" for row in rows]


def _short(cell: str) -> str:
    """A real number in five digits: a preview is to be read, a sample written to a file keeps them all."""
    return f"{float(cell):.5g}" if len(cell) > 8 and re.fullmatch(r"-?[0-9.]+(e[-+]?[0-9]+)?", cell) else cell
