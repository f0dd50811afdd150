"""Samples drawn in parallel, in place of `model.sample`, and what is told of it."""

from typing import TYPE_CHECKING, Any

from chainrule.tasks.display import counted

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.base import AutoregressiveModel, Context


class ParallelDraws:
    """Draws as `model.sample` does, and counts passes and guesses over all calls.

    Args:
        model: over symbols.
        draft: guesses for it; None takes the model's own results of the last pass.
        rejection: whether guesses are accepted by chance; see `chainrule.decoding.sample_parallel`.
    """

    def __init__(self, model: "AutoregressiveModel", draft: "AutoregressiveModel | None" = None, *, rejection: bool):
        self.model, self.draft, self.rejection = model, draft, rejection
        self.elements = self.passes = self.guesses = self.accepted = 0

    def __call__(self, n: int, context: "Context" = None, **options: Any) -> "Tensor":
        """The sequences that `model.sample` would return, or with `rejection` others of the same distribution."""
        from chainrule.decoding import sample_parallel

        drawn = sample_parallel(self.model, n, context, draft=self.draft, rejection=self.rejection, **options)
        self.elements += drawn.elements
        self.passes += drawn.passes
        self.guesses += drawn.guesses
        self.accepted += drawn.accepted
        return drawn.x

    def figures(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "passes": self.passes,
            "elements_per_pass": self.elements / max(self.passes, 1),
            "acceptance_rate": self.accepted / max(self.guesses, 1),
        }

    def summary(self) -> str:
        """The figures as a line."""
        figures = self.figures()
        return (
            f"{counted(self.elements, 'element')} a row in {self.passes:,} passes, "
            f"{figures['elements_per_pass']:.3g} a pass; "
            f"{figures['acceptance_rate']:.1%} of {self.guesses:,} guesses accepted"
        )
