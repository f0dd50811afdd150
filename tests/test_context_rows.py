"""Every conditional model takes a condition of as many rows as x, or of one row for all; some refused the latter."""

import pytest
import torch
from small_models import EVERY, SEQUENCES

from chainrule import models
from chainrule.state import expand, map_state


def with_labels(kind, levels, **options):
    return lambda: (
        kind((1, 4, 4), levels, channels=8, layers=1, num_classes=3, **options),
        (torch.randint(levels, (3, 1, 4, 4)), torch.tensor([2, 0, 1])),
    )


LABELLED = {
    "GatedPixelCNN": with_labels(models.GatedPixelCNN, 2),
    "ImageTransformer": lambda: (
        models.ImageTransformer((1, 4, 4), 2, model_size=8, num_layers=1, num_heads=2, num_classes=3),
        (torch.randint(2, (3, 1, 4, 4)), torch.tensor([2, 0, 1])),
    ),
    "MADE": lambda: (models.MADE(6, [12], context_size=3), (torch.randint(2, (3, 6)).float(), torch.tensor([2, 0, 1]))),
    "MultiScalePixelCNN": with_labels(models.MultiScalePixelCNN, 4, components=2),
    "PixelCNN": with_labels(models.PixelCNN, 2),
    "PixelCNNPP": with_labels(models.PixelCNNPP, 4, components=2),
    "PixelRNN": with_labels(models.PixelRNN, 2),
    "WaveNet": lambda: (
        models.WaveNet(levels=5, channels=6, skip_channels=7, layers_per_block=2, blocks=1, num_classes=3),
        (torch.randint(5, (3, 12)), torch.tensor([2, 0, 1])),
    ),
}
CONDITIONAL = {name: make for name, make in EVERY.items() if len(make()[1]) > 1 and make()[1][1] is not None} | {
    f"{name} given labels": make for name, make in LABELLED.items()
}


@pytest.mark.parametrize("name", CONDITIONAL)
def test_one_row_of_a_condition_serves_all_rows(name):
    model, (x, context, *lengths) = CONDITIONAL[name]()
    model.eval()
    one = map_state(lambda leaf: leaf[:1], context)
    same = expand(one, len(x))
    for score in (model.log_prob, model.training_objective):
        torch.testing.assert_close(score(x, one, *lengths), score(x, same, *lengths))
    if name.removesuffix(" given labels") not in SEQUENCES:
        return
    torch.testing.assert_close(model(x, one).log_prob(x), model(x, same).log_prob(x))
    sequence = model.to_sequence(x)
    found, expected = (
        model.unroll(sequence, model.initial_state(len(x), c))[0].log_prob(sequence) for c in (one, same)
    )
    torch.testing.assert_close(found, expected)
    draws = [
        model.sample(3, c, length=sequence.shape[1], generator=torch.Generator().manual_seed(0)) for c in (one, same)
    ]
    assert torch.equal(*draws)


@pytest.mark.parametrize("name", CONDITIONAL)
def test_other_numbers_of_rows_are_refused(name):
    model, (x, context, *lengths) = CONDITIONAL[name]()
    two = map_state(lambda leaf: leaf[:2], context)
    with pytest.raises(ValueError, match=r"^(context|x|past): expected "):
        model.log_prob(x, two, *lengths)
