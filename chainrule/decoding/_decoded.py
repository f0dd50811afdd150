"""The result of a search for one row, the hypotheses it is made from, and their likelihood read again."""

import math
from bisect import insort
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel, Context
from chainrule._modes import wide, widest


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


@torch.no_grad()
def rescored(
    model: AutoregressiveModel, context: Context, found: Decoded, *, eos: int | None, length_penalty: float = 0.0
) -> Decoded:
    """Return the sequences that a search found for one row, with the log-likelihood of each read whole and alone.

    A search adds up the likelihood step by step with other rows and prefixes, whose number changes the last digits.
    Scored alone, a sequence has the same log-likelihood after any search.

    Args:
        model: that was searched, in the same mode.
        context: of the row, (1, ...).
        found: its result.
        eos, length_penalty: as in the search.

    Returns:
        The same sequences in the order of their new scores, those that ended first.

    >>> from chainrule.decoding import beam_search
    >>> from chainrule.models import RecurrentLM
    >>> model = RecurrentLM(vocab_size=3, hidden_size=1).eval()
    >>> [found] = beam_search(model, beam_size=2, max_length=4, eos=2, n_best=2)
    >>> torch.allclose(rescored(model, None, found, eos=2).log_probs, found.log_probs)
    True
    """
    log_probs, scores = torch.zeros_like(found.log_probs), torch.zeros_like(found.scores)
    for index, (sequence, ended) in enumerate(zip(found.sequences, found.ended.tolist(), strict=True)):
        x = torch.cat([sequence, sequence.new_tensor([eos] if ended and eos is not None else [])]).unsqueeze(0)
        if x.shape[1]:
            log_probs[index] = wide(model(x, context).log_prob(x)).sum()
            scores[index] = log_probs[index] / x.shape[1] ** length_penalty
    order = sorted(range(len(scores)), key=lambda index: (not found.ended[index], -scores[index].item()))
    return replace(
        found,
        sequences=[found.sequences[index] for index in order],
        log_probs=log_probs[order],
        scores=scores[order],
        ended=found.ended[order],
    )
