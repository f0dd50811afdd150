"""Series: columns of numbers, and a recurrence that forecasts them.

data/schema.json                 columns, step between rows, units
data/values, features            the series and what is known in advance, all rows
data/series.json                 counts and fingerprints
data/source, source.csv, ...     a copy of the file, which a forecast without data continues
"""

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from chainrule.option_error import OptionError, option
from chainrule.printing import one_line
from chainrule.ranges import Layers, Probability, Range
from chainrule_app.heavy import torch
from chainrule_app.printing import counted, listed, progress_bars, quoted
from chainrule_app.readers import series as series_reader
from chainrule_app.readers import tables as table_reader
from chainrule_app.tasks.capabilities import CheckedRows
from chainrule_app.tasks.config import CheckedOptions, Facts, Model, Parts, Planned
from chainrule_app.tasks.forecast.companions import lags_of
from chainrule_app.tasks.forecast.paths import draw_paths
from chainrule_app.tasks.likelihood_record import Basis
from chainrule_app.tasks.options import (
    Components,
    HeaderOptions,
    HeldOutShare,
    Horizon,
    LearningRate,
    Members,
    OptimisationOptions,
)
from chainrule_app.tasks.output import sparkline
from chainrule_app.tasks.run_directory import DATA, WEIGHTS
from chainrule_app.tasks.size_schedule import describe_passes, limit_passes, record_resolved, resolve_decay
from chainrule_app.tasks.task import Shard, Source, Task

if TYPE_CHECKING:
    from chainrule.training import Findings
    from chainrule_app.tasks.preview import Observe

if TYPE_CHECKING:
    from chainrule import AutoregressiveModel
    from chainrule.training import Evaluation as Measurement
    from chainrule.training import TrainingBatches, ValidationBatches
    from chainrule_app.readers.series.prepare import PreparedSeries
    from chainrule_app.readers.series.schema import SeriesSchema
    from chainrule_app.tasks.preview import Observe, OnValidation

_WARM_UP = 48  # rows read before a forecast in addition to those that lags reach, at least
_ROWS = 256  # of a validation batch
_SHOWN, _PATHS, _PAST = 3, 50, 24
_MOST_PASSES = 2  # over all windows, which overlap: each value is in many of them
# Steps are as many as training values, within these bounds: of a short series most of the weight is on what is fitted.
_FEWEST_STEPS, _ENOUGH_STEPS = 200, 1000
_MOST_MEMBERS, _MOST_OF_FEW = 4, 2  # models, and of a series with fewer training values than enough steps
_PATIENCE = 0.25  # share of the validations of a short series without improvement, after which it is given up
_CHECKED_ROWS, _CHECKED_STEPS = 4, 8

# Beside the network, in order.
_FITTED = {"linear": "linear autoregression", "smoothing": "exponential smoothing", "walk": "random walk"}


@dataclass(frozen=True)
class ForecastData(HeaderOptions):
    target: str | None = None
    """Columns to forecast, separated by commas, or all; required if there are several."""
    horizon: Horizon = 24
    """Rows to forecast."""
    covariates: str = ""
    """Columns known in advance, separated by commas."""
    past_covariates: str = ""
    """Columns known up to the present only, separated by commas; their values a horizon ago are read."""
    date: str = "auto"
    """Column of dates: its name, auto to detect it, none to count rows."""
    item: str = "auto"
    """Column that names the series of each row, in a file in long form: its name, auto for item_id, or none."""
    static: str = ""
    """Columns with one value for each item, separated by commas."""
    date_format: str = ""
    """Notation of the dates, such as %d/%m/%Y; by default ISO 8601 or day.month.year."""
    season: Annotated[int, Range(1, 1 << 20)] | None = None
    """Rows of a season; by default 24 for hours, 7 for days, 12 for months."""
    anchor: Literal["last", "season", "centre"] = "last"
    """Reference of a step: the last value, the value one season ago, or the centre of the series."""
    history: Annotated[int, Range(1, 1 << 20)] | None = None
    """Rows that a forecast reads; by default the longest lag and a little more."""
    validation_fraction: HeldOutShare = 0.1
    """Share of the rows to hold out, from the end."""


@dataclass(frozen=True)
class ForecasterOptions(CheckedOptions):
    hidden_size: Annotated[int, Range(1, 16384)] = 64
    """Units of each layer."""
    num_layers: Layers = 1
    """Recurrent layers."""
    dropout: Probability = 0.1
    """Share of features zeroed in training, between layers and before the output."""
    head: Literal["student", "normal"] = "student"
    """Components of the mixture of each step: student, which has heavier tails, or normal."""
    components: Components = 2
    """Number of mixture components."""
    num_members: Members | None = None
    """Models to train separately and average; time and memory grow in proportion. Depends on the budget by default."""


@dataclass(frozen=True)
class ForecastTraining(OptimisationOptions):
    optimiser: Literal["adamw", "muon"] = "muon"
    learning_rate: LearningRate = 3e-3
    """Peak learning rate; 0.002 by default with AdamW."""
    linear: bool = True
    """Average the network with a linear autoregression and exponential smoothing, weighted by the held-out rows; these
    may also choose a random walk alone."""


@dataclass(frozen=True)
class SeriesFacts(Facts):
    rows: Parts
    future: int  # number of later rows with known covariates
    step: str | None  # step between dated rows
    season: int
    items: int | None  # number of items in long form
    missing: Parts  # number of values that are not in the file
    repeated: int  # number of covariates that are not, which repeat the one before


class ForecastTask(Task["AutoregressiveModel"]):
    name = "forecast"
    help = "Train a forecaster on series: one row per time and one column per series, or one row per time and item."
    SOURCES: ClassVar[dict[str, Source]] = {
        "source": Source("A CSV file, with or without a header; may be gzip-compressed.", needed="a file of series")
    }
    Data = ForecastData
    Facts = SeriesFacts
    Training = ForecastTraining
    NEEDS_FLOAT64 = True
    MODELS: ClassVar[dict[str, Model]] = {
        name: Model("Forecaster", ForecasterOptions, fixed={"cell": name}, planned=("num_members",))
        for name in ("lstm", "gru", "rnn")
    }
    DEFAULT_TRAINING: ClassVar[dict[str, dict[str, Any]]] = {
        name: {"learning_rate": {"adamw": 2e-3}} for name in MODELS
    }
    BUDGET = "1m"
    PLAIN: ClassVar[dict[str, Any]] = {"num_members": 1, "linear": False}
    WORDS: ClassVar[dict[str, str]] = dict.fromkeys(MODELS, "forecast")
    PREPARED = f"{DATA}/series.json"
    plots = continues = True

    @cached_property
    def schema(self) -> "SeriesSchema":
        return series_reader.SeriesSchema.load(self.path / DATA / "schema.json")

    def series(self) -> "PreparedSeries":
        return series_reader.open_series(self.path / DATA)

    @property
    def longest_lag(self) -> int:
        return max(self.schema.lags)

    @property
    def history(self) -> int:
        """Return the number of rows that a forecast reads."""
        warm_up = max(2 * self.data.horizon, _WARM_UP)
        default = self.longest_lag + min(warm_up, self.facts.rows.train // 3)
        return int(default) if self.data.history is None else max(self.data.history, self.longest_lag)

    def options_in_weights(self) -> dict[str, Any]:
        return {"linear": self.training.linear}

    @property
    def own_file(self) -> Path:
        """Return the path of the run's copy of what it was trained on: one file, whatever the user named."""
        folder = self.path / DATA
        return next(folder.glob("source*"), folder / "source")

    def prepare(self, old: "ForecastTask | None" = None) -> dict[str, Any]:
        from chainrule_app.readers.series.prepare import prepare_series

        source, options = self.source, asdict(self.data)
        del options["history"]  # of the forecasts
        options["header"] = self.data.has_header
        schema = None if old is None else old.schema
        facts = prepare_series(source, self.path / DATA, schema=schema, **options).facts
        if isinstance(source, table_reader.FrameTable):
            source.save(self.path / DATA / "source.parquet")
            return facts
        table_reader.save_table(source, self.path / DATA, "source")
        if notice := table_reader.TableFile(source, header=self.schema.header).left_out():
            print(notice, file=sys.stderr)
        return facts

    def plan(self, given: frozenset[str]) -> Planned:
        """Limit passes and choose the number of models: overlapping windows are soon overfitted."""
        batches, _ = self.batches((0, 1))
        config = resolve_decay(super().plan(given).config, batches.steps_per_epoch / 4, most=1.0)
        open_number = config.options.num_members is None
        if open_number:
            config = replace(config, options=replace(config.options, num_members=1))
        if config.duration.budget is None:
            return Planned(config)
        spans, rows = self.series().spans.tolist(), self.facts.rows.train
        values = sum(max(min(stop, rows) - start, 0) for start, stop in spans)
        steps = min(max(values, _FEWEST_STEPS), _ENOUGH_STEPS) if self.training.linear else _ENOUGH_STEPS
        most = float(max(_MOST_PASSES, math.ceil(steps / batches.steps_per_epoch)))
        timed = type(self)(self.path, config).timed(batches)
        several = _MOST_MEMBERS if steps == _ENOUGH_STEPS else _MOST_OF_FEW
        rate, members = timed.steps_per_second, several if open_number else 1
        limited = limit_passes(config, rate, batches, most, elements=batches.at(0).x.numel(), most_members=members)
        if most == _MOST_PASSES or limited.duration.epochs is None or limited.training.patience is not None:
            return Planned(limited, timed)
        validations = most * batches.steps_per_epoch / (limited.training.validate_every or 1)
        limited = replace(limited, training=replace(limited.training, patience=max(round(_PATIENCE * validations), 3)))
        return Planned(record_resolved(limited, ["patience"]), timed)

    def choice(self) -> str:
        return describe_passes(self.config, "values", "windows")

    def added_parts(self) -> Sequence[str]:
        return list(_FITTED.values()) if self.training.linear else []

    def completed(self, network: "AutoregressiveModel") -> "AutoregressiveModel":
        """Average a network with models that are fitted to its training rows, if the run has them."""
        if not self.training.linear:
            return network
        from chainrule.models import ForecastMixture

        schema, rows = self.schema, self.facts.rows.train
        mixture = ForecastMixture(
            network,
            schema.scalings,
            head=self.config.options.head,
            lags=lags_of(schema),
            anchor=schema.anchor,
            season=schema.season,
            num_covariates=schema.num_covariates,
        )
        if (
            self.config.init is None and not (self.path / WEIGHTS).is_file()
        ):  # else their parameters are among the weights
            series = self.series()
            spans = [(start, min(stop, rows)) for start, stop in series.spans.tolist()]
            with progress_bars() as begin:
                begin(None, "fitting the linear autoregression and exponential smoothing")
                mixture.fit(torch.tensor(series.values[:rows]), torch.tensor(series.features[:rows]), spans)
        return mixture

    def build(self) -> "AutoregressiveModel":
        schema = self.schema
        network: AutoregressiveModel = self.built(
            series=schema.scalings, lags=schema.lags, anchor=schema.anchor, num_covariates=schema.num_covariates
        )
        return network

    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule.data import SeriesWindows

        series, training, horizon = self.series(), self.training, self.data.horizon
        rows, length = series.train_rows, self.history - self.longest_lag + horizon
        batches = SeriesWindows(
            series.values[:rows],
            series.features[:rows],
            self.longest_lag,
            length,
            training.batch_size,
            training.seed,
            shard,
            series.spans,
        )
        places = series_reader.places_of(
            series.spans, series_reader.rolling_origins(rows, len(series.values), horizon), horizon
        )
        if not places:
            raise OptionError(
                "data",
                f"expected an item with {horizon} rows after row {rows:,}",
                f"choose a smaller {option('horizon')}",
            )
        return batches, lambda: series_reader.window_evaluation(
            series.values, series.features, places, self.history, horizon, _ROWS, series.spans
        )

    def introduce(self) -> Iterable[str]:
        facts, schema = self.facts, self.schema
        season = f", a season of {facts.season}" if facts.season > 1 else ""
        yield (
            f"{facts.source.name}: {self._step()}{season}; {facts.rows.train:,} to train on, "
            f"{facts.rows.valid:,} held out"
        )
        missing = facts.missing
        if missing.train or missing.valid:
            yield f"  missing, neither read nor scored: {missing.train:,} training values, {missing.valid:,} held out"
        if facts.repeated:
            yield f"  {facts.repeated:,} covariates are missing: each repeats the one before it"
        if facts.items is not None and self.is_prepared():
            spans = self.series().spans
            rows = (spans[:, 1] - spans[:, 0]).tolist()
            short = sum(min(stop, facts.rows.train) - start < self.history + self.data.horizon for start, stop in spans)
            told = f"; too short for a training window: {short:,}" if short else ""
            yield f"  {counted(facts.items, 'item')} of {min(rows):,} to {counted(max(rows), 'row')}{told}"
        horizon = self.data.horizon
        ahead = counted(horizon, "row")
        yield f"  forecast: {listed(schema.targets)}, {ahead} ahead from {self.history}"
        late = schema.covariates[len(schema.ahead) :]
        read = f"; read {counted(horizon, 'row')} late: {one_line(listed(late))}" if late else ""
        yield f"  known in advance: {self._known()}{read}; lags: {', '.join(map(str, schema.lags))}"

    def on_validation(self) -> "OnValidation":
        series, horizon = self.series(), self.data.horizon
        shown = series_reader.without_gaps(series.values)
        places = [
            (stop - horizon, number) for number, (start, stop) in enumerate(series.spans) if stop - start > horizon
        ]

        def preview(trained: Any, step: int, seconds: float) -> str:
            paths = draw_paths(
                trained, series.values, series.features, places, series.spans, self.history, horizon, _PATHS, step
            )
            lines = []
            for place, (origin, number) in enumerate(places[:_SHOWN]):
                name, first = self.schema.targets[number], series.spans[number, 0]
                before = shown[max(origin - _PAST, first) : origin, number]
                came = shown[origin : origin + horizon, number]
                drawn = paths[:, place]
                low = min(before.min(), came.min(), *drawn.mean(0))
                high = max(before.max(), came.max(), *drawn.mean(0))
                bars = [sparkline(part.tolist(), low, high) for part in (before, drawn.mean(0), came)]
                lines.append(f"{name}: before {bars[0]}  forecast {bars[1]}  observed {bars[2]}")
            return "\n".join(lines)

        return preview

    def observe(self) -> "Observe | None":
        return shares_of(_FITTED) if self.training.linear else super().observe()

    def best(self, evaluation: "Measurement", value: float | None, rows: int) -> tuple[dict[str, Any], str]:
        nats = evaluation.nats_per_element
        line = f"{nats:.4f} nats per value of the held-out rows, in the unit of the series"
        return {"nats_per_value": nats}, line

    def next_steps(self) -> Sequence[str]:
        path, source = quoted(self.path), quote(str(self.source))
        evaluate, plot = f"chainrule evaluate {path} {source}", "--plot forecast.png"
        covariates, horizon = self.schema.ahead, self.data.horizon
        if not covariates or self.facts.future >= horizon:
            return [f"chainrule forecast {path} {plot}", evaluate]
        needed = f"{counted(horizon, 'row')} after the last value, with {one_line(listed(covariates))} filled in"
        return [evaluate, f"chainrule forecast {path} {source} {plot}  # needs {needed}"]

    @property
    def basis(self) -> Basis:
        return Basis("value", "density in the unit of the series", given="the past")

    def checked_rows(self) -> CheckedRows:
        from chainrule.data import SeriesWindows

        series, steps = self.series(), min(_CHECKED_STEPS, self.data.horizon)
        longest = (series.spans[:, 1] - series.spans[:, 0]).argsort(kind="stable")[::-1]
        whole = [int(number) for number in longest[: max(1, len(longest) // 2)]]
        if self.facts.items is None:
            whole = list(range(series.values.shape[1]))
        numbers = [whole[number % len(whole)] for number in range(_CHECKED_ROWS)]
        places = [(int(series.spans[own, 1]) - steps - number, own) for number, own in enumerate(numbers)]
        past = min(self.longest_lag, *(origin - int(series.spans[own, 0]) for origin, own in places))
        batch = SeriesWindows.batch(series_reader.without_gaps(series.values), series.features, places, past, steps)
        return CheckedRows(self.model(), batch.x, batch.context)

    def _step(self) -> str:
        step, utc_offset = self.facts.step, self.schema.utc_offset
        zone = "" if utc_offset is None else f", dates in {series_reader.clock(utc_offset)}"
        return "rows without dates" if step is None else f"rows {step}{zone}"

    def _known(self) -> str:
        return ", ".join([*self.schema.ahead, *self.schema.calendar]) or "nothing"


def shares_of(parts: dict[str, str]) -> "Observe":
    """Observe the weights of the parts beside the network in a `ForecastMixture`, described in its order."""

    def shares(trained: Any) -> "Findings":
        from chainrule.training import Findings

        weights = dict(zip(parts, trained.weights.tolist()[1:], strict=True))
        text = ", ".join(f"{parts[name]}: {weight:.0%}" for name, weight in weights.items())
        return Findings({f"share_of_{name}": weight for name, weight in weights.items()}, f"{text} of the mean")

    return shares
