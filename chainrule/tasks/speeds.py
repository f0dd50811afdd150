"""How fast a trained model reads and draws, measured in a moment."""

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chainrule.base import AutoregressiveModel
    from chainrule.tasks.task import Task
    from chainrule.training.batch import Batch

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
    from chainrule.base import AutoregressiveModel
    from chainrule.training.batch import count_elements
    from chainrule.training.evaluate import evaluate

    model = run.model(device)
    batch = next(iter(run.batches((0, 1))[1]()))
    evaluate(model, [batch])  # what is done once is done now
    began, read = monotonic(), 0
    while monotonic() - began < SECONDS:
        evaluate(model, [batch])
        read += count_elements(batch)
    score = read / (monotonic() - began)
    return Speeds(score, _drawn(model, batch) if isinstance(model, AutoregressiveModel) else None)


def _drawn(model: "AutoregressiveModel", batch: "Batch") -> float:
    """Elements drawn a second, given the conditions of a batch where there are any."""
    import torch

    from chainrule.decoding.draw_for import draw_for
    from chainrule.state import count_rows, map_state

    rows = _DRAWN if batch.context is None else min(_DRAWN, count_rows(batch.context))
    context = map_state(lambda leaf: leaf[:rows], batch.context)
    generator = torch.Generator(next(model.parameters()).device).manual_seed(0)
    stream = model.stream(rows, context, generator=generator)
    began = monotonic()
    drawn = draw_for(stream, model.sequence_length or _LONGEST, SECONDS)
    return drawn.numel() / (monotonic() - began)
