"""`chainrule forecast`: what comes after the last row of a file."""

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import randbelow
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from chainrule.tasks.display import dump_json

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from chainrule.data.series import SeriesFile
    from chainrule.runs.forecast import ForecastRun

    Floats = npt.NDArray[np.float64]


def forecast(
    run: Path,
    data: Path,
    /,
    *,
    quantiles: str = "0.1,0.5,0.9",
    paths: int = 100,
    horizon: int | None = None,
    out: Path | None = None,
    plot: Path | None = None,
    seed: int | None = None,
    device: str = "cpu",
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Forecast what comes after the last row of a file.

    Args:
        run: The run directory.
        data: A file with the columns that the run was trained on; rows at the end with empty targets are the future, of
            which covariates are known.
        quantiles: Which quantiles to give, separated by commas.
        paths: How many possible futures to draw; quantiles are those of the draws.
        horizon: Rows to forecast; that of the run if not given.
        out: A CSV file with the quantiles; standard output if not given.
        plot: A picture (.png, .svg, .pdf) of the last rows, some paths and the quantiles.
        seed: The same seed gives the same paths; new ones each time if not given.
        device: Where to compute: auto, cpu or cuda.
        json: Print one JSON object a series, with its quantiles and all paths.
    """
    from chainrule.data.atomic import write_text
    from chainrule.data.tables import write_rows
    from chainrule.runs.forecast import ForecastRun

    levels = parse_quantiles(quantiles)
    if paths < 2:
        raise ValueError(f"--paths: expected a whole number >= 2, got {paths}")
    opened = ForecastRun.open(run)
    steps = opened.data.horizon if horizon is None else horizon
    if steps < 1:
        raise ValueError(f"--horizon: expected a whole number >= 1, got {steps}")
    seed = randbelow(1 << 31) if seed is None else seed
    found = _forecast(opened, data, steps, levels, paths, seed, device)
    if plot is not None:
        from chainrule.cli.forecast.plot import plot_forecast

        plot_forecast(found, plot)
        print(f"{plot} (seed {seed})", file=sys.stderr)
    if json:
        for number in range(len(found.file.targets)):
            print(dump_json(found.record(number, seed)))
        return
    header = [found.place, "series", "mean", *(f"q{level:g}" for level in levels)]
    if out is None:
        write_rows(sys.stdout, header, iter(found.rows()))
        return
    text = io.StringIO()
    write_rows(text, header, iter(found.rows()))
    write_text(out, text.getvalue())
    print(f"{out} (seed {seed})", file=sys.stderr)


@dataclass(frozen=True)
class Forecast:
    """A forecast of all series of a file.

    Args:
        file: what it was made from.
        times: what each step is called: its date, or its number in rows.
        levels: Q quantiles.
        quantiles: (Q, S, H).
        paths: (n, S, H).
    """

    file: "SeriesFile"
    times: list[str]
    levels: list[float]
    quantiles: "Floats"
    paths: "Floats"

    @property
    def place(self) -> str:
        """What the times are."""
        return self.file.date or "row"

    def rows(self) -> list[list[str]]:
        """A row for each series and step, as CSV takes them."""
        return [
            [time, name, f"{self.paths[:, number, step].mean():.6g}"]
            + [f"{value:.6g}" for value in self.quantiles[:, number, step]]
            for number, name in enumerate(self.file.targets)
            for step, time in enumerate(self.times)
        ]

    def record(self, number: int, seed: int) -> dict[str, Any]:
        """A series, as JSON takes it."""
        return {
            "series": self.file.targets[number],
            self.place: self.times,
            "mean": self.paths[:, number].mean(0).tolist(),
            "quantiles": {
                f"{level:g}": values.tolist()
                for level, values in zip(self.levels, self.quantiles[:, number], strict=True)
            },
            "paths": self.paths[:, number].tolist(),
            "seed": seed,
        }


def parse_quantiles(text: str) -> list[float]:
    """The quantiles that a user named, ascending.

    >>> parse_quantiles("0.9, 0.1")
    [0.1, 0.9]
    """
    try:
        levels = sorted({float(part) for part in text.split(",") if part.strip()})
    except ValueError:
        levels = []
    if not levels or not all(0 < level < 1 for level in levels):
        raise ValueError(f"--quantiles: expected numbers between 0 and 1, separated by commas, got {text!r:.80}")
    return levels


def _forecast(
    run: "ForecastRun", data: Path, horizon: int, levels: Sequence[float], paths: int, seed: int, device: str
) -> Forecast:
    from chainrule.cli.forecast.drawing import draw_paths
    from chainrule.data.series import future_dates
    from chainrule.data.series.dates import date_text
    from chainrule.metrics.forecasting import quantiles_of_samples
    from chainrule.training.parallel import choose_device

    schema = run.schema
    file = schema.open(data)
    origin = len(file.values)
    features = schema.features(file, horizon)
    if origin < run.longest_lag:
        print(f"{data}: {origin} rows, though the model looks {run.longest_lag} back: give it more", file=sys.stderr)
    model = run.model(choose_device(device))
    drawn = draw_paths(model, file.values, features, [origin], run.history, horizon, paths, seed)[:, 0]
    if schema.frequency is None:
        times = [str(origin + step) for step in range(1, horizon + 1)]
    else:
        dates = future_dates(file.dates[:origin], schema.frequency, horizon)[origin:]
        times = [date_text(date, daily=schema.frequency.daily) for date in dates]
    return Forecast(file, times, list(levels), quantiles_of_samples(drawn, levels), drawn)
