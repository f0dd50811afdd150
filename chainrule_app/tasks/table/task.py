"""Tables: rows of mixed columns, and a masked network over them.

data/schema.json               columns, their kinds and categories
data/train.rows, valid.rows    the rows as numbers
data/table.json                counts and fingerprints
"""

import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from chainrule.option_error import OptionError, option
from chainrule.ranges import Probability, Range, Size
from chainrule_app.heavy import modes, torch
from chainrule_app.printing import aligned, counted, listed, quoted, shortened, spelled
from chainrule_app.readers import tables as table_reader
from chainrule_app.tasks.config import CheckedOptions, Facts, Fingerprint, Model, Parts, Planned, RunConfig
from chainrule_app.tasks.likelihood_record import Basis
from chainrule_app.tasks.model_size import check_memory
from chainrule_app.tasks.options import (
    BatchSize,
    Components,
    HeaderOptions,
    LearningRate,
    Members,
    MinCount,
    OptimisationOptions,
)
from chainrule_app.tasks.run_directory import DATA, NEIGHBOURS
from chainrule_app.tasks.size_schedule import describe_passes, limit_passes
from chainrule_app.tasks.table import trial
from chainrule_app.tasks.table.neighbours import keep_neighbours, with_neighbours
from chainrule_app.tasks.task import Shard, Source, Task

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from chainrule.models import TableEnsemble, TableMADE, TableNeighbours
    from chainrule.training import Evaluation as Measurement
    from chainrule.training import TrainingBatches, ValidationBatches, ValidationMetric
    from chainrule_app.readers.tables.prepare import Table, TableSchema
    from chainrule_app.tasks.preview import OnValidation

_ROWS = 1024  # of a validation batch
_SHOWN_ROWS = 3
_LISTED_COLUMNS, _PREVIEW_WIDTH = 24, 160  # columns that are all listed; characters of a row drawn in training
_MOST_PASSES, _MOST_MEMBERS = 100.0, 4
_MOST_DIRECT = 1 << 24  # direct weights by default: of 1,000 columns, half of them numbers, there are 170 million
_TARGET_WEIGHT = 3.0  # of the log-likelihood of --target in training; see benchmarks/LOG.md
_TRIED = 4096  # held-out rows of a trial's validation
_DROPOUT_OF_FEW = {20: 0.5, 200: 0.2}  # by rows a feature; dna of MADE's paper: 84.1 nats by 0.5, 86.8 by 0.1


@dataclass(frozen=True)
class TableData(HeaderOptions):
    types: str = ""
    """Override detected column types: COLUMN=KIND,... with categorical, integer, real, date or skip."""
    min_count: MinCount = 2
    """Rarer categories become <other>."""
    target: str | None = None
    """Column to predict from all others: the model visits it last, and is chosen by its held-out nats alone."""


@dataclass(frozen=True)
class TableTraining(OptimisationOptions):
    """Training options of a table: rows are short and many."""

    batch_size: BatchSize = 128
    learning_rate: LearningRate = 3e-3
    neighbours: Annotated[int, Range(0, 1 << 17)] = 5_000
    """Training rows among which a categorical --target looks for similar ones, to count their values; 0 for none."""


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
class MADEOptions(CheckedOptions):
    hidden_size: Size = 256
    """Units of each layer."""
    num_layers: Annotated[int, Range(0, 256)] = 2
    """Hidden layers; 0 makes all connections direct."""
    components: Components = 8
    """Mixture components of a numeric column."""
    knots: Annotated[int, Range(0, 1024)] = 16
    """Pieces of the piecewise linear functions that the first layer may be of a number; 0 for linear ones."""
    direct: bool = True
    """Connect each column to later outputs directly, past the hidden layers; by default where this takes at most 16
    million weights, as their number grows with the square of the columns."""
    dropout: Probability = 0.1
    """Share of hidden units dropped in training; by default 0.5 for few rows."""
    num_members: Members | None = None
    """Models to train separately and average; time and memory grow in proportion. Depends on the budget by default."""


@dataclass(frozen=True)
class TableFacts(Facts):
    validation: Fingerprint | None
    rows: Parts
    columns: list[FoundColumn]


class TableTask(Task["TableMADE | TableEnsemble | TableNeighbours"]):
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
    MODELS: ClassVar[dict[str, Model]] = {"made": Model("TableMADE", MADEOptions, planned=("num_members",))}
    BUDGET = "1m"
    PLAIN: ClassVar[dict[str, Any]] = {"num_members": 1, "neighbours": 0}
    PREPARED = f"{DATA}/table.json"
    verb = "predict"
    NEXT = (
        "chainrule sample {run} -n 16 --out sampled.csv",
        "chainrule score {run} FILE --sort",
        "chainrule fill {run} FILE --out filled.csv",
    )

    @classmethod
    def check_asked(cls, request: RunConfig, given: frozenset[str]) -> None:
        super().check_asked(request, given)
        table_reader.parse_types(request.data.types)
        if request.data.target is None and request.training.neighbours not in (0, TableTraining.neighbours):
            raise OptionError("neighbours", f"requires {option('target')}")

    @cached_property
    def schema(self) -> "TableSchema":
        return table_reader.TableSchema.load(self.path / DATA / "schema.json")

    def table(self) -> "Table":
        return table_reader.open_table(self.path / DATA)

    def prepare(self, old: "TableTask | None" = None) -> dict[str, Any]:
        from chainrule_app.readers.tables.prepare import prepare_table

        data, source = self.data, self.source

        def fits(schema: "TableSchema") -> None:
            if data.target not in (None, *(names := [column.name for column in schema.kept])):
                hint = "" if schema.header else f"the first row was read as data; see {option('header')}"
                raise OptionError("target", f"expected one of {listed(names, 100)}, got {data.target!r:.60}", hint)
            what = f"{source}: {counted(len(schema.kept), 'column')}"
            remedy = f"skip columns with {option('types', 'NAME=skip')}, or reduce {option('components')}"
            check_memory(self._count_weights(schema), what, remedy, shard=self.training.shard)

        header = data.has_header if old is None else old.schema.header
        file = source if isinstance(source, table_reader.FrameTable) else table_reader.TableFile(source, header=header)
        table = prepare_table(
            file,
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
        if isinstance(file, table_reader.TableFile) and (notice := file.left_out()):
            print(notice, file=sys.stderr)
        return table.manifest

    def plan(self, given: frozenset[str]) -> Planned:
        """Limit the passes over the rows, with more dropout for few rows: these are soon overfitted.

        A trial finds out how soon. The time that remains trains several networks, whose conditionals are averaged.
        """
        config, table, options, training = self.config, self.table(), self.config.options, self.training
        if self.has_neighbours:
            source = self.facts.source.sha256
            keep_neighbours(self.path / NEIGHBOURS, table.train, training.neighbours, seed=training.seed, source=source)
        features = sum(column.features() - len(column.atoms) for column in self.schema.heads())
        if "dropout" not in given:
            fitting = (share for most, share in _DROPOUT_OF_FEW.items() if len(table.train) < most * features)
            options = replace(options, dropout=next(fitting, options.dropout))
        open_number = options.num_members is None
        direct = options.direct and ("direct" in given or self._count_direct(self.schema) <= _MOST_DIRECT)
        options = replace(options, num_members=options.num_members or 1, direct=direct)
        config = replace(config, options=options)
        if config.duration.budget is None:
            return Planned(config)
        rows = config.training.batch_size
        batches = table_reader.table_batches(table.train, rows, config.training.seed)
        timed = type(self)(self.path, config).timed(batches)
        rate, most, members = timed.steps_per_second, _MOST_PASSES, _MOST_MEMBERS if open_number else 1
        if not torch.distributed.is_initialized():  # a trial of one process says little about the speed of several
            device, budget = self.device(config.training.device), config.duration.budget
            tried = trial.try_training(
                timed.network, batches, self._held_out_nats, config.training, device, budget, _MOST_PASSES
            )
            print(tried, file=sys.stderr)
            most = tried.most_passes(_MOST_PASSES, batches.steps_per_epoch)
        chosen = ["dropout", *(["direct"] if direct != self.config.options.direct else [])]
        limited = limit_passes(config, rate, batches, most, elements=rows, options=chosen, most_members=members)
        return Planned(limited, timed)

    def _held_out_nats(self, model: Any) -> "torch.Tensor":
        """Return the nats of the first held-out rows, or of their target, (B,)."""
        rows = torch.from_numpy(self.table().valid[:_TRIED].copy()).to(modes.device_of(model))
        logs = model(rows).log_prob(rows)
        return -(logs.sum(1) if self._target is None else logs[:, self._target]).double().cpu()

    def choice(self) -> str:
        return f"{describe_passes(self.config, 'rows', 'rows')}: dropout {self.config.options.dropout:g}"

    def build(self) -> "TableMADE | TableEnsemble":
        from chainrule.models import TableEnsemble

        columns, number = self.schema.heads(), self.config.options.num_members or 1
        one = self.with_options(num_members=1)
        weights = None
        if self._target is not None:
            weights = [_TARGET_WEIGHT if index == self._target else 1.0 for index in range(len(columns))]
        members = [one.built(columns=columns, order=self._order, weights=weights) for _ in range(number)]
        return members[0] if number == 1 else TableEnsemble(members)

    def completed(self, network: Any) -> "TableMADE | TableEnsemble | TableNeighbours":
        """Let the target count its neighbours among the training rows, if it is categorical."""
        if not self.has_neighbours:
            return network
        return with_neighbours(self.path / NEIGHBOURS, network, source=self.facts.source.sha256)

    @property
    def has_neighbours(self) -> bool:
        """True if the model's last column counts near training rows."""
        target = self._target
        return target is not None and self.training.neighbours > 0 and self.schema.kept[target].kind == "categorical"

    def added_parts(self) -> Sequence[str]:
        return [f"neighbours of {self.data.target}"] if self.has_neighbours else []

    def options_in_weights(self) -> dict[str, Any]:
        return {"neighbours": self.training.neighbours}

    @property
    def _target(self) -> int | None:
        if self.data.target is None:
            return None
        return [column.name for column in self.schema.kept].index(self.data.target)

    @property
    def _order(self) -> list[int] | None:
        """Return the order in which the model visits the columns: that of the table, but the target last."""
        if self._target is None:
            return None
        return [*(index for index in range(len(self.schema.kept)) if index != self._target), self._target]

    def fewest_weights(self) -> int:
        return self._count_weights(self.schema)

    def _ends(self, schema: "TableSchema") -> tuple[int, int]:
        """Count the features that the network of a schema reads, and its outputs."""
        options, heads = self.config.options, schema.heads()
        features = sum(column.features(options.knots) for column in heads)
        return features, sum(column.outputs(options.components) for column in heads)

    def _count_direct(self, schema: "TableSchema") -> int:
        return math.prod(self._ends(schema)) if self.config.options.num_layers else 0

    def _count_weights(self, schema: "TableSchema") -> int:
        """Count the weights of the model of a schema, without biases and without more direct ones than the default."""
        options, (features, outputs) = self.config.options, self._ends(schema)
        widths = [features, *[options.hidden_size] * options.num_layers, outputs]
        direct = self._count_direct(schema) if options.direct and self._count_direct(schema) <= _MOST_DIRECT else 0
        return (options.num_members or 1) * (sum(a * b for a, b in pairwise(widths)) + direct)

    @property
    def metric_name(self) -> str:
        return "" if self.data.target is None else "target_log_prob"

    def validation_metric(self) -> "ValidationMetric | None":
        """Return the mean log-probability of the target given all other cells, by which the best weights are chosen."""
        target = self._target
        if target is None:
            return None
        from chainrule.training import MetricValue, ValidationMetric

        valid = torch.from_numpy(self.table().valid.copy())

        def answer(model: Any, rows: "npt.NDArray[np.int64]") -> list[float]:
            parts = valid[torch.from_numpy(rows)].split(_ROWS)
            x = [part.to(modes.device_of(model)) for part in parts]
            return [log for part in x for log in model(part).log_prob(part)[:, target].tolist()]

        def compare(rows: "npt.NDArray[np.int64]", answers: Sequence[float], step: int) -> MetricValue:
            return MetricValue(self.metric_name, sum(answers) / len(answers))

        return ValidationMetric(len(valid), answer, compare)

    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        table, training = self.table(), self.training
        batches = table_reader.table_batches(table.train, training.batch_size, training.seed, shard)
        return batches, lambda: table_reader.table_evaluation(table.valid, _ROWS)

    def introduce(self) -> Iterable[str]:
        facts = self.facts
        yield (
            f"{facts.source.name}, read as a table ({spelled('level', 'char')} reads it as text): "
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
        line = f"{nats:.4f} nats per row on the {part}held-out rows ({counted(width, 'column')})"
        if value is None:
            return {"nats_per_row": nats}, line
        about = f"{self.data.target}: {-value:.4f} nats given the rest"
        return {"nats_per_row": nats, "target_nats": -value}, f"{about}; {line}"

    def next_steps(self) -> Sequence[str]:
        steps = super().next_steps()
        if self.data.target is None:
            return steps
        return [f"chainrule predict {quoted(self.path)} FILE --column {quote(self.data.target)}", *steps]

    @property
    def basis(self) -> Basis:
        schema = sha256((self.path / DATA / "schema.json").read_bytes()).hexdigest()
        base_measure = f"{counted(len(self.schema.kept), 'column')} ({schema[:8]}), real ones by density"
        return Basis("column", base_measure)


def _columns_table(columns: Sequence[FoundColumn]) -> list[str]:
    """List the columns, one line each; of a wide table count the rest by kind."""
    shown = columns if len(columns) <= _LISTED_COLUMNS else columns[: _LISTED_COLUMNS // 2]
    rows = [("column", "kind", "different", "missing")]
    for column in shown:
        kind = column.kind if column.kind == column.found else f"{column.kind} (not {column.found})"
        rows.append((column.name, kind, column.distinct, f"{column.missing:,}"))
    lines = aligned(rows, left=(0, 1))
    others = columns[len(shown) :]
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
