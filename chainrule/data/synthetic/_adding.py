"""The adding problem."""

import torch
from torch import Tensor
from torch.nn import functional as F

from chainrule.data.synthetic._task import SyntheticBatch, SyntheticTask, check_count

TOLERANCE = 0.04


class AddingProblem(SyntheticTask):
    r"""Add the two marked numbers of a long list.

    An element is (v_t, m_t): a number v_t, uniform on [0, 1), and a marker m_t, which is 1 at two steps and 0
    elsewhere. One marked step a is uniform in the first half, the other b in the second half, the last step left out.
    After the last element the answer is due:

    .. math:: y = v_a + v_b

    **Chance.** The last element carries no marker, so without memory nothing is known of v_a and v_b, and the best
    answer is the mean, 1. Its squared error is the variance of a sum of two independent uniform numbers,

    .. math:: \operatorname{Var} y = 2 \left( \int_0^1 v^2\,dv - \tfrac{1}{4} \right)
              = 2 \left( \tfrac{1}{3} - \tfrac{1}{4} \right) = \tfrac{1}{6} .

    **Accuracy.** An answer within ε = 0.04 counts as right (Hochreiter and Schmidhuber 1997). The density of y is the
    triangle 1 − abs(y − 1), which has most mass around 1: without memory at most 2ε − ε² = 0.0784 of the answers are
    right.

    **Optimum.** The answer is a function of the inputs: squared error 0.

    **Distance.** From the first half's last step to the answer, T − ⌊T/2⌋: the *least* distance of v_a, as Hochreiter
    and Schmidhuber count it; the largest is T − 1.

    Source: Hochreiter and Schmidhuber 1997, experiment 4; in this form Le, Jaitly and Hinton 2015 and Arjovsky, Shah
    and Bengio 2016, who let the last step be marked too.

    Args:
        length: T, at least 3.

    >>> task = AddingProblem(length=100)
    >>> task.distance, round(task.chance, 4), task.optimum
    (50, 0.1667, 0.0)
    >>> batch = task.sample(4, torch.Generator().manual_seed(0))
    >>> batch.inputs.shape, batch.targets.shape, batch.mask.sum(1)
    (torch.Size([4, 100, 2]), torch.Size([4, 100]), tensor([1, 1, 1, 1]))
    """

    def __init__(self, length: int):
        check_count("length", length, 3, "two marked steps, and the last, which is never marked")
        self.length, self.distance = length, length - length // 2
        self.input_size, self.output_size = 2, 1
        self.chance, self.chance_accuracy = 1 / 6, 2 * TOLERANCE - TOLERANCE**2

    def sample(self, n: int, generator: torch.Generator) -> SyntheticBatch:
        """Draw n lists: inputs (n, T, 2), targets (n, T) with the sum at the last step, mask (n, T)."""
        check_count("n", n, 1)
        device, half = generator.device, self.length // 2
        values = torch.rand(n, self.length, generator=generator, device=device)
        first = torch.randint(0, half, (n, 1), generator=generator, device=device)
        second = torch.randint(half, self.length - 1, (n, 1), generator=generator, device=device)
        marked = torch.cat([first, second], 1)
        markers = torch.zeros_like(values).scatter_(1, marked, 1)
        targets = torch.zeros_like(values)
        targets[:, -1] = values.gather(1, marked).sum(1)
        mask = torch.zeros_like(values, dtype=torch.bool)
        mask[:, -1] = True
        return SyntheticBatch(torch.stack([values, markers], -1), targets, mask)

    def loss(self, outputs: Tensor, batch: SyntheticBatch) -> Tensor:
        """Return the mean squared error of the answers."""
        return F.mse_loss(outputs[batch.mask].squeeze(-1), batch.targets[batch.mask])

    def accuracy(self, outputs: Tensor, batch: SyntheticBatch) -> float:
        """Return the share of answers within 0.04 of the sum."""
        error = outputs[batch.mask].squeeze(-1) - batch.targets[batch.mask]
        return (error.abs() < TOLERANCE).float().mean().item()
