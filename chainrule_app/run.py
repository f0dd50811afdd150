"""`Run`: a trained model whose methods take data and return data. The command line calls the same methods."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from chainrule.option_error import OptionError
from chainrule_app.answering import Answering
from chainrule_app.data_sets import split_for
from chainrule_app.frames import load_description
from chainrule_app.inputs import inputs_of
from chainrule_app.keywords import (
    bytes_of,
    checked,
    chosen_options,
    config_of,
    device_name,
    names_given,
    path_of,
    seed_of,
    train_with,
)
from chainrule_app.listing import history_of
from chainrule_app.printing import shown
from chainrule_app.readers.outgoing import outgoing
from chainrule_app.restored_frames import restored_cells
from chainrule_app.results import Report, Result
from chainrule_app.tasks import open_run
from chainrule_app.tasks.capabilities import METHODS
from chainrule_app.tasks.config import Number
from chainrule_app.tasks.remote_run import copy_to_work_in, publishing
from chainrule_app.tasks.run_directory import FRAME, copy_run

if TYPE_CHECKING:
    from torch import nn

    from chainrule.training import Callback
    from chainrule_app.scale import Mapper


class Run(Answering):
    """A trained model with its data's vocabulary or schema: methods take data and return data.

    The task decides which methods a run has; `dir(run)` and `repr(run)` list them. Each method takes the options of the
    verb of the same name as keyword arguments: `run.sample(3, temperature=0.8)` is
    `chainrule sample RUN -n 3 --temperature 0.8`.

    Several threads may use one run. Its weights are read once; where the run was trained again or deleted since it was
    opened, each method raises ValueError. A pickled run is its path, or the files of a run that has no directory of
    its own.

    Args:
        task: what the run learned, with its directory, config and vocabulary or schema; `run.task.name` is its name.
        folder: the temporary folder of the run, if it is in one.
    """

    @cached_property
    def model(self) -> "nn.Module":
        """The trained module, with the weights of the best validation, in evaluation mode on the CPU.

        It is the whole recipe that `repr(run)` names. A network mixed with counts is a `CalibratedMixture`, with
        the parts `network` and `companion`; a forecaster is a `ForecastMixture`, with `network`, `linear`,
        `smoothing` and `walk`; averaged networks are an `Ensemble` of `members`.
        A run trained with `plain=True` is one network, and `run.model` is that network.
        """
        return cast("nn.Module", self._with_model().loaded)

    @property
    def config(self) -> dict[str, Any]:
        """The content of config.json: data, model, options, training."""
        return self.task.config.to_json(self.task.name)

    @property
    def history(self) -> Result:
        """The records of training and validation: step, nats per element, learning rate, gradient norm and others."""
        return history_of(self.task.metrics())

    def sample(self, n: int | None = None, *, seed: int | None = None, device: str = "cpu", **options: Any) -> Any:
        """Draw from the model.

        Args:
            n: number of samples; the default depends on the task.
            seed: the same seed gives the same samples; random by default.
            device: auto, cpu, cuda or mps.
            **options: of `chainrule sample RUN --help`, such as `prompt`, `temperature` or `complete`.

        Returns:
            Strings for a text; an array of images, (n, H, W) or (n, H, W, 3), of sounds, or of piano rolls (n, T, 88),
            a list where lengths differ; for a table a frame like the fitted data, else a `Result`.
        """
        n = self._able("sample").DEFAULT_NUMBER if n is None else checked("n", Number, n)
        seed, device = seed_of(seed), device_name(device)
        with self._calling() as run, inputs_of(run) as inputs:
            chosen = chosen_options(run.Sampling, options, inputs)
            return self._native(run.sample(n, chosen, seed=seed, device=device))

    def stream(self, *, seed: int | None = None, device: str = "cpu", **options: Any) -> Iterator[str]:
        """Draw one text, piece by piece. Takes the arguments of `sample`."""
        self._able("stream")
        seed, device = seed_of(seed), device_name(device)
        with self._calling() as run:
            with inputs_of(run) as inputs:
                chosen = chosen_options(run.Sampling, options, inputs)
            pieces = run.pieces(chosen, seed=seed, device=device)
            if pieces is None:
                raise ValueError(f"stream: a run of {run.config.model} draws no text in pieces; use sample")
            return (piece for (piece,) in pieces.stream())

    def score(self, data: Any, *, device: str = "auto", **options: Any) -> Result:
        """Score data: nats and bits, exact under the model, or a bound that says so.

        Args:
            data: a path, or data in memory of the kind that `fit` takes. Of strings each is scored on its own.
            device: auto, cpu, cuda or mps.
            **options: of `chainrule score RUN --help`.

        Returns:
            A row for each line, string, row or file, with its nats; `Result.top` ranks them by surprise, and
            `Result.per("element")` gives a row for each symbol of a text.
        """
        return self._answer("score", data, options, texts=True, device=device_name(device))

    def predict(self, data: Any, *, device: str = "auto", **options: Any) -> Result:
        """Predict tags, labels, translations, captions, forecasts or cells of a table, depending on the task.

        Args:
            data: a path, or data in memory of the kind that `fit` takes, without the answers.
            device: auto, cpu, cuda or mps.
            **options: of the verb of the task, such as `chainrule translate RUN --help`; for a table, `columns` are
                those to predict, by default every missing cell.

        Returns:
            A row for each input, or cell of a table; `Result.values` are the answers alone. Cells have the types of the
            frame that the run was fitted on. `Result.to_pandas` of a forecast is a frame indexed by time, and
            `Result.plot` its picture.
        """
        result = self._predicted(data, device=device, **options)
        description = load_description(self.path / FRAME) if self.task.name == "table" else None
        return result if description is None else restored_cells(description, result)

    def _predicted(self, data: Any, *, device: str = "auto", **options: Any) -> Result:
        self._able("predict")
        device = device_name(device)
        with self._calling() as run, inputs_of(run, answers=False) as inputs:
            files = None if data is None and run.continues else inputs.sources(split_for(data, "test"))
            chosen = chosen_options(run.Prediction, inputs.options_of(run.Prediction) | options, inputs)
            return self._settled(run.predict(files, chosen, device=device), inputs)

    def fill(self, data: Any, *, device: str = "auto", **options: Any) -> Any:
        """Fill in the gaps of a table: every missing cell and column, given the other cells of its row.

        Args:
            data: a path, or a frame or records with missing values.
            device: auto, cpu, cuda or mps.
            **options: of `chainrule fill RUN --help`; `values` is `--with`: "mean", "mode", "median" or "draw".

        Returns:
            The table, known cells unchanged, as a frame of the kind that the run was fitted on or of the kind of
            `data`, else as a `Result`.
        """
        return self._native(self._answer("fill", data, options, device=device_name(device)), data)

    def tag(self, data: Any, **options: Any) -> Result:
        """Tag sentences; see `predict`."""
        return self._predict("tag", data, options)

    def classify(self, data: Any, **options: Any) -> Result:
        """Label texts or images; see `predict`."""
        return self._predict("classify", data, options)

    def translate(self, data: Any, **options: Any) -> Result:
        """Translate sentences; see `predict`."""
        return self._predict("translate", data, options)

    def caption(self, data: Any, **options: Any) -> Result:
        """Caption images; see `predict`."""
        return self._predict("caption", data, options)

    def forecast(self, data: Any = None, **options: Any) -> Result:
        """Forecast what follows the last row of series; see `predict`.

        Args:
            data: a path, or data in memory; by default the series that the run was fitted on.
            **options: of `chainrule forecast RUN --help`.

        Returns:
            A row for each series and step, with the time, the mean, quantiles and all sample paths.
            `Result.to_pandas` is indexed by time, as a frame that the run was fitted on; `Result.per("path")` has a row
            for each step of each path, and `Result.plot` draws the quantiles after the last rows of the data.
        """
        return self._predict("forecast", data, options)

    def evaluate(self, data: Any = None, y: Any = None, *, device: str = "auto", **options: Any) -> Result:
        """Compare the run's predictions with references; the figures are in `Result.summary`.

        Args:
            data: a path, or data in memory with the right answers; of a DatasetDict the split called test.
            y: the right answers, if they are beside the data, as `fit` takes them.
            device: auto, cpu, cuda or mps.
            **options: of `chainrule evaluate RUN --help`.
        """
        return self._answer("evaluate", data, options, y=y, optional=True, device=device_name(device))

    def embed(self, data: Any, *, device: str = "auto", **options: Any) -> Result:
        """Embed inputs as vectors, one row per input; `Result.to_numpy` gives them as an array (N, D)."""
        return self._answer("embed", data, options, texts=True, device=device_name(device))

    def reconstruct(self, data: Any, *, seed: int = 0, device: str = "auto", **options: Any) -> Any:
        """Encode images and decode their codes: an array with one reconstruction per image.

        Args:
            data: a path, or images in memory.
            seed: of a decoder that draws.
            device: auto, cpu, cuda or mps.
            **options: of `chainrule reconstruct RUN --help`; `count` of a path's images, 32 by default.
        """
        counted = {} if isinstance(data, str | Path) or not hasattr(data, "__len__") else {"count": len(data)}
        seed, device = seed_of(seed), device_name(device)
        pairs = self._answer("reconstruct", data, counted | options, seed=seed, device=device)
        return self._native(pairs.with_rows(list(pairs.rows())[1::2]))

    def interpolate(self, first: Any, last: Any, *, seed: int = 0, device: str = "auto", **options: Any) -> Any:
        """Decode the codes between two images: an array that begins and ends with the two images.

        Args:
            first, last: an image each: a path of an image file, or an array (H, W) or (H, W, 3) of 8 bits.
            seed: of a decoder that draws.
            device: auto, cpu, cuda or mps.
            **options: of `chainrule interpolate RUN --help`.
        """
        self._able("interpolate")
        seed, device = seed_of(seed), device_name(device)
        with self._calling() as run, inputs_of(run) as inputs:
            ends = (inputs.item(first, "first"), inputs.item(last, "last"))
            chosen = chosen_options(run.Interpolation, options, inputs)
            return self._native(run.interpolate(ends, chosen, seed=seed, device=device))

    def compress(self, data: bytes, *, verify: bool = True) -> bytes:
        """Write bytes in about −log₂ p bits under the model, as `chainrule compress` does: a .chain file.

        Args:
            data: content of a file.
            verify: decode the result and compare.
        """
        from chainrule_app.tasks.compression import compress_data

        self._able("compress")
        data = bytes_of(data)
        with self._calling() as run:
            return compress_data(data, "data", run, verify=verify).data

    def decompress(self, data: bytes) -> bytes:
        """Read what `compress` or `chainrule compress` wrote.

        Raises:
            ValueError: the content is damaged, or another run wrote it.
        """
        from chainrule_app.tasks.compression import decompress_data
        from chainrule_app.tasks.container import read_container

        self._able("decompress")
        container = read_container(bytes_of(data), "data")
        with self._calling() as run:
            return decompress_data(container, "data", run)

    def inspect(self, data: Any = None, *, seed: int = 0, **options: Any) -> Report:
        """Look inside the model: gradients, memory, gates, attention, latent codes, as far as it has them.

        Args:
            data: data to read; held-out data by default.
            seed: of random choices.
            **options: of `chainrule inspect RUN --help`.

        Returns:
            A report that a notebook shows as a page; `Report.save` writes it.
        """
        return self._answer("inspect", data, options, optional=True, seed=seed_of(seed))

    def check(self, *, seed: int = 0) -> Any:
        """Check that `model`, the whole recipe, keeps the contract; see `chainrule.testing.check_model`."""
        self._able("check")
        with self._calling() as run:
            return run.check(seed=seed_of(seed))

    def report(self) -> Report:
        """Report on the training: learning curves, speed, samples, data. Notebooks show the page, `save` writes it."""
        with self._calling(model=False) as run:
            return cast(Report, run.report())

    def resume(
        self,
        *,
        budget: str | float | None = None,
        steps: int | None = None,
        epochs: float | None = None,
        callbacks: "Sequence[Callback]" = (),
        **options: Any,
    ) -> Self:
        """Continue training, with the run's own options.

        Args:
            budget, steps, epochs: the new total, to extend the run.
            callbacks: see `fit`.
            **options: the few that may change, such as `patience` or `device`.
        """
        task, length = type(self.task), dict[str, Any](budget=budget, steps=steps, epochs=epochs)
        request = config_of(task, dict.fromkeys(task.SOURCES), self.task.config.model, options, **length)
        given = names_given(options, **length)
        self.task.check_unchanged()
        with self._lock:
            self.task = train_with(task, request, self.path, given, resume=True, callbacks=callbacks)
            vars(self).pop("model", None)
        return self

    def mapper(self, method: str, *, per: Literal["row"] = "row", **options: Any) -> "Mapper":
        """Return a method as one picklable function of a batch of rows, for polars, Dask and engines like them.

        Args:
            method: score, predict, fill, sample, complete, embed, tag, classify, translate or forecast.
            per: "row": an answer for each row.
            **options: of the method, and of `chainrule_app.scale.Mapper`, such as `column`, `key` and `seed`.
        """
        from chainrule_app.scale import Mapper

        return Mapper(self, method, per=per, **options)

    def export(self, to: Literal["hub", "onnx", "torch-export", "web"], out: str | Path) -> None:
        """Write a new folder for other software, or one HTML file ("web"); see `chainrule export`."""
        from chainrule_app.exchange import export_run

        if not isinstance(to, str):
            raise OptionError("to", f"expected hub, onnx, torch-export or web, got a {type(to).__name__}")
        with self._calling() as run, outgoing() as local:
            export_run(run, to, local(path_of(out, "out"), "out"))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Move the run into a directory, if it is in a temporary one; else copy it there.

        Args:
            path: the directory.
            overwrite: whether to replace a run that is there.

        Raises:
            FileExistsError: there is something already.
        """
        target = path_of(path, "path")
        with self._lock:
            self.task.check_unchanged()
            with publishing(target):
                target = copy_to_work_in(target)
                copy_run(self.path, target, overwrite=overwrite)
            self.task = open_run(target)
            if self._folder is not None:
                self._folder.remove()
                self._folder = None

    def __repr__(self) -> str:
        best = self.task.held_out()
        measured = "no validation yet" if best is None else f"{best.nats_per_element:.4f} {best.basis.per}"
        return f"<Run {self.task.name}: {self.task.recipe}, held out {measured}, in {shown(self.path)}; {self._can}>"

    def _repr_html_(self) -> str:
        """Return the facts for a notebook."""
        best = self.task.held_out()
        facts = {
            "task": self.task.name,
            "model": self.task.recipe,
            "held out": "no validation yet" if best is None else f"{best.nats_per_element:.4f} {best.basis.per}",
            "data": "; ".join(self.task.introduce()),
            "in": shown(self.path),
            "methods": self._can.removeprefix("it can "),
        }
        rows = (
            f'<tr><th style="text-align:left">{name}</th><td style="text-align:left">{escape(text)}</td></tr>'
            for name, text in facts.items()
        )
        return f"<table><tbody>{''.join(rows)}</tbody></table>"

    def __dir__(self) -> list[str]:
        unable = METHODS.keys() - self.capabilities
        return [name for name in super().__dir__() if name not in unable]

    def _predict(self, verb: str, data: Any, options: dict[str, Any]) -> Result:
        if self._verb() != verb:
            raise ValueError(f"{verb}: a run of the task {self.task.name} cannot do this; {self._can}")
        return self.predict(data, **options)
