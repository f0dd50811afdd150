"""Callbacks that receive the metrics of a training run, and callbacks for TensorBoard, MLflow and Weights & Biases."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

Ending = Literal["finished", "interrupted", "failed"]


class Callback:
    """Base class of callbacks; subclasses override the methods that they need.

    Training calls the methods between steps, in the first process only. Callbacks see metrics, never the model, so that
    runs with and without callbacks end with the same bits. An exception stops the run, which can be resumed.

    >>> class Best(Callback):
    ...     nats = float("inf")
    ...     def figures(self, step, figures):
    ...         self.nats = min(self.nats, figures.get("validation/nats_per_element", self.nats))
    """

    def begin(self, directory: Path, step: int) -> None:
        """Receive the start of the run, before the first step.

        Args:
            directory: run directory; its `config.json` holds the options.
            step: number of earlier weight updates, 0 for a new run. Metrics of later steps, received before an
                interruption, are sent again.
        """

    def figures(self, step: int, figures: Mapping[str, float]) -> None:
        """Receive the metrics of a step or validation.

        Args:
            step: number of weight updates.
            figures: metrics by name: training/nats_per_element, training/learning_rate, validation/nats_per_element,
                timing/training_elements_per_second and others.
        """

    def text(self, step: int, name: str, text: str) -> None:
        """Receive a text: a warning, or a sample drawn at a validation.

        Args:
            step: number of weight updates.
            name: "warning" or "sample".
            text: the text.
        """

    def end(self, ending: Ending) -> None:
        """Receive the end of the run."""
