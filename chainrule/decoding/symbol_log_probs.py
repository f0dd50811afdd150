"""A conditional over a finite set of symbols as a table of log-probabilities."""

import torch
from torch import Tensor, distributions
from torch.nn.functional import logsigmoid


def symbol_log_probs(conditional: distributions.Distribution) -> Tensor:
    """log p of each symbol, (N, V), nats.

    Args:
        conditional: of batch shape (N,): categorical, or Bernoulli, whose symbols are 0 and 1.

    Raises:
        ValueError: it is another distribution, or one of several elements.

    >>> symbol_log_probs(distributions.Bernoulli(probs=torch.tensor([0.75]))).exp()
    tensor([[0.2500, 0.7500]])
    """
    if len(conditional.batch_shape) == 1:
        if isinstance(conditional, distributions.Categorical):
            return conditional.logits
        if isinstance(conditional, distributions.Bernoulli):
            return logsigmoid(torch.stack([-conditional.logits, conditional.logits], 1))
    raise ValueError(
        "model: expected conditionals over symbols, Categorical or Bernoulli of batch shape (N,), got "
        f"{type(conditional).__name__} of {tuple(conditional.batch_shape)}: sample from this model instead"
    )
