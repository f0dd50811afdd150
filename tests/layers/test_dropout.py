import pytest
import torch

from chainrule.layers._pointwise import dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_elements_are_zeroed_with_probability_p_and_the_mean_stays(p):
    y = dropout(torch.ones(400, 501), p, training=True)
    zeros = (y == 0).double().mean().item()
    assert zeros == pytest.approx(p, abs=5 * (p * (1 - p) / y.numel()) ** 0.5)  # five standard errors
    kept = y[y != 0]
    assert torch.equal(kept, kept[:1].expand_as(kept))
    assert kept[0].item() == pytest.approx(1 / (1 - p), rel=2**-16 / (1 - p))  # p is rounded to 1/65,536


def test_neighbours_are_dropped_independently():
    zeros = (dropout(torch.ones(200_000), 0.5, training=True) == 0).double()
    for distance in range(1, 9):  # four elements share a random number
        both = (zeros[:-distance] * zeros[distance:]).mean().item()
        assert both == pytest.approx(0.25, abs=5 * (0.1875 / zeros.numel()) ** 0.5)


def test_the_gradient_is_that_of_the_mask():
    x = torch.randn(7, 5, requires_grad=True)
    y = dropout(x, 0.3, training=True)
    y.sum().backward()
    assert torch.allclose(x.grad * x, y)


def test_the_seed_decides_the_mask_and_evaluation_has_none():
    x = torch.randn(3, 3)
    first, second = (torch.manual_seed(1), dropout(x, 0.5, True))[1], (torch.manual_seed(1), dropout(x, 0.5, True))[1]
    assert torch.equal(first, second)
    assert dropout(x, 0.5, False) is x
    assert dropout(torch.ones(0), 0.5, True).shape == (0,)
