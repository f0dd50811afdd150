"""What decides which weights are kept, where that is not the likelihood."""

from collections.abc import Callable
from dataclasses import dataclass

from chainrule.base import LikelihoodModel


@dataclass(frozen=True)
class Judgement:
    """What a model came to on held-out data, by the measure that its task is judged by.

    Args:
        name: of the measure, as figures name it: accuracy, f1, bleu.
        value: higher is better.
        text: an example or two to show with it.
    """

    name: str
    value: float
    text: str = ""


Judge = Callable[[LikelihoodModel, int], Judgement]
"""Called with the model, in evaluation mode and without gradients, and the step."""
