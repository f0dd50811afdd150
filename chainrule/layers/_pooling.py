"""From one vector for each time step to one vector for each row, whatever the rows' lengths."""

from typing import final

import torch
from torch import Tensor, nn

from chainrule._ranges import check_sizes
from chainrule.layers._packing import real_steps, zero_past_ends

POOLINGS = ("last", "mean", "max", "attention")


def mean_pooling(h: Tensor, lengths: Tensor | None = None) -> Tensor:
    r"""Average each row's real steps, :math:`z = \frac{1}{T_b} \sum_{t \le T_b} h_t`; zero for an empty row.

    Args:
        h: (B, T, M); padding is never read.
        lengths: (B,) real steps of each row; None where all are full.

    Returns:
        (B, M).

    >>> mean_pooling(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([2]))
    tensor([[2.]])
    """
    total = zero_past_ends(h, lengths).sum(1)
    return total / (max(h.shape[1], 1) if lengths is None else lengths.to(h.device).clamp(min=1).unsqueeze(1))


def max_pooling(h: Tensor, lengths: Tensor | None = None) -> Tensor:
    r"""Take the largest value of each unit over a row's real steps, :math:`z_m = \max_{t \le T_b} h_{tm}`; zero for an
    empty row (Collobert and Weston 2008: max over time).

    Args:
        h: (B, T, M); padding is never read.
        lengths: (B,) real steps of each row; None where all are full.

    Returns:
        (B, M).

    >>> max_pooling(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([2]))
    tensor([[3.]])
    """
    real = real_steps(h, lengths)
    if h.shape[1] == 0:
        return h.new_zeros(h.shape[0], h.shape[2])
    if real is None:
        return h.amax(1)
    largest = h.masked_fill(~real.unsqueeze(2), -torch.inf).amax(1)
    return largest.masked_fill(~real.any(1, keepdim=True), 0)


@final
class AttentionPooling(nn.Module):
    r"""A mean weighted by the scores of a small network (Yang et al. 2016, without their hierarchy).

    .. math::
        e_t = v^\top \tanh(W h_t + b), \qquad \alpha = \mathrm{softmax}(e_{1..T_b}), \qquad z = \sum_t \alpha_t h_t
    """

    def __init__(self, input_size: int, attention_size: int = 64):
        super().__init__()
        check_sizes(input_size=input_size, attention_size=attention_size)
        self.hidden = nn.Linear(input_size, attention_size)
        self.energy = nn.Linear(attention_size, 1, bias=False)  # a bias would fall out of the softmax

    def forward(self, h: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Pool h (B, T, M) over the real steps of each row: z (B, M), and the weights α (B, T).

        They sum to 1 over a row's real steps and are 0 past its end; all 0, as z is, for an empty row.
        """
        h = zero_past_ends(h, lengths)
        alpha = self.weights(h, lengths)
        return (alpha.unsqueeze(1).to(h) @ h).squeeze(1), alpha

    def weights(self, h: Tensor, lengths: Tensor | None = None) -> Tensor:
        """α alone, (B, T)."""
        real = real_steps(h, lengths)
        if real is None:
            return self._energies(h).softmax(1)
        energies = self._energies(h.masked_fill(~real.unsqueeze(2), 0))
        # The lowest number instead of -inf: the softmax of an empty row is then no NaN.
        lowest = torch.finfo(energies.dtype).min
        return energies.masked_fill(~real, lowest).softmax(1).masked_fill(~real, 0)

    def _energies(self, h: Tensor) -> Tensor:
        energies = self.energy(self.hidden(h).tanh()).squeeze(2)
        return energies.float() if energies.dtype in (torch.bfloat16, torch.float16) else energies
