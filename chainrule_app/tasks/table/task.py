"""Tables: rows of mixed columns, and a masked network over them.

data/schema.json               columns, their kinds and categories
data/train.rows, valid.rows    the rows as numbers
data/table.json                counts and fingerprints
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from chainrule_app.heavy import modes, torch
from chainrule_app.readers import tables as table_reader
from chainrule_app.readers.origin import is_path
from chainrule_app.tasks.config import (
    Facts,
    Fingerprint,
    HeaderOptions,
    OptimisationOptions,
    Parts,
    RunConfig,
    within,
)
from chainrule_app.tasks.display import aligned, counted, shortened
from chainrule_app.tasks.likelihood_record import Basis
from chainrule_app.tasks.model import Model, check_memory
from chainrule_app.tasks.run_directory import DATA
from chainrule_app.tasks.size_schedule import describe_passes, limit_passes
from chainrule_app.tasks.task import Shard, Source, Task

if TYPE_CHECKING:
    from chainrule.models import TableMADE
    from chainrule.training import Evaluation as Measurement
    from chainrule.training import TrainingBatches, ValidationBatches
    from chainrule_app.readers.tables.prepare import Table, TableSchema
    from chainrule_app.tasks.preview import OnValidation

_ROWS = 1024  # of a validation batch
_SHOWN_ROWS = 3
_LISTED_COLUMNS, _PREVIEW_WIDTH = 24, 160  # columns that are all listed; characters of a row drawn in training
_MOST_PASSES = 100.0
_FEW_ROWS, _DROPOUT_OF_FEW = 20, 0.5  # rows a feature; dna of MADE's paper: 84.1 nats by 0.5, 86.8 by 0.1


@dataclass(frozen=True)
class TableData(HeaderOptions):
    types: str = ""
    """Override detected column types: COLUMN=KIND,... with categorical, integer, real, date or skip."""
    min_count: int = within(2, 1, 1 << 40)
    """Rarer categories become <other>."""


@dataclass(frozen=True)
class TableTraining(OptimisationOptions):
    """Training options of a table: rows are short and many."""

    batch_size: int = within(128, 1, 1 << 24)
    learning_rate: float = within(3e-3, 0.0, 1e3)


@dataclass(frozen=True)
class FoundColumn:
    """Column of the file: kinds in the model and in the file, counts, and a doubt."""

    name: str
    kind: str
    found: str
    missing: int
    distinct: str  # "at least 1,000" for many values
    doubt: str | None


@dataclass(frozen=True)
class TableFacts(Facts):
    validation: Fingerprint | None
    rows: Parts
    columns: list[FoundColumn]


class TableTask(Task["TableMADE"]):
    name = "table"
    help = "Train a model of the rows of a table of mixed columns: a MADE."
    SOURCES: ClassVar[dict[str, Source]] = {
        "source": Source(
            "A table: .csv, .csv.gz, .tsv or .parquet. With --level or --reading it is read as text.", needed="a table"
        ),
        "validation": Source("Table to hold out; random rows of DATA by default.", "--validation"),
    }
    Data = TableData
    Facts = TableFacts
    Training = TableTraining
    NEEDS_FLOAT64 = True
    MODELS: ClassVar[dict[str, Model]] = {"made": Model("TableMADE")}
    BUDGET = "1m"
    PREPARED = f"{DATA}/table.json"
    verb = "predict"
    NEXT = (
        "chainrule sample {run} -n 16 --out sampled.csv",
        "chainrule score {run} FILE --sort",
        "chainrule fill {run} FILE --out filled.csv",
    )

    @classmethod
    def check_asked(cls, request: RunConfig, explicit_flags: frozenset[str]) -> None:
        super().check_asked(request, explicit_flags)
        table_reader.parse_types(request.data.types)

    @cached_property
    def schema(self) -> "TableSchema":
        return table_reader.TableSchema.load(self.path / DATA / "schema.json")

    def table(self) -> "Table":
        return table_reader.open_table(self.path / DATA)

    def prepare(self, old: "TableTask | None" = None) -> dict[str, Any]:
        from chainrule_app.readers.tables.prepare import prepare_table

        data, source = self.data, self.source

        def fits(schema: "TableSchema") -> None:
            check_memory(
                self._count_weights(schema),
                f"{source}: {counted(len(schema.kept), 'column')}",
                "skip columns with --types NAME=skip, or reduce --components",
            )

        table = prepare_table(
            source,
            self.path / DATA,
            types=table_reader.parse_types(data.types),
            header=data.has_header,
            validation=self.config.sources["validation"],
            validation_fraction=data.validation_fraction,
            min_count=data.min_count,
            seed=self.training.seed,
            check=fits,
            like=None if old is None else (old.schema, [asdict(column) for column in old.facts.columns]),
        )
        if is_path(source) and (notice := table_reader.TableFile(source, header=self.schema.header).left_out()):
            print(notice, file=sys.stderr)
        return table.manifest

    def plan(self, explicit_flags: frozenset[str]) -> RunConfig:
        """Limit the passes over the rows, with more dropout for few rows: these are soon overfitted."""
        config, table, options = self.config, self.table(), self.config.options
        if "--dropout" not in explicit_flags and len(table.train) < _FEW_ROWS * self._features(self.schema):
            options = replace(options, dropout=_DROPOUT_OF_FEW)
        config = replace(config, options=options)
        if config.duration.budget is None:
            return config
        batches = table_reader.table_batches(table.train, config.training.batch_size, config.training.seed)
        model = self.with_options(**asdict(options)).new_model(config.training.seed)
        rows = config.training.batch_size
        return limit_passes(config, model, batches, _MOST_PASSES, elements=rows, options=["dropout"])

    def choice(self) -> str:
        return f"{describe_passes(self.config, 'rows', 'rows')}: dropout {self.config.options.dropout:g}"

    def build(self) -> "TableMADE":
        return self.built(columns=self.schema.heads())

    def fewest_weights(self) -> int:
        return self._count_weights(self.schema)

    def _count_weights(self, schema: "TableSchema") -> int:
        """Count the weights of the model of a schema, without biases."""
        options, heads, features = self.config.options, schema.heads(), self._features(schema)
        outputs = sum(column.outputs(options.components) for column in heads)
        widths = [features, *[options.hidden_size] * options.num_layers, outputs]
        past_hidden = features * outputs if options.direct and options.num_layers else 0
        return sum(a * b for a, b in pairwise(widths)) + past_hidden

    @staticmethod
    def _features(schema: "TableSchema") -> int:
        return sum(column.features() for column in schema.heads())

    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        table, training = self.table(), self.training
        batches = table_reader.table_batches(table.train, training.batch_size, training.seed, shard)
        return batches, lambda: table_reader.table_evaluation(table.valid, _ROWS)

    def introduce(self) -> Iterable[str]:
        facts = self.facts
        yield (
            f"{facts.source.name}, read as a table (--level char reads it as text): "
            f"{counted(facts.rows.train, 'row')} to train on, {facts.rows.valid:,} held out, "
            + ("with a header" if self.schema.header else "without a header")
        )
        yield from ("  " + line for line in _columns_table(facts.columns))
        for column in facts.columns:
            if column.doubt and column.kind == "categorical":
                yield f"  {column.name}: {column.doubt}"
        for schema in self.schema.kept:
            if schema.dates is not None and schema.dates.mixed:
                yield f"  {schema.name}: several offsets from UTC: read as moments, and written in UTC"

    def on_validation(self) -> "OnValidation":
        def preview(trained: Any, step: int, seconds: float) -> str:
            device = modes.device_of(trained)
            sampler = deepcopy(trained)
            sampler.exclude(self.schema.unseen())
            drawn = sampler.sample(_SHOWN_ROWS, generator=torch.Generator(device).manual_seed(step))
            rows = self.schema.decode(drawn.cpu().numpy())
            return "\n".join(shortened(", ".join(_short(cell or "") for cell in row), _PREVIEW_WIDTH) for row in rows)

        return preview

    def best(self, evaluation: "Measurement", value: float | None, rows: int) -> tuple[dict[str, Any], str]:
        width, held_out = len(self.schema.kept), self.facts.rows.valid
        part = "" if evaluation.elements >= width * held_out else f"first {evaluation.elements // width:,} of the "
        nats = evaluation.nats_per_element * width
        return {
            "nats_per_row": nats
        }, f"{nats:.4f} nats per row on the {part}held-out rows ({counted(width, 'column')})"

    @property
    def basis(self) -> Basis:
        schema = sha256((self.path / DATA / "schema.json").read_bytes()).hexdigest()
        base_measure = f"{counted(len(self.schema.kept), 'column')} ({schema[:8]}), real ones by density"
        return Basis("column", base_measure)


def _columns_table(columns: Sequence[FoundColumn]) -> list[str]:
    """List the columns, one line each; of a wide table count the rest by kind."""
    listed = columns if len(columns) <= _LISTED_COLUMNS else columns[: _LISTED_COLUMNS // 2]
    rows = [("column", "kind", "different", "missing")]
    for column in listed:
        kind = column.kind if column.kind == column.found else f"{column.kind} (not {column.found})"
        rows.append((column.name, kind, column.distinct, f"{column.missing:,}"))
    lines = aligned(rows, left=(0, 1))
    others = columns[len(listed) :]
    if others:
        counts = Counter(column.kind for column in others).most_common()
        lines.append(f"and {len(others)} more: " + ", ".join(f"{count} {kind}" for kind, count in counts))
    return lines


def _short(cell: str) -> str:
    """Shorten a real number to five digits for previews; integers may be names.

    >>> _short("0.123456789"), _short("0.123456"), _short("9007199254740993")
    ('0.12346', '0.123456', '9007199254740993')
    """
    return f"{float(cell):.5g}" if len(cell) > 8 and re.fullmatch(r"-?[0-9]*\.[0-9]+(e[-+]?[0-9]+)?", cell) else cell
