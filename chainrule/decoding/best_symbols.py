"""The most probable symbols after each prefix, without a table of all of them."""

from collections.abc import Callable

import torch
from torch import Tensor, distributions

from chainrule.decoding.best_first import best_first
from chainrule.heads import Categorical, head_of

CACHE = 2**18  # numbers looked at together on a processor: 1 MiB in float32


def best_symbols(
    conditional: distributions.Distribution, k: int, permitted: Callable[[Tensor, slice], Tensor]
) -> tuple[Tensor, Tensor]:
    """log p of the k most probable symbols of each row, and which they are, (N, min(k, V)), best first.

    A processor normalises and looks through a few rows at a time: a whole table (N, V) would go through memory for each
    of the half dozen passes over it.

    Args:
        conditional: of batch shape (N,), over V symbols.
        k: how many; of equally probable symbols, the lowest.
        permitted: given log p of all symbols of some rows, and which rows, puts -inf where a symbol is not permitted.

    Raises:
        ValueError: the conditional is not over symbols.
    """
    table = symbol_table(conditional)
    [scores] = table.parameters  # unnormalised: `logits` would normalise all rows
    size = len(scores) if scores.device.type != "cpu" else max(CACHE // scores.shape[-1], 1)
    found = []
    for first in range(0, max(len(scores), 1), max(size, 1)):
        rows = slice(first, first + size)
        found.append(best_first(permitted(Categorical(scores[rows]).logits, rows), k))
    values, symbols = zip(*found, strict=True)
    return torch.cat(values), torch.cat(symbols)


def symbol_table(conditional: distributions.Distribution) -> Categorical:
    """A conditional of N rows as a table over its symbols, batch shape (N,).

    Raises:
        ValueError: it is not over symbols, or one of several elements.

    >>> symbol_table(distributions.Bernoulli(probs=torch.tensor([0.75]))).probs
    tensor([[0.2500, 0.7500]])
    """
    table = head_of(conditional).categorical() if len(conditional.batch_shape) == 1 else None
    if table is None:
        raise ValueError(
            "model: expected conditionals over symbols, such as Categorical or Bernoulli, of batch shape (N,), got "
            f"{type(conditional).__name__} of {tuple(conditional.batch_shape)}: sample from this model instead"
        )
    return table
