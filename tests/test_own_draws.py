"""Random numbers of one thread that leave the global generator alone."""

import pytest
import torch
from torch import distributions as D
from torch import nn

from chainrule.modes import own_draws

ONE = torch.ones(3)
INITIALISERS = ("uniform_", "normal_", "trunc_normal_", "orthogonal_", "kaiming_uniform_", "kaiming_normal_")
DRAWS = {
    **{name: lambda name=name: getattr(nn.init, name)(torch.empty(8, 9)) for name in INITIALISERS},
    "xavier": lambda: nn.init.xavier_normal_(nn.init.xavier_uniform_(torch.empty(8, 9))),
    "sparse_": lambda: nn.init.sparse_(torch.empty(8, 9), 0.1),
    "layers": lambda: torch.cat([nn.LSTM(3, 3).weight_ih_l0, nn.Embedding(5, 3).weight, nn.Linear(3, 2).weight]),
    "functions": lambda: torch.cat([torch.rand(3), torch.randn(3), torch.randperm(9), torch.randint(99, (5,))]),
    **{
        type(each).__name__: each.sample
        for each in (
            D.Normal(ONE, ONE), D.Bernoulli(ONE / 2), D.Categorical(torch.ones(50)), D.Gamma(ONE, ONE),
            D.Beta(ONE, ONE), D.Dirichlet(ONE), D.Poisson(ONE * 4), D.Binomial(10, ONE / 2), D.Exponential(ONE),
            D.Cauchy(ONE, ONE), D.StudentT(ONE), D.Uniform(0 * ONE, ONE), D.Geometric(ONE / 2), D.VonMises(ONE, ONE),
            D.Gumbel(ONE, ONE), D.MixtureSameFamily(D.Categorical(ONE), D.Normal(ONE, ONE)), D.LKJCholesky(3),
            D.Multinomial(9, ONE),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWS)
def test_own_draws_are_those_of_a_seed_and_leave_the_global_generator_alone(name):
    torch.manual_seed(5)
    expected = DRAWS[name]()
    torch.manual_seed(9)
    before = torch.get_rng_state()
    with own_draws(5):
        assert torch.equal(DRAWS[name](), expected)
    assert torch.equal(torch.get_rng_state(), before)
