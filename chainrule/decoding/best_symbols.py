"""The most probable symbols after each prefix, without a table of all of them."""

from collections.abc import Callable

import torch
from torch import Tensor, distributions

from chainrule.decoding.best_first import best_first
from chainrule.decoding.symbol_log_probs import symbol_log_probs
from chainrule.heads import Categorical

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
    if not isinstance(conditional, Categorical) or conditional.param_shape[0] == 0:
        return best_first(permitted(symbol_log_probs(conditional), slice(None)), k)
    scores = conditional._param  # as they came: `logits` would normalise all of them
    size = len(scores) if scores.device.type != "cpu" else max(CACHE // scores.shape[-1], 1)
    found = []
    for first in range(0, len(scores), size):
        rows = slice(first, first + size)
        found.append(best_first(permitted(symbol_log_probs(Categorical(scores[rows])), rows), k))
    values, symbols = zip(*found, strict=True)
    return torch.cat(values), torch.cat(symbols)
