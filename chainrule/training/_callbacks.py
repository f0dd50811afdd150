"""Callbacks: objects that receive the figures of a training run while it lasts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

Ending = Literal["finished", "interrupted", "failed"]


class Callback:
    """Receives the figures of a run; a subclass overrides the methods that it needs.

    The methods are called between steps, in the first process only. They see figures, never the model, so that a run
    with callbacks ends with the same bits as one without. An exception stops the run, which can be resumed.

    >>> class Best(Callback):
    ...     nats = float("inf")
    ...     def figures(self, step, figures):
    ...         self.nats = min(self.nats, figures.get("validation/nats_per_element", self.nats))
    """

    def begin(self, directory: Path, step: int) -> None:
        """Called before the first step.

        Args:
            directory: the run directory; `config.json` in it holds the options.
            step: weight updates done before, 0 for a new run. Figures of later steps, if any were received before an
                interruption, come again.
        """

    def figures(self, step: int, figures: Mapping[str, float]) -> None:
        """Called at each step and validation.

        Args:
            step: weight updates done.
            figures: by name: training/nats_per_element, training/learning_rate, validation/nats_per_element,
                timing/training_elements_per_second and others.
        """

    def text(self, step: int, name: str, text: str) -> None:
        """Called with a text: a warning, or a sample drawn at a validation.

        Args:
            step: weight updates done.
            name: "warning" or "sample".
            text: the text.
        """

    def end(self, ending: Ending) -> None:
        """Called after the last step, whatever ended the run."""
