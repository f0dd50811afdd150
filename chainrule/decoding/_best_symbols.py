"""The k greatest of each row, in an order that does not depend on how topk treats equals."""

from collections.abc import Callable

import torch
from torch import Tensor, distributions

from chainrule.heads import Categorical
from chainrule.heads._adapter import head_of

WIDE = 1024  # columns from which it pays to look for the greatest among the maxima of groups first
_MORE = 3  # groups looked into in addition to the k best: equals are frequent where scores come from half precision
_LOW = (1 << 31) - 1


def best_first(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k greatest values of each row, greatest first, and their columns; of equals, the first columns.

    >>> best_first(torch.tensor([[1.0, 3.0, 0.0, 3.0, 3.0]]), 2)[1]
    tensor([[1, 3]])
    """
    k, columns = min(k, scores.shape[1]), scores.shape[1]
    if scores.device.type == "cpu" and scores.dtype == torch.float32 and columns >= max(WIDE, 16 * (k + _MORE) ** 2):
        values, places, doubtful = _best_of_groups(scores, k)
    else:
        # One more than asked for: where no two neighbours are equal, there was no choice to make.
        values, places = scores.topk(min(k + 1, columns), 1)
        doubtful = ((values[:, 1:] == values[:, :-1]) & (values[:, 1:] > -torch.inf)).any(1)
        values, places = values[:, :k], places[:, :k]
    rows = doubtful.nonzero().squeeze(1)
    if len(rows):
        values[rows], places[rows] = _in_order(scores[rows], k)
    return values, places


def _best_of_groups(scores: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the result of `best_first` from few columns of each row, and the rows for which it may be wrong.

    The k greatest are in the k groups of columns with the greatest maxima, or in others that reach up to the k-th. Some
    more groups are looked into, for that; where still another one reaches so high, it is not known. The maxima are one
    vectorised pass, where topk looks at one number after the other.
    """
    columns = scores.shape[1]
    groups = -(-int(columns**0.5) // 32) * 32  # group g has the columns g, g + groups, g + 2 groups, ...
    size = columns // groups
    looked = k + _MORE
    greatest = scores[:, : groups * size].unflatten(1, (size, groups)).amax(1).topk(looked + 1, 1)
    members = greatest.indices[:, :looked].unsqueeze(2) + groups * torch.arange(size, device=scores.device)
    rest = torch.arange(groups * size, columns, device=scores.device).expand(len(scores), -1)
    candidates = torch.cat([members.flatten(1), rest], 1)
    # One integer for value and column: no two are equal, and the greater value is first, then the lower column.
    bits = (scores.gather(1, candidates) + 0.0).view(torch.int32)  # + 0.0: no negative zero
    ordered = torch.where(bits < 0, bits ^ _LOW, bits).long() * (1 << 31) + (_LOW - candidates)
    places = _LOW - (ordered.topk(k, 1).values & _LOW)
    values = scores.gather(1, places)
    in_rest = scores[:, groups * size :].isnan().any(1)
    doubtful = (greatest.values[:, looked] >= values[:, k - 1]) | greatest.values[:, 0].isnan() | in_rest
    return values, places, doubtful


def _in_order(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return `best_first` for any scores, at the cost of reading all of them twice."""
    values, places = scores.topk(k, 1)
    spoilt = values[:, 0].isnan()  # NaN comes first: no order to be found
    row, column = ((scores >= values[:, -1:]) & ~spoilt.unsqueeze(1)).nonzero(as_tuple=True)
    value = scores[row, column]
    order = value.sort(stable=True, descending=True).indices
    order = order[row[order].sort(stable=True).indices]
    counts = row.bincount(minlength=len(scores))
    first = (counts.cumsum(0) - counts)[~spoilt]
    chosen = order[first.unsqueeze(1) + torch.arange(k, device=row.device)]
    values[~spoilt], places[~spoilt] = value[chosen], column[chosen]
    return values, places


CACHE = 2**18  # numbers looked at together on a processor: 1 MiB in float32


def best_symbols(
    conditional: distributions.Distribution, k: int, permitted: Callable[[Tensor, slice], Tensor]
) -> tuple[Tensor, Tensor]:
    """log p of the k most probable symbols of each row, and which they are, (N, min(k, V)), best first.

    A processor normalises and looks through a few rows at a time: a whole table (N, V) would go through memory for each
    of the half dozen passes over it. `permitted` puts -inf where a symbol is not permitted, given log p of all symbols
    of some rows, and which rows.
    """
    table = symbol_table(conditional)
    [scores] = table.parameters  # unnormalised: `logits` would normalise all rows
    size = len(scores) if scores.device.type != "cpu" else max(CACHE // scores.shape[-1], 1)
    parts = []
    for first in range(0, max(len(scores), 1), max(size, 1)):
        rows = slice(first, first + size)
        parts.append(best_first(permitted(Categorical(scores[rows]).logits, rows), k))
    values, symbols = zip(*parts, strict=True)
    return torch.cat(values), torch.cat(symbols)


def symbol_table(conditional: distributions.Distribution) -> Categorical:
    """Return a conditional of N rows as a table over its symbols, batch shape (N,).

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
