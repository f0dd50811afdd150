"""Frequencies of the values at each place of images, chords and sounds, the obvious alternative to a model of them."""

from typing import TYPE_CHECKING, Any

from chainrule_app.heavy import torch
from chainrule_app.tasks.baseline import Baseline, for_seconds, measured

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.training import Batch


def place_frequencies(run: Any, model: Any, seconds: float, *, name: str, measure: str, levels: int) -> Baseline:
    r"""Compare the nats of an element with those of the frequencies in training, each place of an element on its own.

    .. math:: p(v \mid \text{place}) = \frac{n_{\text{place}, v} + 1/2}{n + L/2}

    (Krichevsky and Trofimov 1981), where n elements of training were read, and L is the number of levels.
    """
    from chainrule.training import count_elements

    train, valid = run.batches((0, 1))
    counts = torch.zeros(_symbols(train.at(0), levels).shape[1] * levels, dtype=torch.long, device="cpu")
    for batch in for_seconds(map(train.at, range(train.steps_per_epoch)), seconds / 4):
        counts += _symbols(batch, levels).flatten().bincount(minlength=len(counts))
    smoothed = counts.view(-1, levels).double() + 0.5
    logs = (smoothed / smoothed.sum(1, keepdim=True)).log().flatten()
    own, read = measured(model, valid, 3 * seconds / 4)
    nats = -sum(float(logs[_symbols(batch, levels)].sum()) for batch in read)
    return Baseline(name, nats / sum(map(count_elements, read)), own, measure)


def _symbols(batch: "Batch", levels: int) -> "Tensor":
    """Return the number of each value at its place, (rows, places), of the elements of a batch."""
    x = batch.x
    if batch.lengths is not None:
        x = x[torch.arange(x.shape[1], device=x.device) < batch.lengths.unsqueeze(1)]
    elif not batch.whole:
        x = x.flatten(0, 1)
    values = x.reshape(len(x), -1).long().cpu()
    return values + levels * torch.arange(values.shape[1], device="cpu")
