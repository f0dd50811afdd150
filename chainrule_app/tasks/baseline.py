"""The obvious alternative to a trained model, measured on the same held-out data after training.

Each task names its own (`Task.baseline`), if there is one that costs little; the run keeps the comparison in a file.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from chainrule.files import read_json, write_json
from chainrule.printing import printable
from chainrule.typed_json import field_types, read_fields
from chainrule_app.tasks.run_directory import BASELINE

if TYPE_CHECKING:
    from chainrule.training import Batch

SHARE = 0.05  # of the budget, or of the time of training, that the comparison may take


@dataclass(frozen=True)
class Baseline:
    """A baseline's figure beside the run's, on the same data."""

    name: str
    value: float
    own: float  # the run's
    measure: str
    higher_is_better: bool = False

    @property
    def wins(self) -> bool:
        return self.value > self.own if self.higher_is_better else self.value < self.own

    def __str__(self) -> str:
        """Compare both in a line.

        >>> print(Baseline("TF-IDF", 0.41, 0.38, "nats per text"))
        TF-IDF 0.41, this run 0.38 (nats per text)
        """
        line = f"{self.name} {self.value:.4g}, this run {self.own:.4g} ({self.measure})"
        remedy = "train longer, or use the simpler model"
        return f"{line}: the baseline is better here: {remedy}" if self.wins else line

    def save(self, folder: Path) -> None:
        write_json(folder / BASELINE, asdict(self))


def recorded_baseline(folder: Path) -> Baseline | None:
    """Return the comparison that a run keeps, if it has made one; ValueError where the file is damaged."""
    path = folder / BASELINE
    return Baseline(**read_fields(field_types(Baseline), read_json(path))) if path.is_file() else None


def baseline_values(folder: Path) -> dict[str, Any] | None:
    """Return the same as values by name."""
    found = recorded_baseline(folder)
    return None if found is None else asdict(found) | {"wins": found.wins}


def for_seconds(batches: "Iterable[Batch]", seconds: float) -> "Iterator[Batch]":
    """Yield the first batch, and more until the time is up."""
    began = monotonic()
    for batch in batches:
        yield batch
        if monotonic() - began > seconds:
            return


def measured(model: Any, batches: "Callable[[], Iterable[Batch]]", seconds: float) -> "tuple[float, list[Batch]]":
    """Return the nats per element of a model on the first held-out batches that there is time for, and these."""
    from chainrule.training import evaluate

    read: list[Batch] = []

    def noted() -> "Iterator[Batch]":
        for batch in for_seconds(batches(), seconds):
            read.append(batch)
            yield batch

    return evaluate(model, noted()).nats_per_element, read


def likelihoods(
    model: Any, other: Any, batches: "Callable[[], Iterable[Batch]]", seconds: float
) -> tuple[float, float]:
    """Return the nats per element of two models, on the first held-out batches that there is time for."""
    from chainrule.training import evaluate

    own, read = measured(model, batches, seconds / 2)
    return own, evaluate(other, read).nats_per_element


def compare_with_baseline(run: Any, network: Any, elapsed: float) -> None:
    """Say and record how the trained network of a run does beside its task's baseline, in a small share of the time.

    Args:
        run: a task's run, whose `baseline` makes the comparison.
        network: its trained model.
        elapsed: seconds of training, where there is no budget.
    """
    import torch

    from chainrule.modes import evaluating

    seconds = SHARE * (run.config.duration.budget or elapsed)
    with evaluating(network), torch.no_grad():
        baseline: Baseline | None = run.baseline(network, seconds)
    if baseline is not None:
        baseline.save(run.path)
        print(printable(f"baseline: {baseline}"), file=sys.stderr, flush=True)
