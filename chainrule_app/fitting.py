"""`fit`: train a model on data in memory or on disk, as `chainrule train` does, or a model of your own on rows."""

import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

from chainrule.files import write_json
from chainrule.option_error import OptionError
from chainrule.training import read_metrics
from chainrule_app import frames
from chainrule_app.data_sets import splits_of
from chainrule_app.heavy import torch
from chainrule_app.inputs import Inputs
from chainrule_app.keywords import check_known, config_of, names_given, path_of, train_with
from chainrule_app.listing import history_of
from chainrule_app.printing import parse_duration
from chainrule_app.readers.record_keys import keys_of
from chainrule_app.readers.sources import is_images, is_path, paths_of, recognise
from chainrule_app.results import Column, Result
from chainrule_app.run import Run
from chainrule_app.tasks import open_run, task_class, unrecognised
from chainrule_app.tasks.remote_run import publishing
from chainrule_app.tasks.run_directory import FRAME, TemporaryFolder, copy_run, refuse_taken, task_of
from chainrule_app.training_run import started_from

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule import LikelihoodModel
    from chainrule.training import Callback
    from chainrule_app.tasks.task import Task


def fit(
    data: Any = None,
    y: Any = None,
    /,
    *,
    text: str | None = None,
    task: str | None = None,
    model: str | None = None,
    out: str | Path | None = None,
    budget: str | float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    plain: bool = False,
    overwrite: bool = False,
    callbacks: "Sequence[Callback]" = (),
    init: "str | Path | Run | None" = None,
    **options: Any,
) -> "Run | ModuleRun":
    """Train a model on data, as `chainrule train` does: the same defaults, the same files, the same weights.

    Args:
        data: a path, as `chainrule train` takes it; strings, pairs of a text and a label, or sentences of (word, tag)
            pairs; a NumPy array or tensor of images, table rows, a series or piano rolls; a frame or series of pandas,
            polars or Arrow; a data set of Hugging Face, whose splits are used as splits, or of PyTorch; a chat. The
            text built into Python if it is left out. Or a module of your own, an `AutoregressiveModel`, which is
            trained on rows: `fit(module, rows)`, a tensor or array (N, ...); `ModuleRun` lists the options.
        y: answers beside data in memory, as scikit-learn takes them: a label for each text or image, tags for each
            list of words, a target for each source with `task="translate"`, or a column that a table predicts from
            the others.
        text: a text to learn from, instead of `data`.
        task: text, table, image, sound, music, tag, classify, classify-images, translate, caption or forecast;
            recognised from the data by default.
        model: the architecture; the task's first by default.
        out: the run directory; a temporary one by default, which `Run.save` moves.
        budget: wall-clock training time, such as "90s" or "3m", or seconds; the default depends on the task.
        steps: number of weight updates; replaces the budget.
        epochs: number of passes over the data; replaces the budget.
        plain: whether to train exactly the architecture that `model` names: one network, without the counts, averaged
            models and other parts that the default recipe of the task adds.
        overwrite: whether to replace a run in `out`.
        callbacks: objects that receive the figures while the run lasts, see `chainrule.training.Callback`.
        init: a run, or its path, that provides the initial weights: the same model, vocabulary or schema, on new data.
        **options: any option of `chainrule train DATA --help`, with underscores: `hidden_size=256`, `level="word"`,
            `target="load"`, `validation=frame`. Besides these `labels` of images in an array, and the `rate` of sounds.

    Returns:
        The trained run. Ctrl-C, or interrupting the kernel of a notebook, saves the run and returns it as it is;
        `Run.resume` continues it.

    Raises:
        ValueError: an option is unknown or out of range, or the data cannot be read or trained on.
        FileExistsError: there is a run in `out`.
    """
    if hasattr(data, "parameters") and hasattr(data, "forward"):
        length = training_length(budget) | {"steps": steps, "epochs": epochs}
        return _fit_module(data, y, out, callbacks, options | {name: n for name, n in length.items() if n is not None})
    if out is not None:
        refuse_taken(path_of(out, "out"), overwrite=overwrite)
    before = None if init is None else init.path if isinstance(init, Run) else path_of(init, "init")
    if task is None and before is not None:
        task = task_of(before)
    splits = splits_of(data)
    if splits is not None:
        data = _of_splits(splits, options)
    if task is None and ("horizon" in options or ("target" in options and frames.is_frame(data))):
        task = "forecast"
    of_task, frames_per_quarter = "" if task is None else task_class(task).name, options.get("frames_per_quarter")
    keys = keys_of(SimpleNamespace(**options))
    with Inputs(of_task, rate=frames_per_quarter, keys=keys, keep_paths=True) as inputs:
        # Labels of an array are data; of files they are an option, which says how these are labelled.
        apart = not (data is None or isinstance(data, str | PathLike) or isinstance(options.get("labels"), str | bool))
        labels = options.pop("labels", None) if apart else None
        if text is not None:
            if not isinstance(text, str):
                raise OptionError(
                    "text", f"expected a string, got {type(text).__name__}", "pass a list of strings as data"
                )
            if data is not None:
                raise OptionError("text", "given together with data", "pass one of them")
            source: Any = inputs.text(text)
        else:
            source = None if data is None else inputs.source(data, labels=labels, y=y, rate=options.get("rate"))
        chosen = task_class(inputs.task) if inputs.task else _recognised(source)
        if chosen.name == "classify" and is_path(source) and is_images(paths_of(source)[0]):
            chosen = task_class("classify-images")
        inputs.task = chosen.name
        if labels is not None and chosen.name not in ("image", "classify-images"):
            raise OptionError("labels", f"expected images in an array, got data of the task {chosen.name}")
        if splits is not None and "validation" not in chosen.SOURCES:
            raise OptionError("data", f"a run of the task {chosen.name} takes no splits", "pass one of them")
        sources: dict[str, Any] = dict.fromkeys(chosen.SOURCES)
        for name in chosen.SOURCES:
            if name == "source" and source is not None:
                sources[name] = source
            elif (value := options.pop(name, None)) is not None:
                sources[name] = inputs.source(value, name)
        options = inputs.options | options
        if before is not None and model is None:
            model = str(chosen.open(before).config.model)
        request = config_of(chosen, sources, model, options, budget=budget, steps=steps, epochs=epochs)
        given = names_given(options, budget=budget, steps=steps, epochs=epochs, model=model)
        if before is not None:
            request = started_from(chosen, request, before, given)
        from chainrule.devices import process_shard

        folder = TemporaryFolder() if out is None and process_shard()[0] == 0 else None  # of all processes
        target = folder.path if folder is not None else None if out is None else Path(str(out))
        trained = train_with(chosen, request, target, given, plain=plain, overwrite=overwrite, callbacks=callbacks)
        run = Run(trained, folder)
        if inputs.description is not None:
            with publishing(run.path):
                write_json(run.path / FRAME, inputs.description)
        return run


def _of_splits(splits: dict[str, Any], options: dict[str, Any]) -> Any:
    """Return the split to train on, and make that to validate on an option unless another is given."""
    if "train" not in splits:
        raise OptionError("data", f"expected a split called train, got {', '.join(splits)}", "pass one of them")
    held_out = "the validation given" if "validation" in options else "a part of it"
    if "validation" in splits and "validation" not in options:
        options["validation"], held_out = splits["validation"], "the split validation"
    tested = "; the split test is left to evaluate on" if "test" in splits else ""
    print(f"data: trains on the split train and validates on {held_out}{tested}", file=sys.stderr)
    return splits["train"]


def _recognised(source: str | None) -> "type[Task[Any]]":
    name = "text" if source is None else recognise(Path(source))
    if name is None and source is not None and Path(source).is_dir():
        raise unrecognised(source)
    return task_class(name or "text")


def _fit_module(
    module: Any, rows: Any, out: str | Path | None, callbacks: "Sequence[Callback]", options: dict[str, Any]
) -> "ModuleRun":
    if not hasattr(module, "log_prob"):
        name = type(module).__name__
        raise OptionError(
            "data", f"a {name} has no log_prob", "chainrule.from_logits(module) adapts one that returns logits"
        )
    if rows is None:
        raise ValueError("fit(module, rows): expected rows to train on, a tensor or array (N, ...), got none")
    run = ModuleRun(module, rows, path=None if out is None else Path(out), **options)
    run.train(callbacks=callbacks)
    return run


def load(path: str | Path) -> Run:
    """Open a run that `fit` or `chainrule train` wrote.

    Args:
        path: the run directory.

    Raises:
        FileNotFoundError: there is no such directory.
        ValueError: it holds no run, one of another format, or one that was changed.
    """
    return Run(open_run(path_of(path, "path")))


_TOGETHER = 64  # rows of a validation or score that are computed in one pass


class ModuleRun:
    """A training run of a model of the contract on rows in memory.

    Args:
        module: an `AutoregressiveModel`, or any model with an exact `log_prob(x, context, lengths)`.
        x: (N, ...) rows, a tensor or array: symbols (N, T), images (N, C, H, W), values.
        context: condition of each row, batch first, or of one row for all; an array or a dict of arrays.
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
        from chainrule.data import Batches, Shuffled
        from chainrule.devices import process_shard
        from chainrule.training import Interrupted, train

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
        from chainrule.state import select
        from chainrule.training import bits

        if not len(x):
            raise ValueError("rows: expected at least one to score, got none")
        rows = _tensors(x, context, lengths)
        size = rows["x"][0].numel()
        sizes = [size] * len(x) if lengths is None else rows["lengths"].tolist()
        nats: list[float] = []
        self.model.eval()
        for part in torch.arange(len(x)).split(_TOGETHER):
            with torch.no_grad():
                nats += (-self.model.log_prob(**select(rows, part))).double().tolist()
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

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self._folder is not None:
            self.path = self._folder.path  # where the files of the pickle are

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
        from chainrule.state import select

        x, context, lengths = select(self._rows, rows).values()
        if lengths is None and x.ndim == 2 and not x.is_floating_point():
            lengths = torch.full((len(x),), x.shape[1])
        return Batch(x, lengths=lengths, context=context, whole=lengths is None)


def _tensors(x: Any, context: Any, lengths: Any) -> dict[str, Any]:
    """Return the arguments of `log_prob` as tensors, with a condition and a length for each row."""
    from chainrule.state import count_rows, expand

    rows = {"x": _tree(x, "rows"), "context": _tree(context, "context"), "lengths": _tree(lengths, "lengths")}
    for name, permitted in (("context", (1, len(x))), ("lengths", (len(x),))):
        if rows[name] is not None and (count := count_rows(rows[name])) not in permitted:
            raise ValueError(f"{name}: expected one for each of {len(x)} rows, got {count}")
    return rows | {"context": expand(rows["context"], len(x))}


def _tree(value: Any, name: str) -> Any:
    """Return an array as a tensor, and a dict of arrays as one of tensors."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {key: _tree(part, name) for key, part in value.items()}
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"{name}: expected a tensor or array (N, ...), got {type(value).__name__}: stack rows of one length; pad "
            "others, and give lengths"
        ) from None


def training_length(budget: str | float | None) -> dict[str, float]:
    return {} if budget is None else {"budget": parse_duration(str(budget))}
