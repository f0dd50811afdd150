"""`fit`, `load` and `Run`: the front door of the library. The command line calls the same methods.

run = chainrule.fit("poems.txt", budget="3m")
run.sample(3, prompt="It was ")
run.score(["first line", "second line"])
run.save("runs/poems")
"""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import cached_property, partial
from pathlib import Path
from secrets import randbelow
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

from chainrule import frames
from chainrule.inputs import Inputs, texts_of
from chainrule.module_run import ModuleRun, history_of, training_length
from chainrule.results import Report, Result
from chainrule.tasks import abilities, open_run, task_class
from chainrule.tasks.config import RunConfig
from chainrule.tasks.display import flag
from chainrule.tasks.run_directory import CONFIG, FRAME

if TYPE_CHECKING:
    from torch import nn

    from chainrule.tasks.task import Task

_RUN = ("run", "data", "name", "seed", "device", "n")  # names that the methods of a run keep for themselves


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
    overwrite: bool = False,
    **options: Any,
) -> "Run | ModuleRun":
    """Train a model on data, as `chainrule train` does: the same defaults, the same files, the same weights.

    Args:
        data: a path, as `chainrule train` takes it; strings, pairs of a text and a label, or sentences of (word, tag)
            pairs; a NumPy array or tensor of images, table rows or a series; a frame or series of pandas, polars or
            Arrow; a Dataset of Hugging Face. The text built into Python if it is left out. Or a module of your own, an
            `AutoregressiveModel`, which is trained on `rows`.
        rows: of `fit(module, rows)`: a tensor or array (N, ...); options are those of `ModuleRun`.
        text: a text to learn from, in place of `data`.
        task: text, table, image, sound, tag, classify, classify-images, translate, caption or forecast; recognised from
            the data by default.
        model: the architecture; the task's first by default.
        out: the run directory; a temporary one by default, which `Run.save` moves.
        budget: wall-clock time to train for, such as "90s" or "3m", or seconds; the default depends on the task.
        steps: weight updates to train for, in place of a budget.
        epochs: passes over the data to train for, in place of a budget.
        overwrite: whether to replace a run in `out`.
        **options: any option of `chainrule train DATA --help`, with underscores: `hidden_size=256`, `level="word"`,
            `target="load"`, `validation=frame`. Besides these `labels` of images in an array, and the `rate` of sounds.

    Returns:
        The trained run. Ctrl-C, or interrupting the kernel of a notebook, saves the run and returns it as it is;
        `Run.resume` continues it.

    Raises:
        ValueError: an option is unknown or out of range, or the data cannot be read or trained on.
        FileExistsError: there is a run in `out`.
    """
    if hasattr(data, "log_prob") and hasattr(data, "parameters"):
        return _fit_module(
            data, rows, out, options | training_length(budget) | _without_none(steps=steps, epochs=epochs)
        )
    if rows is not None:
        raise ValueError("data: two positional arguments are a module and its rows, but the first is no module")
    if task is None and ("horizon" in options or ("target" in options and frames.is_frame(data))):
        task = "forecast"
    with Inputs("" if task is None else task) as inputs:
        labels, rate = options.pop("labels", None), options.pop("rate", None)
        if text is not None:
            if data is not None:
                raise ValueError("text: given together with data: pass one of them")
            source: str | None = inputs.text(text)
        else:
            source = None if data is None else inputs.path(data, labels=labels, rate=rate)
        chosen = task_class(inputs.task) if inputs.task else _recognised(source)
        if chosen.name == "classify" and source is not None and task_class("image").recognises(Path(source)):
            chosen = task_class("classify-images")
        inputs.task = chosen.name
        sources: dict[str, str | None] = dict.fromkeys(chosen.SOURCES)
        for name in chosen.SOURCES:
            given = options.pop(name, None) if name != "source" or source is None else source
            if given is not None:
                sources[name] = inputs.path(given, name)
        asked = _config(chosen, sources, model, inputs.options | options, budget=budget, steps=steps, epochs=epochs)
        given_flags = _given(inputs.options | options, budget=budget, steps=steps, epochs=epochs, model=model)
        given_flags |= {chosen.SOURCES[name].flag for name, path in sources.items() if path is not None}
        chosen.check_asked(asked, given_flags)
        temporary = TemporaryDirectory(prefix="chainrule-run-") if out is None else None
        directory = Path(out) if temporary is None else Path(temporary.name) / "run"
        run = _train(chosen, asked, directory, given_flags, overwrite=overwrite)
        run._temporary = temporary
        if inputs.description is not None:
            frames.save_description(inputs.description, directory / FRAME)
        return run


def load(path: str | Path) -> "Run":
    """Open a run that `fit` or `chainrule train` wrote.

    Args:
        path: the run directory.

    Raises:
        FileNotFoundError: there is no such directory.
        ValueError: it holds no run, one of another format, or one that was changed.
    """
    return Run(open_run(path))


class Run:
    """A trained model with its data's vocabulary or schema: methods take data and return data.

    Which methods a run has depends on its task; `dir(run)` and its text list them. Each method takes the options of the
    verb of the same name as keyword arguments: `run.sample(3, temperature=0.8)` is
    `chainrule sample RUN -n 3 --temperature 0.8`.

    Args:
        task: the opened run of a task, as `chainrule.tasks.open_run` returns it.
    """

    def __init__(self, task: "Task[Any]"):
        self._task = task
        self._temporary: TemporaryDirectory[str] | None = None

    @property
    def path(self) -> Path:
        """The run directory."""
        return self._task.path

    @property
    def task(self) -> str:
        """The name of the task."""
        return self._task.name

    @cached_property
    def model(self) -> "nn.Module":
        """The trained module, with the weights of the best validation, in evaluation mode on the CPU."""
        found: nn.Module = self._task.model()
        return found

    @property
    def config(self) -> dict[str, Any]:
        """The content of config.json: data, model, options, training."""
        return self._task.config.to_json(self.task)

    @property
    def history(self) -> Result:
        """The records of training and validation: step, nats per element, learning rate, gradient norm and others."""
        return history_of(self._task.metrics())

    def sample(self, n: int | None = None, *, seed: int | None = None, device: str = "cpu", **options: Any) -> Any:
        """Draw from the model.

        Args:
            n: number of samples; the default depends on the task.
            seed: the same seed gives the same samples; new ones each time by default.
            device: auto, cpu or cuda.
            **options: of `chainrule sample RUN --help`, such as `prompt`, `temperature` or `complete`.

        Returns:
            Strings for a text; an array for images, (n, H, W) or (n, H, W, 3); an array, or a list of arrays of unequal
            length, for sounds; for a table a frame of the kind that the run was fitted on, else a `Result`.
        """
        run = self._able(abilities.Samples, "sample")
        with Inputs(self.task) as inputs:
            chosen = self._options(run.Sampling, options, inputs)
            number = run.USUAL_NUMBER if n is None else n
            drawn = run.sample(number, chosen, seed=randbelow(1 << 31) if seed is None else seed, device=device)
            return self._native(drawn)

    def stream(self, *, seed: int | None = None, device: str = "cpu", **options: Any) -> Iterator[str]:
        """Draw one text, in pieces as they are drawn. Arguments are those of `sample`."""
        run = self._able(abilities.Samples, "stream")
        chosen = self._options(run.Sampling, options, None)
        pieces = run.pieces(chosen, seed=randbelow(1 << 31) if seed is None else seed, device=device)
        if pieces is None:
            raise ValueError(f"stream: a run of {self._task.config.model} draws no text in pieces; use sample")
        return (piece for (piece,) in pieces.stream())

    def score(self, data: Any, *, device: str = "auto", **options: Any) -> Result:
        """Score data: nats and bits, exact under the model, or a bound that says so.

        Args:
            data: a path, or data in memory of the kind that `fit` takes. Of strings each is scored on its own.
            device: auto, cpu or cuda.
            **options: of `chainrule score RUN --help`.

        Returns:
            A row for each line, string, row or file, with its nats; `Result.top` ranks them by surprise, and
            `Result.per("element")` gives a row for each symbol of a text.
        """
        run = self._able(abilities.Scores, "score")
        return self._answer(run.Scoring, data, options, partial(run.score, device=device), texts=True)

    def predict(self, data: Any, *, device: str = "auto", **options: Any) -> Any:
        """Answer for data: tags, labels, translations, captions or forecasts, as the task of the run says.

        Args:
            data: a path, or data in memory of the kind that `fit` takes, without the answers.
            device: auto, cpu or cuda.
            **options: of the verb of the task, such as `chainrule translate RUN --help`.

        Returns:
            A row for each input; a forecast is a frame of the kind that the run was fitted on.
        """
        run = self._able(abilities.Predicts, "predict")

        def ask(path: str, chosen: Any) -> Result:
            found: Result = run.predict([path], chosen, device=device)
            return found

        return self._answer(run.Prediction, data, options, ask)

    def tag(self, data: Any, **options: Any) -> Any:
        """Tag sentences; see `predict`."""
        return self._predict("tag", data, options)

    def classify(self, data: Any, **options: Any) -> Any:
        """Label texts or images; see `predict`."""
        return self._predict("classify", data, options)

    def translate(self, data: Any, **options: Any) -> Any:
        """Translate sentences; see `predict`."""
        return self._predict("translate", data, options)

    def caption(self, data: Any, **options: Any) -> Any:
        """Caption images; see `predict`."""
        return self._predict("caption", data, options)

    def forecast(self, data: Any, **options: Any) -> Any:
        """Forecast what follows the last row of series; see `predict`."""
        return self._predict("forecast", data, options)

    def evaluate(self, data: Any = None, *, device: str = "auto", **options: Any) -> Result:
        """Compare the run's predictions with the right ones; the figures are in `Result.summary`.

        Args:
            data: a path, or data in memory with the right answers.
            device: auto, cpu or cuda.
            **options: of `chainrule evaluate RUN --help`.
        """
        run = self._able(abilities.Evaluates, "evaluate")
        return self._answer(run.Evaluation, data, options, partial(run.evaluate, device=device))

    def embed(self, data: Any, *, device: str = "auto", **options: Any) -> Result:
        """Embed inputs as vectors, a row each; `Result.to_numpy` gives them as an array (N, D)."""
        run = self._able(abilities.Embeds, "embed")
        return self._answer(run.Embedding, data, options, partial(run.embed, device=device), texts=True)

    def inspect(self, data: Any = None, *, seed: int = 0, **options: Any) -> Report:
        """Look inside the model: gradients, memory, gates, attention, latent codes, as far as it has them.

        Args:
            data: to read in place of held-out data.
            seed: of random choices.
            **options: of `chainrule inspect RUN --help`.

        Returns:
            A report that a notebook shows as a page; `Report.save` writes it.
        """
        run = self._able(abilities.Inspects, "inspect")
        return self._answer(run.Inspection, data, options, partial(run.inspect, seed=seed))

    def check(self, *, seed: int = 0) -> Any:
        """Check that the model keeps the contract; see `chainrule.testing.check_model`."""
        import torch

        from chainrule.testing import check_model

        rows = self._able(abilities.Checks, "check").checked_rows()
        with torch.random.fork_rng(devices=[]):
            return check_model(rows.model, rows.x, rows.context, rows.lengths, seed=seed)

    def resume(
        self,
        *,
        budget: str | float | None = None,
        steps: int | None = None,
        epochs: float | None = None,
        **options: Any,
    ) -> Self:
        """Continue training, with the run's own options.

        Args:
            budget, steps, epochs: the new total, where the run should become longer.
            **options: the few that may change, such as `patience` or `device`.
        """
        task = type(self._task)
        model = self._task.config.model
        asked = _config(task, dict.fromkeys(task.SOURCES), model, options, budget=budget, steps=steps, epochs=epochs)
        given = _given(options, budget=budget, steps=steps, epochs=epochs)
        self._task = _train(task, asked, self.path, given, resume=True)._task
        self.__dict__.pop("model", None)
        return self

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Move the run into a directory, if it is in a temporary one; else copy it there.

        Args:
            path: the directory.
            overwrite: whether to replace a run that is there.

        Raises:
            FileExistsError: there is something already.
        """
        from chainrule.tasks.run_directory import refuse_taken, remove

        target = Path(path)
        refuse_taken(target, overwrite=overwrite)
        remove(target)
        target.mkdir(parents=True, exist_ok=True)
        parts = sorted(self.path.iterdir(), key=lambda part: part.name == CONFIG)  # last: it makes the directory a run
        for part in parts:
            if part.name != CONFIG and part.name.startswith("."):
                continue
            if self._temporary is not None:
                shutil.move(part, target / part.name)
            elif part.is_dir():
                shutil.copytree(part, target / part.name)
            else:
                shutil.copy2(part, target / part.name)
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None
        self._task = open_run(target)

    def __repr__(self) -> str:
        best = self._task.held_out()
        measured = "not trained yet" if best is None else f"held out: {best.nats_per_element:.4f} {best.basis}"
        can = ", ".join(name for name in dir(self) if name in _ABILITIES)
        return f"<Run {self.task}, {self._task.config.model}, in {self.path}: {measured}; can {can}>"

    def __dir__(self) -> list[str]:
        found = [name for name in super().__dir__() if name not in _PREDICTIONS]
        verb = self._verb()
        return [name for name in (*found, verb) if name not in _ABILITIES or isinstance(self._task, _ABILITIES[name])]

    def _verb(self) -> str:
        return (isinstance(self._task, abilities.Predicts) and self._task.verb) or self.task

    def _predict(self, verb: str, data: Any, options: dict[str, Any]) -> Any:
        if not isinstance(self._task, abilities.Predicts) or self._verb() != verb:
            raise ValueError(f"{verb}: a run of the task {self.task} cannot do this; it can {', '.join(self._can())}")
        return self.predict(data, **options)

    def _can(self) -> list[str]:
        return [name for name in dir(self) if name in _ABILITIES]

    def _able(self, ability: type, name: str) -> Any:
        if not isinstance(self._task, ability):
            raise ValueError(f"{name}: a run of the task {self.task} cannot do this; it can {', '.join(self._can())}")
        return self._task

    def _options(self, kind: type, options: Mapping[str, Any], inputs: Inputs | None) -> Any:
        """An instance of a dataclass of options; data in memory for an option that names a file are written to one."""
        known = [item.name for item in fields(kind)]
        for name in options:
            if name not in known:
                raise _unknown(name, [*known, *_RUN])
        paths = {item.name for item in fields(kind) if "Path" in str(item.type)}
        values = dict(options)
        for name in paths & options.keys() if inputs is not None else ():
            values[name] = None if options[name] is None else Path(inputs.path(options[name], name))
        return kind(**values)

    def _answer(self, kind: type, data: Any, options: Mapping[str, Any], ask: Any, *, texts: bool = False) -> Any:
        with Inputs(self.task) as inputs:
            inputs.options |= {"rate": getattr(self._task, "rate", None)} if self.task == "sound" else {}
            options = dict(options)
            labels = options.pop("labels", None)
            path: str | list[str] | None = None
            if texts and self.task == "text" and not isinstance(data, str | os.PathLike):
                path = texts_of(data)
            elif data is not None:
                path = inputs.path(data, labels=labels)
            found = ask(path, self._options(kind, options, inputs))
            if isinstance(found, Result):
                len(found)  # the files of data in memory are there only now
                return self._native(found) if found.framed else found
            return found

    def _native(self, result: Result) -> Any:
        if result.form in ("images", "sounds"):
            import numpy as np

            arrays = result.values
            return np.stack(arrays) if len({array.shape for array in arrays}) == 1 else arrays
        if result.form in ("lines", "texts"):
            return result.values
        description = frames.load_description(self.path / FRAME)
        return result if description is None else frames.restore(description, result.cells())


_PREDICTIONS = ("tag", "classify", "translate", "caption", "forecast")
_ABILITIES = {
    "sample": abilities.Samples,
    "score": abilities.Scores,
    "predict": abilities.Predicts,
    **dict.fromkeys(_PREDICTIONS, abilities.Predicts),
    "evaluate": abilities.Evaluates,
    "embed": abilities.Embeds,
    "inspect": abilities.Inspects,
    "check": abilities.Checks,
}


def _fit_module(module: Any, rows: Any, out: str | Path | None, options: dict[str, Any]) -> ModuleRun:
    import torch

    if rows is None:
        raise ValueError("fit(module, rows): expected rows to train on, a tensor or array (N, ...), got none")
    run = ModuleRun(module, torch.as_tensor(rows), path=None if out is None else Path(out), **options)
    run.train()
    return run


def _without_none(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _recognised(source: str | None) -> "type[Task[Any]]":
    from chainrule.cli.stages import recognised

    return task_class("text") if source is None else recognised(Path(source))


def _config(
    task: "type[Task[Any]]",
    sources: dict[str, str | None],
    model: str | None,
    options: Mapping[str, Any],
    *,
    budget: str | float | None,
    steps: int | None,
    epochs: float | None,
) -> RunConfig:
    """The config that keyword arguments describe; each goes to the dataclass that has a field of its name."""
    from chainrule.cli.signature import RunFlags

    name = next(iter(task.MODELS)) if model is None else model
    if name not in task.MODELS:
        raise ValueError(f"model: expected one of {', '.join(task.MODELS)}, got {name!r}")
    parts = (task.Data, task.MODELS[name].options, task.Training)
    known = [[item.name for item in fields(part)] for part in parts]
    for option in options:
        if not any(option in names for names in known):
            raise _unknown(option, [name for names in known for name in names])
    data, of_model, training = (
        part(**{option: value for option, value in options.items() if option in names})
        for part, names in zip(parts, known, strict=True)
    )
    length = RunFlags(budget=None if budget is None else _seconds(budget), steps=steps, epochs=epochs)
    return RunConfig(sources, data, name, of_model, length.duration(task.BUDGET), training)


def _seconds(budget: str | float) -> str:
    return budget if isinstance(budget, str) else str(budget)


def _given(options: Mapping[str, Any], **others: Any) -> frozenset[str]:
    """The flags that arguments stand for."""
    return frozenset(map(flag, [*options, *(name for name, value in others.items() if value is not None)]))


def _unknown(name: str, known: list[str]) -> ValueError:
    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(sorted(set(known)))}"
    return ValueError(f"{name}: unknown option: {hint}")


def _train(
    task: "type[Task[Any]]",
    asked: RunConfig,
    out: Path,
    given: frozenset[str],
    *,
    resume: bool = False,
    overwrite: bool = False,
) -> Run:
    from chainrule.cli.signature import RunFlags
    from chainrule.cli.train import train_run
    from chainrule.training.parallel import Interrupted

    try:
        train_run(task, asked, out, RunFlags(out=out, resume=resume, overwrite=overwrite), given)
    except Interrupted as stop:
        print(f"Interrupted: step {stop.step} is saved; run.resume() continues.", file=sys.stderr)
    return Run(task.open(out))
