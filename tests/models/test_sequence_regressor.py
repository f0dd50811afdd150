"""Many-to-one regression: squared error as a likelihood."""

import math

import pytest
import torch

from chainrule.models import SequenceRegressor


def test_its_log_likelihood_is_the_squared_error():
    model, x, y = SequenceRegressor(2, num_outputs=3, hidden_size=4), torch.randn(5, 6, 2), torch.randn(5, 3)
    error = (y - model(x).mean).square().sum(1)
    torch.testing.assert_close(model.log_prob(y, x), -error - 1.5 * math.log(math.pi))


def test_single_answers_need_no_axis_of_their_own():
    model, x, y = SequenceRegressor(2, hidden_size=4), torch.randn(5, 6, 2), torch.randn(5, 1)
    assert torch.equal(model.log_prob(y.squeeze(1), x), model.log_prob(y, x))


def test_padding_changes_nothing():
    model, x = SequenceRegressor(2, hidden_size=4, num_layers=2), torch.randn(3, 6, 2)
    padded = x.clone()
    padded[1, 4:] = torch.nan
    lengths = torch.tensor([6, 4, 6])
    means = model({"inputs": padded, "lengths": lengths}).mean
    torch.testing.assert_close(means[1], model(x[1:2, :4]).mean[0])
    torch.testing.assert_close(means[::2], model(x[::2]).mean)


def test_it_learns_a_sum_over_time():
    model = SequenceRegressor(1, hidden_size=16, cell="gru")
    random = torch.Generator().manual_seed(0)
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(150):
        x = torch.rand(32, 6, 1, generator=random)
        optimiser.zero_grad()
        (-model.log_prob(x.sum(1), x).mean()).backward()
        optimiser.step()
    x = torch.rand(200, 6, 1, generator=random)
    error = (model(x).mean - x.sum(1)).square().mean().sqrt().item()
    assert error < 0.25  # their standard deviation is 0.71


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda model: model(torch.zeros(3, 6, 1)), "context"),
        (lambda model: model(None), "context"),
        (lambda model: model.log_prob(torch.zeros(1, 3), torch.zeros(3, 6, 2)), "x"),
        (lambda model: model.log_prob(torch.zeros(3), torch.zeros(3, 6, 2), torch.ones(3)), "lengths"),
        (lambda model: SequenceRegressor(2, num_outputs=0), "num_outputs"),
        (lambda model: SequenceRegressor(0), "input_size"),
    ],
)
def test_what_cannot_be_is_named(call, named):
    with pytest.raises(ValueError, match=f"^{named}"):
        call(SequenceRegressor(2, hidden_size=4))
