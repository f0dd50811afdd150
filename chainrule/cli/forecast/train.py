"""`chainrule train series.csv --task forecast`: series become a run directory."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from chainrule.cli.command_line import quoted
from chainrule.cli.options import DATA as DATA_GROUP
from chainrule.cli.options import MODEL, RUN, TRAINING, RunFlags
from chainrule.cli.trainer import Shard, Trainer, train_run
from chainrule.runs.config import RunConfig
from chainrule.runs.forecast import ForecastData, ForecasterOptions, ForecastRun, ForecastTraining
from chainrule.runs.run import DATA

if TYPE_CHECKING:
    from chainrule.training import TrainingBatches, ValidationBatches
    from chainrule.training.loop import TrainingResult
    from chainrule.training.validation import OnValidation

_ROWS = 256  # of a validation batch
_SHOWN, _PATHS, _PAST = 3, 50, 24


def train(
    data: Path | None = None,
    /,
    *,
    run: Annotated[RunFlags, Parameter(name="*", group=RUN)] = RunFlags(),
    series: Annotated[ForecastData, Parameter(name="*", group=DATA_GROUP)] = ForecastData(),
    model: Annotated[Literal["lstm", "gru", "rnn"], Parameter(group=MODEL)] = "lstm",
    options: Annotated[ForecasterOptions, Parameter(name="*", group=MODEL)] = ForecasterOptions(),
    training: Annotated[ForecastTraining, Parameter(name="*", group=TRAINING)] = ForecastTraining(),
    given: Annotated[frozenset[str], Parameter(parse=False)],
) -> int:
    """Train a forecaster on the series of a file: a row for each moment, a column for each series.

    Args:
        data: A file of comma-separated values, with a header or without, compressed by gzip or not.
        model: The recurrent cell.
    """
    if data is None and not run.resume:
        raise ValueError("DATA: expected a file of series to train on, got none")
    asked = RunConfig(
        sources={"source": None if data is None else str(data)},
        data=series,
        facts={},
        model=model,
        options=options,
        extent=run.extent("1m"),
        training=training,
    )
    out = run.out or Path("runs") / f"{data.name.partition('.')[0] if data else 'series'}-forecast"
    return train_run(ForecastTrainer(), asked, out, run, given)


class ForecastTrainer(Trainer[ForecastRun]):
    """How series are prepared and trained on."""

    RUN = ForecastRun

    def prepare(self, draft: ForecastRun) -> dict[str, Any]:
        from chainrule.data.series import prepare_series

        data, source = draft.data, draft.config.sources["source"]
        assert source is not None
        prepared = prepare_series(
            source,
            draft.path / DATA,
            target=data.target,
            horizon=data.horizon,
            covariates=data.covariates,
            date=data.date,
            season=data.season,
            anchor=draft.options.anchor,
            validation_fraction=data.validation_fraction,
        )
        return prepared.facts

    def is_prepared(self, run: ForecastRun) -> bool:
        return (run.path / DATA / "series.json").is_file()

    def batches(self, run: ForecastRun, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule.data.series import SeriesWindows, rolling_origins, window_evaluation

        series, training, horizon = run.series(), run.config.training, run.data.horizon
        rows, length = series.train_rows, run.history - run.longest_lag + horizon
        batches = SeriesWindows(
            series.values[:rows],
            series.features[:rows],
            run.longest_lag,
            length,
            training.batch_size,
            training.seed,
            shard,
        )
        origins = rolling_origins(rows, len(series.values), horizon)
        return batches, lambda: window_evaluation(series.values, series.features, origins, run.history, horizon, _ROWS)

    def introduce(self, run: ForecastRun) -> Iterable[str]:
        facts, schema = run.config.facts, run.schema
        step = "rows without dates" if facts["step"] is None else f"rows {facts['step']}"
        season = f", a season of {facts['season']}" if facts["season"] > 1 else ""
        known = [*schema.covariates, *schema.calendar]
        yield (
            f"{facts['source']['name']}: {step}{season}; {facts['rows']['train']:,} to train on, "
            f"{facts['rows']['valid']:,} held out"
        )
        yield f"  forecast: {', '.join(schema.targets):.200}, {run.data.horizon} rows ahead from {run.history}"
        yield f"  known in advance: {', '.join(known) or 'nothing'}; lags: {', '.join(map(str, schema.lags))}"

    def on_validation(self, run: ForecastRun) -> "OnValidation":
        from chainrule.cli.forecast.drawing import draw_paths
        from chainrule.cli.forecast.sparkline import sparkline

        series, horizon = run.series(), run.data.horizon
        origin = len(series.values) - horizon

        def preview(trained: Any, step: int, seconds: float) -> str:
            paths = draw_paths(trained, series.values, series.features, [origin], run.history, horizon, _PATHS, step)
            lines = []
            for number, name in enumerate(run.schema.targets[:_SHOWN]):
                before = series.values[max(origin - _PAST, 0) : origin, number]
                came = series.values[origin:, number]
                drawn = paths[:, 0, number]
                low = min(before.min(), came.min(), *drawn.mean(0))
                high = max(before.max(), came.max(), *drawn.mean(0))
                bars = [sparkline(part.tolist(), low, high) for part in (before, drawn.mean(0), came)]
                lines.append(f"{name}: before {bars[0]}  forecast {bars[1]}  came {bars[2]}")
            return "\n".join(lines)

        return preview

    def summary(self, run: ForecastRun, result: "TrainingResult") -> tuple[dict[str, Any], str]:
        nats = result.best.nats_per_element
        return (
            {"nats_per_value": nats},
            f"{nats:.4f} nats per value of the held-out rows, in the unit of the series",
        )

    def next_steps(self, run: ForecastRun) -> Sequence[str]:
        path, source = quoted(run.path), quote(str(run.config.sources["source"]))
        return [f"chainrule forecast {path} {source} --plot forecast.png", f"chainrule evaluate {path} {source}"]
