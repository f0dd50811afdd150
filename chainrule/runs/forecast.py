"""The directory of a run on series that are forecast, which keeps them in `data/`.

data/schema.json                 columns, step between rows, units
data/values.npy, features.npy    the series and what is known in advance, all rows
data/series.json                 counts and fingerprints
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from chainrule.runs.config import FINGERPRINT, CheckedOptions, OptimisationOptions, RunConfig, check_entries, within
from chainrule.runs.run import DATA, Run

if TYPE_CHECKING:
    from chainrule.data.series import PreparedSeries, SeriesSchema
    from chainrule.models.forecaster import Forecaster

WARM_UP = 48  # rows read before a forecast beside those that lags reach, at least


@dataclass(frozen=True)
class ForecasterOptions(CheckedOptions):
    """The options of `chainrule.models.Forecaster`."""

    hidden_size: int = within(64, 1, 1 << 14)
    """Units of each layer."""
    num_layers: int = within(1, 1, 256)
    """Recurrent layers."""
    dropout: float = within(0.1, 0.0, 0.99)
    """Share of features zeroed in training."""
    head: Literal["student", "normal"] = "student"
    """What the mixture of each step is made of: student has heavier tails."""
    components: int = within(2, 1, 1 << 10)
    """Of the mixture of each step."""
    anchor: Literal["last", "season", "centre"] = "last"
    """What a step is measured from: the last value, that of a season ago, or the centre of the series."""


@dataclass(frozen=True)
class ForecastData(CheckedOptions):
    """How series are read, and what is forecast."""

    target: str | None = None
    """The columns to forecast, separated by commas, or all; needed where there are several."""
    horizon: int = within(24, 1, 1 << 20)
    """Rows that a forecast is for."""
    covariates: str = ""
    """Columns that are known in advance, separated by commas."""
    date: str = "auto"
    """The column of dates: its name, auto to find it, none to count rows."""
    season: int | None = within(None, 1, 1 << 20)
    """Rows of a season; what is usual at the step between dates (24 hours, 7 days, 12 months) where not given."""
    history: int | None = within(None, 1, 1 << 20)
    """Rows that a forecast is made from; as far as lags reach and a little more where not given."""
    validation_fraction: float = within(0.1, 1e-4, 0.5)
    """Share of the rows that is held out, the last ones."""


@dataclass(frozen=True)
class ForecastTraining(OptimisationOptions):
    """How a forecaster is trained."""

    learning_rate: float = within(2e-3, 0.0, 1e3)
    """Peak learning rate of AdamW."""


class ForecastRun(Run["Forecaster"]):
    """A run on series."""

    KIND = "forecast"
    SOURCES: ClassVar[dict[str, str]] = {"source": "DATA"}
    DATA = ForecastData
    MODELS: ClassVar[dict[str, type]] = dict.fromkeys(("lstm", "gru", "rnn"), ForecasterOptions)
    TRAINING = ForecastTraining

    @property
    def data(self) -> ForecastData:
        """How the series are read."""
        return cast(ForecastData, self.config.data)

    @property
    def options(self) -> ForecasterOptions:
        """Those of the model."""
        return cast(ForecasterOptions, self.config.options)

    @classmethod
    def check_facts(cls, facts: dict[str, Any]) -> None:
        if not {"source", "rows", "step", "season"} <= facts.keys():
            raise ValueError("facts: expected what preparing series leaves, with source, rows, step and season")
        check_entries("facts", facts, "source", FINGERPRINT)
        check_entries("facts", facts, "rows", {"train": int, "valid": int})

    @classmethod
    def check_config(cls, config: RunConfig) -> None:
        if config.sources.get("source") is None:
            raise ValueError("DATA: expected a file of series, got none")

    @cached_property
    def schema(self) -> "SeriesSchema":
        """The columns, read once."""
        from chainrule.data.series import SeriesSchema

        return SeriesSchema.load(self.path / DATA / "schema.json")

    def series(self) -> "PreparedSeries":
        """The prepared rows."""
        from chainrule.data.series import open_series

        return open_series(self.path / DATA)

    @property
    def longest_lag(self) -> int:
        """How far back a step looks."""
        return max(self.schema.lags)

    @property
    def history(self) -> int:
        """Rows that a forecast is made from."""
        warm_up = max(2 * self.data.horizon, WARM_UP)
        usual = self.longest_lag + min(warm_up, self.config.facts["rows"]["train"] // 3)
        return usual if self.data.history is None else max(self.data.history, self.longest_lag)

    def build(self) -> "Forecaster":
        from chainrule.heads import GaussianMixture
        from chainrule.heads.student_t_mixture import StudentTMixture
        from chainrule.models.forecaster import Forecaster

        options, schema = self.options, self.schema
        return Forecaster(
            schema.scalings,
            options.hidden_size,
            self.config.model,
            options.num_layers,
            options.dropout,
            head=StudentTMixture if options.head == "student" else GaussianMixture,
            components=options.components,
            lags=schema.lags,
            anchor=schema.anchor,
            num_covariates=schema.num_covariates,
        )

    def fewest_weights(self) -> int:
        options = self.options
        return options.num_layers * options.hidden_size**2
