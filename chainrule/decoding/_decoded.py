"""Parts of a search: the best symbols of a step, the hypotheses of a row, its result, and its likelihood read again."""

import math
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, distributions

from chainrule._base import AutoregressiveModel, Context
from chainrule.heads import Categorical
from chainrule.heads._adapter import head_of
from chainrule.heads._head import at_least_float32
from chainrule.modes import wide, widest


@dataclass(frozen=True)
class Decoded:
    """The n best sequences found for one row, best first.

    Attributes:
        sequences: n tensors of shape (T_i,), symbols without `<eos>`; at least one.
        log_probs: (n,) log-likelihood of each under the model, nats, float64, including `<eos>`;
            a sequence that was cut counts its elements only.
        scores: (n,) scores used for ranking, log_probs / length^α.
        ended: (n,) whether each came to an end; the others were cut at `max_length`, and come last.
        gap: upper bound on how far a prefix that was alive at `max_length` could exceed the lowest of the n scores by
            ending there; infinite if one of the n sequences did not end.
    """

    sequences: list[Tensor]
    log_probs: Tensor
    scores: Tensor
    ended: Tensor
    gap: float

    @property
    def proven(self) -> bool:
        """True if no prefix that the beam kept could have changed the n best: gap = 0.

        It covers the decision to stop, not the prefixes that the beam dropped on the way. The results are the n best
        of all sequences only if the beam was wide enough to drop none. A beam of one, as in `greedy`, drops all but
        one prefix at every step: `proven` then means only that the sequence ended.
        """
        return self.gap == 0

    @torch.no_grad()
    def rescored(
        self, model: AutoregressiveModel, context: Context = None, *, eos: int | None, length_penalty: float = 0.0
    ) -> "Decoded":
        """Return the sequences with the log-likelihood of each read whole and alone.

        A search adds up the likelihood step by step with other rows and prefixes, whose number changes the last digits.
        Scored alone, a sequence has the same log-likelihood after any search.

        Args:
            model: that was searched, in the same mode.
            context: of the row, (1, ...).
            eos, length_penalty: as in the search.

        Returns:
            The same sequences in the order of their new scores, those that ended first.

        >>> from chainrule.decoding import beam_search
        >>> from chainrule.models import RecurrentLM
        >>> model = RecurrentLM(vocab_size=3, hidden_size=1).eval()
        >>> [found] = beam_search(model, beam_size=2, max_length=4, eos=2, n_best=2)
        >>> torch.allclose(found.rescored(model, eos=2).log_probs, found.log_probs)
        True
        """
        log_probs, scores = torch.zeros_like(self.log_probs), torch.zeros_like(self.scores)
        for index, (sequence, ended) in enumerate(zip(self.sequences, self.ended.tolist(), strict=True)):
            x = torch.cat([sequence, sequence.new_tensor([eos] if ended and eos is not None else [])]).unsqueeze(0)
            if x.shape[1]:
                log_probs[index] = wide(model(x, context).log_prob(x)).sum()
                scores[index] = log_probs[index] / x.shape[1] ** length_penalty
        order = sorted(range(len(scores)), key=lambda index: (not self.ended[index], -scores[index].item()))
        return replace(
            self,
            sequences=[self.sequences[index] for index in order],
            log_probs=log_probs[order],
            scores=scores[order],
            ended=self.ended[order],
        )


@dataclass(frozen=True)
class Hypothesis:
    """A sequence with its log-likelihood and its score."""

    score: float
    log_prob: float
    sequence: Tensor


@dataclass
class Ended:
    """The n best of one row's hypotheses that came to an end, kept apart from its live prefixes."""

    n: int
    hypotheses: list[Hypothesis] = field(default_factory=list)

    def add(self, hypothesis: Hypothesis) -> None:
        """Keep it if it is among the n best; earlier ones win ties."""
        insort(self.hypotheses, hypothesis, key=lambda other: -other.score)
        del self.hypotheses[self.n :]

    @property
    def worst(self) -> float:
        """The score that a hypothesis must exceed to be among the n best; -inf while there are fewer."""
        return self.hypotheses[-1].score if len(self.hypotheses) == self.n else -math.inf

    def decoded(self, live: list[Hypothesis]) -> Decoded:
        """Return the row's result, given the prefixes that could still have beaten the worst, best first."""
        chosen = (self.hypotheses + live)[: self.n]
        gap = 0.0
        if live:
            gap = math.inf if self.worst == -math.inf else live[0].score - self.worst
        figures = torch.tensor(
            [(hypothesis.log_prob, hypothesis.score) for hypothesis in chosen],
            dtype=widest(chosen[0].sequence.device),
            device=chosen[0].sequence.device,
        )
        # Copies: each sequence is a row of a table of all that the search found at one step.
        sequences = [hypothesis.sequence.clone() for hypothesis in chosen]
        ended = torch.arange(len(chosen), device=figures.device) < len(self.hypotheses)
        return Decoded(sequences, figures[:, 0], figures[:, 1], ended, gap)


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
    of the half dozen passes over it. `permitted` puts -inf where a symbol is not permitted, given the scores of all
    symbols of some rows, and which rows. Ranks are those of the scores, as in `Categorical.filtered`: of two that
    differ in the last bit the same one is best here and in a sample of temperature 0.
    """
    table = symbol_table(conditional)
    [scores] = table.parameters  # unnormalised: `logits` would normalise all rows
    size = len(scores) if scores.device.type != "cpu" else max(CACHE // scores.shape[-1], 1)
    parts = []
    for first in range(0, max(len(scores), 1), max(size, 1)):
        rows = slice(first, first + size)
        own = at_least_float32(scores[rows])
        best, places = best_first(permitted(own, rows), k)
        log_p = Categorical(own).logits.gather(1, places)
        parts.append((torch.where(best == -torch.inf, log_p - torch.inf, log_p), places))  # NaN stays
    return torch.cat([values for values, _ in parts]), torch.cat([symbols for _, symbols in parts])


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
