"""Small models to decode, and the answers that enumeration gives."""

import itertools

import torch
from torch import nn

from chainrule._base import AutoregressiveModel
from chainrule.heads import Categorical

EOS = 0
CONTEXT = torch.randn(7, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class TinyDecoder(AutoregressiveModel):
    """A recurrent decoder whose state begins with the context, in float64."""

    def __init__(self, vocab_size=4, context_size=2, seed=0, hidden_size=6):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def weight(*shape, scale=1.0):
            return nn.Parameter(scale * torch.randn(*shape, generator=generator, dtype=torch.float64))

        self.begin = weight(context_size, hidden_size)
        self.embedding = weight(vocab_size + 1, hidden_size)
        self.recurrence = weight(hidden_size, hidden_size, scale=0.6)
        self.output = weight(vocab_size, hidden_size, scale=1.2)
        self.bias = nn.Parameter(torch.zeros(vocab_size, dtype=torch.float64))
        self.stepped = []  # rows of each step: a test reads what the search asked for

    def initial_state(self, batch_size, context=None):
        if context is None:
            context = self.begin.new_ones(batch_size, len(self.begin))
        return {"h": (context.to(self.begin) @ self.begin).tanh(), "unused": None}

    def step(self, x_prev, state):
        h = state["h"]
        if x_prev is None:
            x_prev = torch.full((len(h),), len(self.embedding) - 1)
        self.stepped.append(len(h))
        h = (h @ self.recurrence + self.embedding[x_prev]).tanh()
        return Categorical(self.scores(h, x_prev)), {"h": h, "unused": None}

    def scores(self, h, x_prev):
        return h @ self.output.t() + self.bias

    def forward(self, x, context=None, lengths=None):
        return self.unroll(x, self.initial_state(len(x), context))[0]


class Table(AutoregressiveModel):
    """p(x_t | x_{t-1}) from rows of probabilities, one for each symbol and, last, one for the beginning."""

    def __init__(self, probabilities):
        super().__init__()
        self.logits = torch.tensor(probabilities, dtype=torch.float64).log()

    def initial_state(self, batch_size, context=None):
        return torch.full((batch_size,), len(self.logits) - 1)

    def step(self, x_prev, state):
        symbol = state if x_prev is None else x_prev
        return Categorical(self.logits[symbol]), symbol

    def forward(self, x, context=None, lengths=None):
        start = torch.full((len(x), 1), len(self.logits) - 1)
        return Categorical(self.logits[torch.cat([start, x[:, :-1]], 1)])


def holds_an_ngram_twice(sequence, n):
    ngrams = [tuple(sequence[i : i + n]) for i in range(len(sequence) - n + 1)]
    return len(set(ngrams)) < len(ngrams)


def enumerated(model, context, max_length, eos, length_penalty=0.0, min_length=0, no_repeat_ngram=None, prefix=()):
    """All ended sequences, best first, as (score, log p, elements): log p by `forward`, one sequence at a time."""
    vocabulary = len(model.output) if isinstance(model, TinyDecoder) else model.logits.shape[1]
    others = [symbol for symbol in range(vocabulary) if symbol != eos]
    found = []
    for length in range(len(prefix), max_length):
        if length < min_length:
            continue
        for rest in itertools.product(others, repeat=length - len(prefix)):
            sequence = [*prefix, *rest]
            if no_repeat_ngram is not None and holds_an_ngram_twice(sequence, no_repeat_ngram):
                continue
            with torch.no_grad():
                log_prob = float(model.log_prob(torch.tensor([[*sequence, eos]]), context))
            if log_prob > -torch.inf:
                found.append((log_prob / (length + 1) ** length_penalty, log_prob, sequence))
    return sorted(found, key=lambda hypothesis: -hypothesis[0])


def as_lists(results):
    return [[sequence.tolist() for sequence in result.sequences] for result in results]
