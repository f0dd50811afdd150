"""From steps to a row: real steps count, and nothing else."""

import pytest
import torch
from torch import Tensor

from chainrule.layers._packing import AttentionPooling, max_pooling, mean_pooling


def rows() -> tuple[Tensor, Tensor]:
    h = torch.randn(4, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return h, torch.tensor([5, 2, 0, 1])


def poured_over(h: Tensor, lengths: Tensor, value: float) -> Tensor:
    """h with its padding replaced."""
    return h.masked_fill((torch.arange(h.shape[1]) >= lengths.unsqueeze(1)).unsqueeze(2), value)


def attention(h: Tensor, lengths: Tensor | None = None) -> Tensor:
    torch.manual_seed(0)
    return AttentionPooling(3, 4).double()(h, lengths)[0].detach()


POOLINGS = [mean_pooling, max_pooling, attention]


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_row_is_pooled_as_if_it_stood_alone_without_padding(pooling) -> None:
    h, lengths = rows()
    pooled = pooling(h, lengths)
    for row in (0, 1, 3):
        alone = pooling(h[row : row + 1, : lengths[row]])
        torch.testing.assert_close(pooled[row : row + 1], alone, rtol=0, atol=1e-15)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_padding_may_hold_anything(pooling, value: float) -> None:
    h, lengths = rows()
    assert torch.equal(pooling(poured_over(h, lengths, value), lengths), pooling(h, lengths))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_an_empty_row_is_zero(pooling) -> None:
    h, lengths = rows()
    assert pooling(h, lengths)[2].tolist() == [0, 0, 0]
    assert pooling(h[:, :0], torch.zeros(4, dtype=torch.long)).tolist() == [[0.0] * 3] * 4


def test_mean_and_max_are_those_of_real_steps() -> None:
    h, lengths = rows()
    torch.testing.assert_close(mean_pooling(h, lengths)[1], h[1, :2].mean(0))
    torch.testing.assert_close(max_pooling(h, lengths)[1], h[1, :2].amax(0))


def test_attention_is_the_written_equation() -> None:
    h, lengths = rows()
    pooling = AttentionPooling(3, 4).double()
    z, alpha = pooling(h, lengths)
    energies = torch.tanh(h[1, :2] @ pooling.hidden.weight.t() + pooling.hidden.bias) @ pooling.energy.weight[0]
    weights = energies.exp() / energies.exp().sum()
    torch.testing.assert_close(alpha[1], torch.cat([weights, weights.new_zeros(3)]))
    torch.testing.assert_close(z[1], weights @ h[1, :2])
    torch.testing.assert_close(alpha.sum(1), torch.tensor([1.0, 1.0, 0.0, 1.0], dtype=torch.float64))
    assert torch.equal(alpha, pooling.weights(h, lengths))


@pytest.mark.parametrize("pooling", [mean_pooling, max_pooling, lambda h, n: AttentionPooling(3).double()(h, n)[0]])
def test_no_gradient_reaches_padding_or_becomes_nan(pooling) -> None:
    h, lengths = rows()
    h = poured_over(h, lengths, float("nan")).requires_grad_()
    pooling(h, lengths).sum().backward()
    past = torch.arange(5) >= lengths.unsqueeze(1)
    assert h.grad is not None
    assert (h.grad[past] == 0).all()
    assert h.grad.isfinite().all()
    assert (h.grad[0] != 0).any()


def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="attention_size: expected an integer >= 1, got 0"):
        AttentionPooling(3, 0)
