"""Beam search over any model's `step` and `State`, all rows of a batch at once; greedy decoding is a beam of one."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel, Context
from chainrule._checks import check_prefix
from chainrule._ranges import check_sizes
from chainrule.decoding._decoded import Decoded, Ended, Hypothesis, best_symbols
from chainrule.modes import device_of, in_evaluation, wide, widest
from chainrule.option_error import OptionError
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
    step = model.prepare().step_for(max_length - prefix_length)
    x_prev, state = beam.sequences[:, -1] if prefix_length else None, share_memories(state)
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
    sequences: Tensor, eos: int | None, min_length: int, no_repeat_ngram: int | None, scores: Tensor, rows: slice
) -> Tensor:
    """Scores of each symbol after the prefixes of some rows, (N', V), -inf where it is not permitted."""
    if eos is not None and eos >= scores.shape[1]:
        raise ValueError(f"eos: expected a symbol of the model, in [0, {scores.shape[1]}), got {eos}")
    if no_repeat_ngram is not None:
        repeated = repeats_ngram(sequences[rows], no_repeat_ngram, scores.shape[1])
        if eos is not None:
            repeated[:, eos] = False
        scores = scores.masked_fill(repeated, -torch.inf)
    if eos is not None and sequences.shape[1] < min_length:
        scores = scores.index_fill(1, torch.tensor(eos, device=scores.device), -torch.inf)
    return scores


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
        raise OptionError("length_penalty", f"expected a number >= 0 (0 for no penalty), got {length_penalty}")
    if length_penalty * math.log(max_length) > _LARGEST_LOG:
        raise OptionError("length_penalty", f"expected max_length ** length_penalty to be finite, got {length_penalty}")
    if not 1 <= n_best <= beam_size:
        raise OptionError("n_best", f"expected 1 to beam_size, {beam_size}, got {n_best}", "widen the beam for more")
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
