"""Callbacks that log a training run to TensorBoard, MLflow or Weights & Biases."""

import json
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, time
from typing import Any, Literal

from chainrule.files import read_json, write_json
from chainrule.option_error import OptionError
from chainrule.training import Callback
from chainrule_app.tasks.remote_run import Publisher

Ending = Literal["finished", "interrupted", "failed"]


Tracker = Literal["tensorboard", "mlflow", "wandb"]
_INSTALL = {"tensorboard": "tensorboard", "mlflow": "mlflow-skinny", "wandb": "wandb"}
_IDS = "tracking.json"  # in a run directory: the trackers' identifiers of the run, for resuming
_FLUSH_SECONDS, _MOST_PENDING = 2.0, 500
_LONGEST_PARAMETER = 500  # characters, of MLflow


def check_tracker(name: Tracker) -> None:
    """Raise ValueError if the package of a tracker is not installed."""
    if find_spec(name) is None:
        package = _INSTALL[name]
        raise OptionError("track", f"expected the package {package}, which is not installed", f"pip install {package}")


def make_tracker(name: Tracker) -> Callback:
    """Return the callback of a tracker."""
    check_tracker(name)
    return {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WeightsAndBiases}[name]()


class TensorBoard(Callback):
    """Callback that writes events into the folder `tensorboard` of the run."""

    def begin(self, directory: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(directory / "tensorboard"), purge_step=step + 1 if step else None)

    def figures(self, step: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)

    def text(self, step: int, name: str, text: str) -> None:
        self._writer.add_text(name, text, step)

    def end(self, ending: Ending) -> None:
        self._writer.close()


class MLflow(Callback):
    """Callback that logs to MLFLOW_TRACKING_URI, in the experiment MLFLOW_EXPERIMENT_NAME."""

    def begin(self, directory: Path, step: int) -> None:
        from mlflow import MlflowClient

        self._client = MlflowClient()
        self._pending: list[Any] = []
        self._flushed = monotonic()
        self._id = _saved_id(directory, "mlflow") if step else None
        if self._id is None:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "chainrule")
            existing = self._client.get_experiment_by_name(name)
            experiment = self._client.create_experiment(name) if existing is None else existing.experiment_id
            self._id = self._client.create_run(experiment, run_name=directory.name).info.run_id
            _remember(directory, "mlflow", self._id)
            for option, value in _options(directory).items():
                self._client.log_param(self._id, option, str(value)[:_LONGEST_PARAMETER])
        else:
            self._client.update_run(self._id, "RUNNING")

    def figures(self, step: int, figures: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = round(1000 * time())
        self._pending += [Metric(name, float(value), now, step) for name, value in figures.items()]
        if len(self._pending) >= _MOST_PENDING or monotonic() - self._flushed > _FLUSH_SECONDS:
            self._flush()

    def text(self, step: int, name: str, text: str) -> None:
        assert self._id is not None
        self._client.set_tag(self._id, name, f"step {step}: {text}"[:_LONGEST_PARAMETER])

    def end(self, ending: Ending) -> None:
        assert self._id is not None
        self._flush()
        self._client.set_terminated(
            self._id, {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}[ending]
        )

    def _flush(self) -> None:
        assert self._id is not None
        if self._pending:
            self._client.log_batch(self._id, metrics=self._pending)
        self._pending, self._flushed = [], monotonic()


class Publishing(Callback):
    """Callback that sends a run to its URL after each checkpoint."""

    def __init__(self, publisher: Publisher):
        self._publisher = publisher

    def begin(self, directory: Path, step: int) -> None:
        self._publisher.send()

    def figures(self, step: int, figures: Mapping[str, float]) -> None:
        self._publisher.send_saved()


class WeightsAndBiases(Callback):
    """Callback that logs to the project WANDB_PROJECT; WANDB_MODE=offline writes only into the run's folder `wandb`."""

    def begin(self, directory: Path, step: int) -> None:
        import wandb

        saved = _saved_id(directory, "wandb") if step else None
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "chainrule"),
            name=directory.name,
            id=saved,
            resume="allow" if saved else None,
            dir=str(directory),
            config=_options(directory),
            settings=wandb.Settings(console="off"),  # standard output stays as it is
        )
        _remember(directory, "wandb", self._run.id)
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")  # one step may log several times, and again after resuming

    def figures(self, step: int, figures: Mapping[str, float]) -> None:
        self._run.log({"step": step, **figures})

    def text(self, step: int, name: str, text: str) -> None:
        self._run.log({"step": step, name: text})

    def end(self, ending: Ending) -> None:
        self._run.finish(exit_code=0 if ending == "finished" else 1)


def _saved_id(directory: Path, tracker: str) -> str | None:
    try:
        name = read_json(directory / _IDS)[tracker]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) else None


def _remember(directory: Path, tracker: str, name: str) -> None:
    others = {other: saved for other in _INSTALL if (saved := _saved_id(directory, other)) and other != tracker}
    write_json(directory / _IDS, others | {tracker: name})


def _options(directory: Path) -> dict[str, Any]:
    """Return the options of the run, named by section and option."""
    config = directory / "config.json"
    if not config.is_file():
        return {}
    content = json.loads(config.read_text(encoding="utf-8"))
    options = {f"data/{name}": value for name, value in content["data"].items() if name != "sources"}
    options |= {f"model/{name}": value for name, value in content["model"]["options"].items()}
    options |= {f"training/{name}": value for name, value in content["training"].items()}
    return {"task": content["task"], "model": content["model"]["name"], **options}
