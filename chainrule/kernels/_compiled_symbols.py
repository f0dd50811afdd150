"""Distributions of one symbol out of V in compiled loops: n-gram counts, means and draws."""

import math
from typing import Any

from chainrule.kernels._compiled_math import exp
from chainrule.kernels._machine_code import compiled, compiled_sums, kept


@compiled
def _place(keys: Any, wanted: int) -> int:
    """Return the first place whose key is not smaller."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@kept
@compiled
def read_ngrams(symbol: int, contexts: Any, keys: Any, vocab_size: int) -> None:
    """Update the contexts (n − 1,) by one more symbol; see `chainrule.layers._kneser_ney`."""
    for index in range(len(contexts) - 1, 0, -1):
        number = -1
        if contexts[index - 1] >= 0:
            wanted = contexts[index - 1] * vocab_size + symbol
            at = _place(keys, wanted)
            if at < len(keys) and keys[at] == wanted:
                number = at + vocab_size + 1
        contexts[index] = number
    contexts[0] = symbol


@kept
@compiled
def ngram_probs(contexts: Any, unigrams: Any, keys: Any, terms: Any, backoffs: Any, p: Any) -> None:
    """p (V,) of every symbol after the contexts (n − 1,)."""
    vocab_size = len(unigrams)
    scale = unigrams.dtype.type(1)
    for index in range(len(contexts)):
        if contexts[index] >= 0:
            scale *= backoffs[contexts[index]]
    for v in range(vocab_size):
        p[v] = unigrams[v] * scale
    for index in range(len(contexts)):
        context = contexts[index]
        if context < 0:
            continue
        scale = unigrams.dtype.type(1)
        for longer in range(len(contexts) - 1, index, -1):
            if contexts[longer] >= 0:
                scale *= backoffs[contexts[longer]]
        at = _place(keys, context * vocab_size)
        while at < len(keys) and keys[at] < (context + 1) * vocab_size:
            p[keys[at] - context * vocab_size] += terms[at] * scale
            at += 1


@kept
@compiled_sums
def add_softmax(weight: float, scores: Any, p: Any) -> None:
    """p += weight · softmax(scores), and the scores become e^(scores − their greatest)."""
    most = scores[0]
    for v in range(1, len(scores)):
        most = max(most, scores[v])
    total = 0.0
    for v in range(len(scores)):
        scores[v] = exp(scores[v] - most)
    for v in range(len(scores)):
        total += scores[v]
    share = p.dtype.type(weight / total)
    for v in range(len(scores)):
        p[v] += share * scores[v]


@kept
@compiled
def draw(scores: Any, log_noise: Any, temperature: float) -> int:
    """Return the symbol with the greatest score less its log exponential noise; −1 if no score is greatest."""
    most = scores[0]
    for v in range(len(scores)):
        if scores[v] > most or math.isnan(scores[v]):
            most = scores[v]
    if not math.isfinite(most):
        return -1
    if temperature == 0:
        for v in range(len(scores)):
            if scores[v] == most:
                return v
    chosen, best = -1, -math.inf
    for v in range(len(scores)):
        value = (scores[v] - most) / temperature - log_noise[v]
        if value > best:
            chosen, best = v, value
    return chosen
