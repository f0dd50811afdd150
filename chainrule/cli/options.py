"""The options that `chainrule train` has for every task."""

from dataclasses import dataclass
from pathlib import Path

from cyclopts import Group

from chainrule.tasks.commands import Switch
from chainrule.tasks.config import Duration
from chainrule.tasks.durations import parse_duration

RUN, DATA, MODEL, TRAINING = (
    Group(name, sort_key=place) for place, name in enumerate(("Run", "Data", "Model", "Training"), start=1)
)


@dataclass(frozen=True)
class RunFlags:
    """Where the run is, and how long it lasts."""

    out: Path | None = None
    """The run directory; a name below runs/, made of those of the data and the model, if not given."""
    task: str | None = None
    """Such as text, table, image, tag or translate; recognised from DATA if not given."""
    budget: str | None = None
    """Wall-clock time to train for, such as 90s, 3m or 1h30m; a usual one if nothing is said, 3m for a text."""
    steps: int | None = None
    """Weight updates to train for, in place of a budget."""
    epochs: float | None = None
    """Passes over the data to train for, in place of a budget."""
    resume: Switch = False
    """Go on with the run in --out, with its own options; --budget, --steps or --epochs may extend it."""
    overwrite: Switch = False
    """Replace the run in --out."""
    json: Switch = False
    """Print the closing summary as one JSON object, and nothing else, on standard output."""

    def duration(self, usual: str) -> Duration:
        """How long training lasts; `usual` is the budget where nothing is said.

        Raises:
            ValueError: a value out of range, or more than one of the three.
        """
        open_end = self.budget is None and self.steps is None and self.epochs is None
        budget = usual if open_end else self.budget
        return Duration(self.steps, self.epochs, None if budget is None else parse_duration(budget))
