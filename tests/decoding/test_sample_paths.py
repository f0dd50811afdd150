"""Paths forked from one state follow the model."""

import pytest
import torch

from chainrule.decoding import sample_paths
from chainrule.models import Forecaster, VectorToSequence, WaveNet
from chainrule.models._series_window import SeriesScaling


def test_each_row_goes_on_from_its_own_context():
    model = VectorToSequence(vector_size=2, vocab_size=3, hidden_size=8).double()
    with torch.no_grad():
        model.begin.weight.mul_(5)
    vectors = torch.tensor([[1.0, -1.0], [-2.0, 0.5]])
    paths = sample_paths(model, vectors, paths=4000, length=2, generator=torch.Generator().manual_seed(0))
    assert paths.shape == (2, 4000, 2)
    for row in range(2):
        probs = model(paths[row], vectors[row].expand(4000, -1)).probs
        for t in range(2):
            seen = paths[row, :, t].bincount(minlength=3) / 4000
            torch.testing.assert_close(seen.double(), probs[:, t].mean(0).detach(), rtol=0, atol=0.03)


def test_the_same_seed_gives_the_same_paths_and_others_differ():
    model = Forecaster([SeriesScaling(20.0, 2.0)], hidden_size=8, dropout=0.0)
    past = torch.full((3, 6), 20.0)
    drawn = [
        sample_paths(model, past, paths=5, length=4, generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    ]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert len(drawn[0].flatten().unique()) == 60


@pytest.mark.parametrize("options", [{"paths": 0, "length": 2}, {"paths": 2, "length": 0}])
def test_arguments_out_of_range_are_named(options):
    with pytest.raises(ValueError, match="expected an integer >= 1"):
        sample_paths(Forecaster([SeriesScaling()], hidden_size=4), torch.zeros(1, 3), **options)


def test_a_context_without_rows_is_refused():
    model = WaveNet(levels=4, channels=4, layers_per_block=2, skip_channels=4, num_classes=3)
    with pytest.raises(ValueError, match="context: expected at least one row, got none"):
        sample_paths(model, torch.zeros(0, dtype=torch.long), paths=2, length=3)
