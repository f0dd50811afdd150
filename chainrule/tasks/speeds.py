"""How fast a trained model reads and draws, measured in a moment."""

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chainrule.base import TrainableModel
    from chainrule.tasks.task import Task
    from chainrule.training.evaluate import Batch

SECONDS = 0.5  # of each of the two
_LONGEST = 1 << 16  # elements drawn, where a sequence has no end
_DRAWN = 16  # sequences drawn together


@dataclass(frozen=True)
class Speeds:
    """Elements a second.

    Args:
        score: read, of held-out data in the batches of validation.
        sample: drawn, of several sequences together; None for a model that draws nothing.
    """

    score: float
    sample: float | None


def measure_speeds(run: "Task[Any]", device: str) -> Speeds:
    """Time scoring and sampling of a run's model, on its held-out data."""
    from chainrule.training.evaluate import count_elements, evaluate

    model = run.model(device)
    batch = next(iter(run.batches((0, 1))[1]()))
    evaluate(model, [batch])  # what is done once is done now
    began, read = monotonic(), 0
    while monotonic() - began < SECONDS:
        evaluate(model, [batch])
        read += count_elements(batch)
    score = read / (monotonic() - began)
    return Speeds(score, _drawn(model, batch))


def _drawn(model: "TrainableModel", batch: "Batch") -> float | None:
    """Elements drawn a second, given the conditions of a batch where there are any."""
    import torch

    from chainrule.base import AutoregressiveModel
    from chainrule.decoding.draw_for import draw_for
    from chainrule.latent import LatentModel
    from chainrule.state import count_rows, map_state

    rows = _DRAWN if batch.context is None else min(_DRAWN, count_rows(batch.context))
    generator = torch.Generator(next(model.parameters()).device).manual_seed(0)
    began, elements = monotonic(), 0
    if isinstance(model, AutoregressiveModel):
        stream = model.stream(rows, map_state(lambda leaf: leaf[:rows], batch.context), generator=generator)
        elements = draw_for(stream, model.sequence_length or _LONGEST, SECONDS).numel()
    elif isinstance(model, LatentModel):
        while monotonic() - began < SECONDS:
            elements += model.sample(rows, generator).numel()
    return elements / (monotonic() - began) if elements else None
