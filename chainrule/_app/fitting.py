"""`fit`: train a model on data in memory or on disk, as `chainrule train` does."""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule._app import frames
from chainrule._app.inputs import Inputs
from chainrule._app.keywords import config_of, flags_given, path_of, train_with
from chainrule._app.module_run import ModuleRun, training_length
from chainrule._app.run import Run
from chainrule._app.tasks import open_run, recognise, task_class, unrecognised
from chainrule._app.tasks.run_directory import FRAME, TemporaryFolder, refuse_existing, task_of
from chainrule._app.training_run import started_from
from chainrule.data._gather import paths_of
from chainrule.data._kinds import is_images

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chainrule._app.tasks.task import Task
    from chainrule.training import Callback


def fit(
    data: Any = None,
    rows: Any = None,
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
            polars or Arrow; a Dataset of Hugging Face. The text built into Python if it is left out. Or a module of
            your own, an `AutoregressiveModel`, which is trained on `rows`.
        rows: of `fit(module, rows)`: a tensor or array (N, ...); `ModuleRun` lists the options.
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
        return _fit_module(
            data, rows, out, callbacks, options | {name: n for name, n in length.items() if n is not None}
        )
    if rows is not None:
        raise ValueError("data: two positional arguments are a module and its rows, but the first is no module")
    if out is not None:
        refuse_existing(path_of(out, "out"), overwrite=overwrite)
    before = None if init is None else init.path if isinstance(init, Run) else path_of(init, "init")
    if task is None and before is not None:
        task = task_of(before)
    if task is None and ("horizon" in options or ("target" in options and frames.is_frame(data))):
        task = "forecast"
    of_task, frames_per_quarter = "" if task is None else task_class(task).name, options.get("frames_per_quarter")
    with Inputs(of_task, rate=frames_per_quarter, keep_paths=True) as inputs:
        # Labels of an array are data; of files they are an option, which says how these are labelled.
        apart = not (data is None or isinstance(data, str | PathLike) or isinstance(options.get("labels"), str | bool))
        labels = options.pop("labels", None) if apart else None
        if text is not None:
            if not isinstance(text, str):
                raise ValueError(f"text: expected a string, got {type(text).__name__}: pass a list of strings as data")
            if data is not None:
                raise ValueError("text: given together with data: pass one of them")
            source: str | None = inputs.text(text)
        else:
            source = None if data is None else inputs.path(data, labels=labels, rate=options.get("rate"))
        chosen = task_class(inputs.task) if inputs.task else _recognised(source)
        if chosen.name == "classify" and source is not None and is_images(paths_of(source)[0]):
            chosen = task_class("classify-images")
        inputs.task = chosen.name
        if labels is not None and chosen.name not in ("image", "classify-images"):
            raise ValueError(f"labels: expected images in an array, got data of the task {chosen.name}")
        sources: dict[str, str | None] = dict.fromkeys(chosen.SOURCES)
        for name in chosen.SOURCES:
            value = options.pop(name, None) if name != "source" or source is None else source
            if value is not None:
                sources[name] = inputs.path(value, name)
        options = inputs.options | options
        if before is not None and model is None:
            model = str(chosen.open(before).config.model)
        request = config_of(chosen, sources, model, options, budget=budget, steps=steps, epochs=epochs)
        given_flags = flags_given(options, budget=budget, steps=steps, epochs=epochs, model=model)
        given_flags |= {chosen.SOURCES[name].flag for name, path in sources.items() if path is not None}
        if before is not None:
            request = started_from(chosen, request, before, given_flags)
        folder = TemporaryFolder() if out is None else None
        target = folder.path if folder is not None else Path(str(out))
        trained = train_with(
            chosen, request, target, given_flags, plain=plain, overwrite=overwrite, callbacks=callbacks
        )
        run = Run(trained, folder)
        if inputs.description is not None:
            frames.save_description(inputs.description, run.path / FRAME)
        return run


def _recognised(source: str | None) -> "type[Task[Any]]":
    name = "text" if source is None else recognise(Path(source))
    if name is None and source is not None and Path(source).is_dir():
        raise unrecognised(source)
    return task_class(name or "text")


def _fit_module(
    module: Any, rows: Any, out: str | Path | None, callbacks: "Sequence[Callback]", options: dict[str, Any]
) -> ModuleRun:
    if not hasattr(module, "log_prob"):
        name = type(module).__name__
        raise ValueError(
            f"data: a {name} has no log_prob: chainrule.from_logits(module) adapts one that returns logits"
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
