"""Beam search over any model's `step` and `State`, all rows of a batch at once; greedy decoding is a beam of one."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, distributions

from chainrule._base import AutoregressiveModel, Context
from chainrule._checks import check_prefix
from chainrule._modes import device_of, in_evaluation, wide, widest
from chainrule._ranges import check_sizes
from chainrule.decoding._decoded import Decoded, Ended, Hypothesis
from chainrule.heads import Categorical
from chainrule.heads._adapter import head_of
from chainrule.state import State, count_rows, expand, map_state, select, share_memories

_LARGEST_LOG = 709.0  # of a float


@dataclass(frozen=True)
class Extensions:
    """The best extensions of a beam by one symbol, row by row, best first: of each its parent and new symbol."""

    rows: Tensor  # (E,) ascending
    parents: Tensor  # (E,) number of the prefix in the beam
    symbols: Tensor  # (E,)
    log_probs: Tensor  # (E,)


@dataclass(frozen=True)
class Beam:
    """N live prefixes of R rows, row by row, best first; rows may have different numbers of them."""

    rows: Tensor  # (N,) the row of each, ascending in [0, R)
    sequences: Tensor  # (N, T) symbols so far
    log_probs: Tensor  # (N,) nats. In float64, so that sums over many steps keep the order of their terms

    def extensions(self, row_count: int, values: Tensor, symbols: Tensor, beam_size: int) -> Extensions:
        """Return the `beam_size` most probable extensions of each row's prefixes, or all where fewer are possible.

        Ties go to the better prefix, then to the lower symbol. `values` and `symbols` (N, K) are log p of the best
        symbols after each prefix, best first, -inf for one that is not possible: the K best extensions of a row are
        among the K best of each of its prefixes.
        """
        if values[:, 0].isnan().any():  # NaN comes first
            raise ValueError(
                f"model: its conditional of element {self.sequences.shape[1] + 1} holds NaN: "
                "look for weights or a context that are not finite"
            )
        counts = self.rows.bincount(minlength=row_count)
        first = counts.cumsum(0) - counts
        rank = torch.arange(len(self.rows), device=first.device) - first[self.rows]
        width, branches = int(counts.max()), values.shape[1]
        table = self.log_probs.new_full((row_count, width, branches), -torch.inf)
        table[self.rows, rank] = self.log_probs.unsqueeze(1) + values
        best = table.flatten(1).sort(stable=True, dim=1, descending=True)
        rows, column = (best.values[:, :beam_size] > -torch.inf).nonzero(as_tuple=True)
        chosen = best.indices[rows, column]
        parents = first[rows] + chosen // branches
        return Extensions(rows, parents, symbols[parents, chosen % branches], best.values[rows, column])

    def sequences_of(self, extensions: Extensions) -> Tensor:
        """(E, T+1)."""
        return torch.cat([self.sequences[extensions.parents], extensions.symbols.unsqueeze(1)], 1)


def repeats_ngram(sequences: Tensor, n: int, vocab_size: int) -> Tensor:
    """True at [i, v] where symbol v would complete an n-gram that sequence i already holds (Paulus et al. 2018).

    >>> repeats_ngram(torch.tensor([[0, 1, 2, 0]]), 2, 3)
    tensor([[False,  True, False]])
    """
    count, time = sequences.shape
    repeats = torch.zeros(count, vocab_size, dtype=torch.bool, device=sequences.device)
    if time < n:
        return repeats
    ngrams = sequences.unfold(1, n, 1)  # (N, T-n+1, n)
    beginning = sequences[:, time - n + 1 :].unsqueeze(1)
    same = (ngrams[..., :-1] == beginning).all(2)
    row, column = same.nonzero(as_tuple=True)
    repeats[row, ngrams[row, column, -1]] = True
    return repeats


@in_evaluation
@torch.no_grad()
def beam_search(
    model: AutoregressiveModel,
    context: Context = None,
    *,
    beam_size: int,
    max_length: int,
    eos: int | None,
    length_penalty: float = 0.0,
    n_best: int = 1,
    min_length: int = 0,
    no_repeat_ngram: int | None = None,
    prefix: Tensor | None = None,
) -> list[Decoded]:
    r"""Search for the n highest-scoring sequences of each row among the sequences that the model can end.

    .. math:: \mathrm{score}(x) = \frac{\log p(x, \mathrm{eos} \mid c)}{|x, \mathrm{eos}|^\alpha}

    At every step the `beam_size` most probable extensions of a row's live prefixes are kept. Those by `<eos>` have
    ended and are set apart; the others stay alive. With one prefix this is greedy decoding for any α; with one prefix
    for each possible sequence the search is exact. Results of a row do not depend on the other rows; rows and
    prefixes that are done cost no further step.

    **When a row is done.** A live prefix y, of t elements, can still become any x that begins with y, has more elements
    and at most L = `max_length`. A further factor p ≤ 1 never raises log p, and log p ≤ 0 is divided by at most L^α, so

    .. math:: \mathrm{score}(x) = \frac{\log p(x)}{|x|^\alpha} \le \frac{\log p(y)}{|x|^\alpha}
        \le \frac{\log p(y)}{L^\alpha}.

    The row is done once its n-th best ended score has reached this bound for the best live prefix: no live prefix can
    then change the n best, and the result is `proven`. The score that y has now, log p(y) / t^α, would be no bound
    where α > 0. A row that comes to `max_length` first returns the sequences that ended, and the `gap`: how far the
    best bound is above them. Where fewer than n ended, the most probable live prefixes, cut at `max_length`, follow
    them, so that no result is empty.

    Args:
        model: any model over symbols; it searches in evaluation mode.
        context: batch first, a row for each search; None for one search of an unconditional model.
        beam_size: live prefixes of a row.
        max_length: L, most elements of a sequence, `<eos>` counted, as `model.sample` counts them.
        eos: the symbol that ends a sequence; None if sequences do not end and all have `max_length` elements.
        length_penalty: α >= 0; 0 ranks by log p, which favours short sequences, 1 by log p per element.
        n_best: sequences to return of each row, at most `beam_size`; fewer come where fewer are possible.
        min_length: fewest elements of a sequence, `<eos>` not counted.
        no_repeat_ngram: n; no n-gram may occur twice in a sequence. None allows repetition.
        prefix: the first elements, in visiting order: (P,) for all, or (B, P), or (1, P) for all. It belongs
            to the sequences in every respect: in `log_probs`, all lengths, and repetitions.

    Returns:
        For each row, its n best sequences, in visiting order. Log-likelihoods are the model's own: what `min_length`
        and `no_repeat_ngram` forbid is passed over, and the rest not renormalised.

    Raises:
        ValueError: an argument is out of range, a prefix ends in `eos`, or a conditional is not over symbols or holds
            NaN.

    Source: Sutskever, Vinyals and Le 2014 (beam search over a decoder's step); Huang, Zhao and Ma 2017 (stopping by a
    bound).

    >>> from chainrule.models import RecurrentLM
    >>> model = RecurrentLM(vocab_size=3, hidden_size=1)
    >>> _ = model.weight_ho.data.zero_(), model.bias_ho.data.copy_(torch.tensor([0.5, 0.2, 0.3]).log())
    >>> [result] = beam_search(model, beam_size=2, max_length=2, eos=2, n_best=2)
    >>> [sequence.tolist() for sequence in result.sequences], result.log_probs.exp(), result.proven
    ([[], [0]], tensor([0.3000, 0.1500], dtype=torch.float64), False)
    >>> round(result.gap, 4)  # log 0.25 of the live prefix [0, 0] against log 0.15
    0.5108
    """
    _check_numbers(beam_size, max_length, eos, length_penalty, n_best, min_length, no_repeat_ngram)
    _check_prefix(prefix, eos)
    _check_limit(max_length, model.sequence_length, prefix)
    length_penalty = float(length_penalty)  # a power with a whole exponent may be too large for a tensor
    device = device_of(model)
    row_count, context, prefix = _rows(context, prefix, device)
    if row_count == 0:
        return []
    beam, state = _begin(model, row_count, context, prefix, device)
    prefix_length = beam.sequences.shape[1]
    step, x_prev, state = model.prepare().step, beam.sequences[:, -1] if prefix_length else None, share_memories(state)
    names = list(range(row_count))  # the caller's number of each row that is still searched
    ended = [Ended(n_best) for _ in names]
    results: dict[int, Decoded] = {}
    for length in range(prefix_length + 1, max_length + 1):
        conditional, state = step(x_prev, state)
        permitted = partial(_permitted, beam.sequences, eos, min_length, no_repeat_ngram)
        extensions = beam.extensions(len(names), *best_symbols(conditional, beam_size, permitted), beam_size)
        last = length == max_length
        symbols = extensions.symbols
        ends = symbols == eos if eos is not None else torch.full_like(symbols, last, dtype=torch.bool)
        at_end = ends.nonzero().squeeze(1)
        elements = length if eos is None else length - 1
        sequences = beam.sequences_of(extensions)
        for row, hypothesis in _hypotheses(extensions, sequences[:, :elements], at_end, length**length_penalty):
            ended[names[row]].add(hypothesis)
        worst = torch.tensor([ended[name].worst for name in names], dtype=widest(device), device=device)
        # The best score that a live prefix can still reach; one that cannot reach enough takes no further step. Nor
        # could a prefix that it would have pushed out of the beam: that is less probable still.
        bounds = (extensions.log_probs / max_length**length_penalty).masked_fill(ends, -torch.inf)
        promising = bounds > worst[extensions.rows]
        best = torch.full_like(worst, -torch.inf).scatter_reduce(0, extensions.rows, bounds, "amax")
        searched = best > worst
        going = (searched & (not last)).tolist()
        for row, name in enumerate(names):
            if going[row]:
                continue
            live = (promising & (extensions.rows == row)).nonzero().squeeze(1)
            cut = [hypothesis for _, hypothesis in _hypotheses(extensions, sequences, live, length**length_penalty)]
            if not cut and not ended[name].hypotheses:  # no prefix of the row has a possible extension
                divisor = max(length - 1, 1) ** length_penalty
                stuck = (beam.rows == row).nonzero().squeeze(1)
                cut = [hypothesis for _, hypothesis in _hypotheses(beam, beam.sequences, stuck, divisor)]
            results[name] = ended[name].decoded(cut)
        if not any(going):
            break
        indices = promising.nonzero().squeeze(1)
        rows = extensions.rows[indices]
        state = select(state, extensions.parents[indices])
        if not all(going):
            state = share_memories(state)
            rows = (searched.cumsum(0) - 1)[rows]
            names = [name for name, goes in zip(names, going, strict=True) if goes]
        beam = Beam(rows, sequences[indices], extensions.log_probs[indices])
        x_prev = extensions.symbols[indices]
    return [results[name] for name in range(row_count)]


def _begin(
    model: AutoregressiveModel, row_count: int, context: Context, prefix: Tensor | None, device: torch.device
) -> tuple[Beam, State]:
    """Return one live prefix for each row, and the state that is ready to read its last element."""
    state = model.initial_state(row_count, context)
    rows = torch.arange(row_count, device=device)
    if prefix is None or prefix.shape[1] == 0:
        return Beam(rows, rows.new_empty(row_count, 0), rows.new_zeros(row_count, dtype=widest(rows.device))), state
    conditionals, state = model.unroll(prefix, state)
    return Beam(rows, prefix, wide(check_prefix(conditionals, prefix)).sum(1)), state


def _hypotheses(
    prefixes: Beam | Extensions, sequences: Tensor, chosen: Tensor, divisor: float
) -> Iterator[tuple[int, Hypothesis]]:
    """Yield the rows and the hypotheses of the chosen prefixes."""
    log_probs, rows = prefixes.log_probs[chosen].tolist(), prefixes.rows[chosen].tolist()
    for row, log_prob, sequence in zip(rows, log_probs, sequences[chosen].unbind(), strict=True):
        yield row, Hypothesis(log_prob / divisor, log_prob, sequence)


def _permitted(
    sequences: Tensor, eos: int | None, min_length: int, no_repeat_ngram: int | None, log_probs: Tensor, rows: slice
) -> Tensor:
    """log p of each symbol after the prefixes of some rows, (N', V), -inf where it is not permitted."""
    if eos is not None and eos >= log_probs.shape[1]:
        raise ValueError(f"eos: expected a symbol of the model, in [0, {log_probs.shape[1]}), got {eos}")
    if no_repeat_ngram is not None:
        repeated = repeats_ngram(sequences[rows], no_repeat_ngram, log_probs.shape[1])
        if eos is not None:
            repeated[:, eos] = False
        log_probs = log_probs.masked_fill(repeated, -torch.inf)
    if eos is not None and sequences.shape[1] < min_length:
        log_probs = log_probs.index_fill(1, torch.tensor(eos, device=log_probs.device), -torch.inf)
    return log_probs


def _rows(context: Context, prefix: Tensor | None, device: torch.device) -> tuple[int, Context, Tensor | None]:
    """Return the number of rows, and the context and the prefix expanded to it."""
    row_counts = {}
    if context is not None:
        context = map_state(lambda leaf: leaf.to(device), context)
        row_counts["context"] = count_rows(context)
    if prefix is not None:
        prefix = prefix.to(device, torch.long)
        prefix = prefix.unsqueeze(0) if prefix.dim() == 1 else prefix
        row_counts["prefix"] = len(prefix)
    several = {count for count in row_counts.values() if count != 1}
    if len(several) > 1:
        raise ValueError(
            f"prefix: expected shape (P,), or the rows of the context, {row_counts['context']}, or one, "
            f"got {row_counts['prefix']} rows"
        )
    row_count = several.pop() if several else 1
    context = expand(context, row_count)
    return row_count, context, None if prefix is None else prefix.expand(row_count, -1)


def _check_numbers(
    beam_size: int,
    max_length: int,
    eos: int | None,
    length_penalty: float,
    n_best: int,
    min_length: int,
    no_repeat_ngram: int | None,
) -> None:
    check_sizes(beam_size=beam_size, max_length=max_length, no_repeat_ngram=no_repeat_ngram)
    if eos is not None and eos < 0:
        raise ValueError(f"eos: expected a symbol >= 0, or None where sequences have no end symbol, got {eos}")
    if not 0 <= length_penalty < math.inf:
        raise ValueError(f"length_penalty: expected a number >= 0 (0 for no penalty), got {length_penalty}")
    if length_penalty * math.log(max_length) > _LARGEST_LOG:
        raise ValueError(f"length_penalty: expected max_length ** length_penalty to be finite, got {length_penalty}")
    if not 1 <= n_best <= beam_size:
        raise ValueError(f"n_best: expected 1 to beam_size, {beam_size}, got {n_best}: widen the beam for more")
    if not 0 <= min_length < max_length:
        raise ValueError(
            f"min_length: expected 0 to {max_length - 1}, so that <eos> still has a place within max_length, "
            f"got {min_length}"
        )


def _check_prefix(prefix: Tensor | None, eos: int | None) -> None:
    if prefix is None:
        return
    if prefix.dim() not in (1, 2) or (prefix.is_floating_point() and not (prefix == prefix.trunc()).all()):
        raise ValueError(f"prefix: expected integers (P,) or (B, P), got {tuple(prefix.shape)} of {prefix.dtype}")
    if eos is None or not prefix.shape[-1]:
        return
    ended = (torch.atleast_2d(prefix)[:, -1] == eos).nonzero()
    if len(ended):
        raise ValueError(f"prefix: row {int(ended[0])} ends in eos={eos}: a sequence that has ended is not extended")


def _check_limit(max_length: int, sequence_length: int | None, prefix: Tensor | None) -> None:
    length = 0 if prefix is None else prefix.shape[-1]
    if max_length <= length:
        raise ValueError(
            f"max_length: expected more than the {length} elements of the prefix, which are counted, got {max_length}"
        )
    if sequence_length is not None and max_length > sequence_length:
        raise ValueError(f"max_length: expected at most {sequence_length}, all that this model has, got {max_length}")


def greedy(
    model: AutoregressiveModel,
    context: Context = None,
    *,
    max_length: int,
    eos: int | None,
    min_length: int = 0,
    no_repeat_ngram: int | None = None,
    prefix: Tensor | None = None,
) -> list[Decoded]:
    r"""Take the most probable symbol at every step, of equals the lowest.

    .. math:: x_t = \arg\max_v p(v \mid x_{<t}, c)

    It is the beam search of one prefix, and finds the sequences of `model.sample(temperature=0)`; rows that ended
    leave the batch.

    Args:
        model: any model over symbols; it searches in evaluation mode.
        context: as `beam_search` has it, and all that follows.
        max_length: most elements of a sequence, `<eos>` counted.
        eos: the symbol that ends a sequence; None where none does.
        min_length: fewest elements of a sequence, `<eos>` not counted.
        no_repeat_ngram: n; no n-gram may occur twice in a sequence. None allows repetition.
        prefix: the beginning of the sequences.

    Returns:
        For each row, one sequence. `proven` repeats `ended`: more probable sequences may exist, as none but the most
        probable symbol of each step was followed.

    >>> import torch
    >>> from chainrule.models import RecurrentLM
    >>> model = RecurrentLM(vocab_size=3, hidden_size=1)
    >>> _ = model.weight_ho.data.zero_(), model.bias_ho.data.copy_(torch.tensor([0.5, 0.2, 0.3]).log())
    >>> [result] = greedy(model, max_length=4, eos=2)
    >>> result.sequences[0].tolist(), result.proven
    ([0, 0, 0, 0], False)
    """
    return beam_search(
        model,
        context,
        beam_size=1,
        max_length=max_length,
        eos=eos,
        min_length=min_length,
        no_repeat_ngram=no_repeat_ngram,
        prefix=prefix,
    )


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
