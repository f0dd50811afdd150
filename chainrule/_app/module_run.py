"""Runs of a model that the caller wrote: the same loop, checkpoints and resume, for rows in memory."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from chainrule._app.heavy import torch
from chainrule._app.keywords import check_known
from chainrule._app.results import Column, Result
from chainrule._app.tasks.display import parse_duration
from chainrule._app.tasks.run_directory import TemporaryFolder, copy_run
from chainrule.training._metrics import read_metrics

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule._base import LikelihoodModel
    from chainrule.training import Callback

_TOGETHER = 64  # rows of a validation or score that are computed in one pass


class ModuleRun:
    """A training run of a model of the contract on rows in memory.

    Args:
        module: an `AutoregressiveModel`, or any model with an exact `log_prob(x, context, lengths)`.
        x: (N, ...) rows, a tensor or array: symbols (N, T), images (N, C, H, W), values.
        context: condition of each row, batch first.
        lengths: (N,) real elements of each row.
        path: the run directory; a temporary one by default.
        validation_fraction: share of the rows that is held out.
        options: of `chainrule.training.TrainingOptions`.
    """

    def __init__(
        self,
        module: "LikelihoodModel",
        x: Any,
        context: Any = None,
        lengths: Any = None,
        *,
        path: Path | None = None,
        validation_fraction: float = 0.1,
        **options: Any,
    ):
        from chainrule.training import TrainingOptions

        names = [item.name for item in fields(TrainingOptions)]
        check_known(options, names, ["context", "lengths", "validation_fraction"])
        if len(x) < 2:
            raise ValueError(f"rows: expected at least two, one of them to hold out, got {len(x)}")
        self.model = module
        self._options: TrainingOptions = TrainingOptions(**options)
        self._rows = _tensors(x, context, lengths)
        if unequal := [name for name, value in self._rows.items() if value is not None and len(value) != len(x)]:
            raise ValueError(f"{unequal[0]}: expected one for each of {len(x)} rows, got {len(self._rows[unequal[0]])}")
        self._folder = TemporaryFolder() if path is None else None
        self.path = Path(str(path)) if self._folder is None else self._folder.path
        generator = torch.Generator().manual_seed(self._options.seed)
        order = torch.randperm(len(x), generator=generator)
        held_out = max(1, round(validation_fraction * len(x)))
        self._held_out, self._trained = order[:held_out], order[held_out:]

    @property
    def history(self) -> Result:
        """The records of training and validation: step, nats per element, learning rate, gradient norm and others."""
        return history_of(list(read_metrics(self.path / "metrics.jsonl")))

    def train(self, *, resume: bool = False, callbacks: "Sequence[Callback]" = ()) -> None:
        """Train, from the beginning or from the last checkpoint on."""
        from chainrule.data import Batches
        from chainrule.data._batches import Shuffled
        from chainrule.training import Interrupted, process_shard, train

        order = Shuffled(len(self._trained), self._options.batch_size, self._options.seed, process_shard())
        batches = Batches(order, lambda step, rows: self._batch(self._trained[order.own(rows)]))
        try:
            train(self.model, batches, self._validation, self._options, self.path, resume=resume, callbacks=callbacks)
        except Interrupted as stop:
            print(f"Interrupted: step {stop.step} is saved; run.resume() continues.", file=sys.stderr)
        self.model.eval()

    def resume(self, *, budget: str | float | None = None, **options: Any) -> Self:
        """Continue training; `budget`, `steps` or `epochs` are the new total."""
        length = {"budget": None, "steps": None, "epochs": None} if budget is not None else {}
        self._options = replace(self._options, **(length | training_length(budget) | options))
        self.train(resume=True)
        return self

    def sample(self, n: int = 1, *, seed: int | None = None, **options: Any) -> Any:
        """Draw n rows with the arguments of the model's own `sample`, as an array."""
        weight = next(self.model.parameters(), torch.empty(0))
        generator = torch.Generator(weight.device)
        generator.seed() if seed is None else generator.manual_seed(seed)
        module: Any = self.model
        return module.eval().sample(n, generator=generator, **options).cpu().numpy()

    def score(self, x: Any, context: Any = None, lengths: Any = None) -> Result:
        """Score rows: the exact nats of each."""
        from chainrule.training import bits

        if not len(x):
            raise ValueError("rows: expected at least one to score, got none")
        rows = _tensors(x, context, lengths)
        size = rows["x"][0].numel()
        sizes = [size] * len(x) if lengths is None else rows["lengths"].tolist()
        nats: list[float] = []
        self.model.eval()
        for part in torch.arange(len(x)).split(_TOGETHER):
            chosen: dict[str, Any] = {name: None if value is None else value[part] for name, value in rows.items()}
            with torch.no_grad():
                nats += (-self.model.log_prob(**chosen)).double().tolist()
        columns = [Column("row"), Column("nats", 3), Column("elements"), Column("bits_per_element", 4)]
        measured = zip(range(len(nats)), nats, sizes, strict=True)
        scores = [(row, value, count, bits(value) / count if count else None) for row, value, count in measured]
        total = {"rows": len(nats), "nats": sum(nats), "bits_per_element": bits(sum(nats)) / max(sum(sizes), 1)}
        return Result(columns, scores, summary=lambda: total, rank="bits_per_element")

    def save(self, path: str | Path) -> None:
        """Move the run directory if it is temporary, else copy it; model.safetensors there holds the weights."""
        copy_run(self.path, Path(path), overwrite=False)
        self.path = Path(path)
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def check(self, *, seed: int = 0) -> Any:
        """Check on held-out rows that the model keeps the contract; see `chainrule.testing.check_model`."""
        from chainrule.testing import check_model

        batch = self._batch(self._held_out[:4])
        return check_model(self.model, batch.x, batch.context, batch.lengths, seed=seed)

    def __repr__(self) -> str:
        return f"<Run of {type(self.model).__name__}, in {self.path}; it can check, resume, sample, save, score>"

    def _validation(self) -> Any:
        return (self._batch(rows) for rows in self._held_out.split(_TOGETHER))

    def _batch(self, rows: "Tensor | Any") -> Any:
        from chainrule.data import Batch

        parts: Any = (None if value is None else value[rows] for value in self._rows.values())
        x, context, lengths = parts
        if lengths is None and x.ndim == 2 and not x.is_floating_point():
            lengths = torch.full((len(x),), x.shape[1])
        return Batch(x, lengths=lengths, context=context, whole=lengths is None)


def _tensors(x: Any, context: Any, lengths: Any) -> dict[str, Any]:
    rows = {"x": x, "context": context, "lengths": lengths}
    return {name: None if value is None else torch.as_tensor(value) for name, value in rows.items()}


def training_length(budget: str | float | None) -> dict[str, float]:
    return {} if budget is None else {"budget": parse_duration(str(budget))}


def history_of(records: Sequence[Mapping[str, Any]]) -> Result:
    """Turn metrics records into rows, one column per name."""
    names = list(dict.fromkeys(name for record in records for name in record))
    return Result([Column(name) for name in names], ([record.get(name) for name in names] for record in records))
