"""A task: one kind of data, the models of it, and all that a verb of the command line does with them."""

from copy import deepcopy
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from chainrule.option_error import MissingError
from chainrule.training import read_metrics
from chainrule_app.heavy import modes
from chainrule_app.recorded import TIMINGS, read_elapsed
from chainrule_app.tasks.baseline import Baseline
from chainrule_app.tasks.capabilities import Checks
from chainrule_app.tasks.config import Fingerprint
from chainrule_app.tasks.declaration import Source as Source
from chainrule_app.tasks.likelihood_record import Basis, LikelihoodRecord
from chainrule_app.tasks.model_size import check_size
from chainrule_app.tasks.preparation import Preparation
from chainrule_app.tasks.preparation import Shard as Shard
from chainrule_app.tasks.run_directory import CONFIG, METRICS, WEIGHTS, ChangedRunError, identity

if TYPE_CHECKING:
    import torch

    from chainrule import TrainableModel
    from chainrule_app.results import Report

M = TypeVar("M", bound="TrainableModel")


class Task(Preparation[M], Checks):
    """Run of a task: its directory, config and everything that verbs do with them."""

    def model(self, device: "str | torch.device" = "cpu") -> M:
        """Return the trained model with the best validation, in evaluation mode: a new one for each call."""
        chosen = self.device(device) if isinstance(device, str) else device
        model = self.load() if self.loaded is None else deepcopy(self.loaded)
        return model.to(chosen).eval()

    def fixed_model(self, device: "str | torch.device") -> M:
        """Return the trained model for calls that do not change it: the loaded one, or its one copy on a device."""
        chosen = self.device(device) if isinstance(device, str) else device
        if self.loaded is None:
            return self.model(chosen)
        if modes.device_of(self.loaded) == chosen:
            return self.loaded
        name = f"model on {chosen}"
        if name not in self.computed:
            self.computed[name] = self.model(chosen)
        copy: M = self.computed[name]
        return copy

    def load(self) -> M:
        """Load the trained model with the best validation."""
        from chainrule.training import load_weights

        weights = self.path / WEIGHTS
        if not weights.is_file():
            raise MissingError(
                f"{weights}",
                f"no weights yet; `chainrule train --resume --out {self.path}` continues the training",
            )
        self.check_size(weights)
        model = self._unfilled()
        load_weights(weights, model)
        return model

    def _unfilled(self) -> M:
        """Build an uninitialised model: every weight is read from the file."""
        return self.new_model(0)

    def check_size(self, weights: Path | None, *, confirm: str = "") -> int:
        """Count the weights; refuse a larger model than the weights file or memory allows."""
        least, shard = self.fewest_weights(), self.training.shard
        return check_size(self._network, self.path / CONFIG, weights, least=least, confirm=confirm, shard=shard)

    def fewest_weights(self) -> int:
        """Return a lower bound of the weights, if building takes memory even on the meta device."""
        return 0

    def _network(self) -> M:
        """Build the network without what `build` reads from files; works on the meta device."""
        return self.build()

    def metrics(self, event: str = "") -> list[dict[str, Any]]:
        """Read metrics.jsonl, optionally of one event; a truncated last line is dropped."""
        path = self.path / METRICS
        return list(read_metrics(path, event)) if path.is_file() else []

    def seconds_trained(self) -> float | None:
        """Return wall-clock seconds of training up to the last validation; None if none were recorded."""
        return read_elapsed(self.path / TIMINGS)

    @property
    def basis(self) -> Basis:
        """Return the unit of the likelihood, and how it is measured."""
        return Basis("element")

    def held_out_sources(self) -> dict[str, Any]:
        """Return what decides the held-out data: equal for runs validated on the same data."""
        named = {name: getattr(self.facts, name, None) for name in self.SOURCES if name != "vectors"}
        digests = {name: source.sha256 for name, source in named.items() if isinstance(source, Fingerprint)}
        if apart := {name: digest for name, digest in digests.items() if name.startswith("validation")}:
            return apart
        share = getattr(self.config.data, "validation_fraction", None)
        return digests | {"share": share, "seed": self.config.training.seed}

    def held_out(self) -> LikelihoodRecord | None:
        """Return the held-out likelihood at the best validation; None before the first."""
        best_records = [record for record in self.metrics("validation") if record.get("best")]
        if not best_records:
            return None
        nats, elements = best_records[-1]["nats_per_element"], best_records[-1].get("elements", 0)
        if elements < 1:  # an edited file: the likelihood is unknown
            return None
        data = sha256(dumps(self.held_out_sources(), sort_keys=True).encode()).hexdigest()
        return LikelihoodRecord(self.basis, nats * elements, elements, data)

    def baseline(self, model: Any, seconds: float) -> Baseline | None:
        """Compare the trained model with the obvious alternative on held-out data, in about so many seconds."""
        return None

    def check_unchanged(self) -> None:
        """Raise ChangedRunError if the run was trained again, or deleted, since it was opened."""
        if identity(self.path) != self.identity:
            raise ChangedRunError(self.path)

    def more_facts(self) -> dict[str, Any]:
        """Return the facts that `chainrule info --json` adds to the config's."""
        return {}

    def lacking(self) -> tuple[str, ...]:
        """Return the methods of the task that this run's model lacks."""
        return ()

    def report(self) -> "Report":
        """Report on the training: learning curves, samples, data, options."""
        from chainrule_app.tasks.training_page import report_training

        return report_training(self)
