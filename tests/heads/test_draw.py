"""Drawing needs a generator and nothing else, for any distribution."""

import pytest
import torch
from torch import distributions

from chainrule.heads import Categorical, draw

KINDS = [
    Categorical(torch.zeros(4, 3)),
    distributions.Categorical(logits=torch.zeros(4, 3)),
    distributions.Normal(torch.zeros(4), 1.0),
    distributions.Bernoulli(torch.full((4,), 0.5)),
    distributions.Independent(distributions.Normal(torch.zeros(4, 2), 1.0), 1),
    distributions.LogNormal(torch.zeros(4), 1.0),
]


@pytest.mark.parametrize("distribution", KINDS, ids=lambda kind: type(kind).__name__)
def test_a_seed_fixes_the_draws_and_the_world_does_not_move(distribution):
    before = torch.get_rng_state()
    generator = torch.Generator().manual_seed(5)
    first = [draw(distribution, generator=generator) for _ in range(8)]
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    generator = torch.Generator().manual_seed(5)
    again = [draw(distribution, generator=generator) for _ in range(8)]
    other = [draw(distribution, generator=torch.Generator().manual_seed(6)) for _ in range(8)]
    assert torch.equal(torch.stack(first), torch.stack(again))
    assert not torch.equal(torch.stack(first), torch.stack(other))
    assert not all(torch.equal(first[0], later) for later in first[1:])
    assert first[0].shape == distribution.batch_shape + distribution.event_shape


def test_without_a_generator_the_global_one_is_used():
    torch.manual_seed(1)
    first = draw(distributions.Normal(torch.zeros(4), 1.0))
    torch.manual_seed(1)
    assert torch.equal(first, draw(distributions.Normal(torch.zeros(4), 1.0)))


@pytest.mark.parametrize("kind", [Categorical, lambda logits: distributions.Categorical(logits=logits)])
def test_categorical_draws_are_filtered(kind):
    die = kind(torch.tensor([[3.0, 2.0, 1.0]]).expand(300, 3))
    assert set(draw(die, temperature=0.0).tolist()) == {0}
    assert set(draw(die, top_k=2).tolist()) == {0, 1}
    assert set(draw(die, top_p=0.1).tolist()) == {0}


@pytest.mark.parametrize("arguments", [{"temperature": 0.5}, {"top_k": 2}, {"top_p": 0.5}])
def test_filters_of_other_distributions_are_refused(arguments):
    with pytest.raises(ValueError, match="need a categorical distribution, got Normal"):
        draw(distributions.Normal(torch.zeros(2), 1.0), **arguments)
