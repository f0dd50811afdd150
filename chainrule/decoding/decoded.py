"""The result of a search for one row, and the hypotheses it is made from."""

import math
from bisect import insort
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Decoded:
    """The n best sequences found for one row, best first.

    Attributes:
        sequences: n tensors of shape (T_i,), symbols without `<eos>`; never none at all.
        log_probs: (n,) log-likelihood of each under the model, nats, float64: that of the sequence with its `<eos>`;
            where it is cut, that of the elements it has.
        scores: (n,) by which they are ranked, log_probs / length^α.
        ended: (n,) whether each came to an end; the others were cut at `max_length`, and come last.
        gap: by how much, on the scale of `scores`, a prefix that was still alive at `max_length` could at most have
            beaten the last of the n, had it come to its end there; infinite where one of the n came to none.
    """

    sequences: list[Tensor]
    log_probs: Tensor
    scores: Tensor
    ended: Tensor
    gap: float

    @property
    def proven(self) -> bool:
        """Whether no prefix that the beam kept could have changed the n best: gap = 0.

        It covers the decision to stop, and says nothing of prefixes that the beam dropped on the way: only where it
        dropped none, as one with a place for every prefix, are these the n best of all sequences. A beam of one, as
        `greedy` has, drops all but one at every step: there `proven` says that the sequence ended, and no more.
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
        """Keep it if it is among the n best; of equals, those that came first."""
        insort(self.hypotheses, hypothesis, key=lambda kept: -kept.score)
        del self.hypotheses[self.n :]

    @property
    def worst(self) -> float:
        """The score that a hypothesis must exceed to be among the n best; -inf while there are fewer."""
        return self.hypotheses[-1].score if len(self.hypotheses) == self.n else -math.inf

    def decoded(self, live: list[Hypothesis]) -> Decoded:
        """The row's result, given the prefixes that could still have beaten the worst, best first."""
        chosen = (self.hypotheses + live)[: self.n]
        gap = 0.0
        if live:
            gap = math.inf if self.worst == -math.inf else live[0].score - self.worst
        figures = torch.tensor(
            [(hypothesis.log_prob, hypothesis.score) for hypothesis in chosen],
            dtype=torch.float64,
            device=chosen[0].sequence.device,
        )
        # Copies: each sequence is a row of a table of all that the search found at one step.
        sequences = [hypothesis.sequence.clone() for hypothesis in chosen]
        ended = torch.arange(len(chosen), device=figures.device) < len(self.hypotheses)
        return Decoded(sequences, figures[:, 0], figures[:, 1], ended, gap)
