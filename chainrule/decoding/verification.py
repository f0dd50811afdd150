"""Two exact rules by which guesses of the next elements are accepted."""

from collections.abc import Sequence

import torch
from torch import Tensor

from chainrule.heads import Categorical


def verify_by_noise(conditionals: Categorical, noise: Tensor, guesses: Tensor) -> tuple[Tensor, Tensor]:
    r"""Accept a guess where it is the symbol that the noise of its position gives.

    .. math:: x_t = \arg\max_v\, (\log p(v \mid x_{<t}) + g_{tv})

    The sample is a function of the noise, whatever the guesses: they decide on the number of passes alone (Song et al.
    2021, Wiggers and Hoogeboom 2020).

    Args:
        conditionals: p, batch shape (n, T), each right where all guesses before it are.
        noise: (n, T, V), of `Categorical.sample_at`.
        guesses: (n, T).

    Returns:
        The symbols (n, T), and whether each guess is accepted.
    """
    symbols = conditionals.sample_at(noise)
    return symbols, symbols == guesses


def verify_by_rejection(
    conditionals: Categorical,
    noise: Tensor,
    guesses: Tensor,
    drafts: Sequence[Categorical],
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor]:
    r"""Accept a guess y that was drawn from q with probability min(1, p(y) / q(y)); else draw what q lacks.

    .. math:: x_t = y \text{ if } u < \frac{p(y)}{q(y)}, \qquad \text{else } x_t \sim
        \frac{\max(p - q, 0)}{\sum_v \max(p(v) - q(v), 0)}

    Then x follows p, and a guess is accepted as often as any rule can, :math:`\sum_v \min(p(v), q(v))` (Leviathan et
    al. 2023, https://arxiv.org/abs/2211.17192; Chen et al. 2023, https://arxiv.org/abs/2302.01318).

    Args:
        conditionals: p, batch shape (n, T), each right where all guesses before it are.
        noise: (n, T, V): that of the last position, for which there is no guess, draws from p.
        guesses: (n, T), drawn from q but the last, which is not read.
        drafts: q of each guess, T - 1 of batch shape (n,).
        generator: source of randomness.

    Returns:
        As `verify_by_noise`; the last guess is never accepted.
    """
    (scores,) = conditionals.parameters
    symbols, right = Categorical(scores[:, -1:]).sample_at(noise[:, -1:]), torch.zeros_like(guesses, dtype=torch.bool)
    if not drafts:
        return symbols, right
    p, y = Categorical(scores[:, :-1]), guesses[:, :-1].long()
    q = Categorical(torch.stack([table.logits for table in drafts], 1))
    ratio = p.log_prob(y) - q.log_prob(y)
    right[:, :-1] = torch.rand(y.shape, dtype=ratio.dtype, device=y.device, generator=generator).log() < ratio
    lacking = (p.probs - q.probs).clamp_min(0).log()
    nothing = (lacking == -torch.inf).all(-1, keepdim=True)  # p and q differ by rounding alone
    others = Categorical(torch.where(nothing, p.logits, lacking)).sample(generator=generator)
    return torch.cat([torch.where(right[:, :-1], y, others), symbols], 1), right
