"""The counts of n-grams of a run: how long the n-grams are, and the tables, counted once and kept beside the weights.

ngrams.safetensors      the tables
"""

from typing import TYPE_CHECKING

import numpy as np
import torch

from chainrule.layers import KneserNey
from chainrule.models.ngram_mixture import NgramMixture
from chainrule.tasks.display import progress_bars
from chainrule.tasks.run_directory import NGRAMS, WEIGHTS
from chainrule.tasks.text.preparing import corpus_of
from chainrule.training.checkpoint import read_sealed, write_sealed

if TYPE_CHECKING:
    from chainrule.base import AutoregressiveModel
    from chainrule.data.vocabulary import Ids, Tokens
    from chainrule.tasks.text.task import TextTask

_ORDERS = {"char": 12, "byte": 12, "word": 5, "bpe": 5}
_MOST_SYMBOLS = 1 << 22
_SYMBOLS_A_SECOND = 50_000  # of a budget: counting takes 1 or 2% of it, on a slow machine 5%
_KIND = "n-grams"


def usual_order(level: str) -> int:
    """Symbols of the longest n-grams: longer ones of words are hardly ever there twice."""
    return _ORDERS[level]


def with_ngrams(run: "TextTask", network: "AutoregressiveModel") -> "AutoregressiveModel":
    """The network of a run, averaged with the counts of its text where the run has them.

    Raises:
        FileNotFoundError: the counts of a trained run are gone.
        ValueError: their file is damaged, or of another vocabulary.
    """
    order, path = run.training.kneser_ney_order, run.path / NGRAMS
    if not order:
        return network
    if not path.is_file() and (run.path / WEIGHTS).is_file():
        raise FileNotFoundError(f"{path}: no such file, but the run was trained with it: restore it, or train again")
    ngrams = _read(run) if path.is_file() else _count(run, order)
    return NgramMixture(network, ngrams)


def _read(run: "TextTask") -> KneserNey:
    path = run.path / NGRAMS
    tables, record = read_sealed(path)
    try:
        ngrams = KneserNey.from_tables(tables)
        if record.get("kind") != _KIND or ngrams.vocab_size != len(run.vocabulary):
            raise ValueError(f"expected n-grams of {len(run.vocabulary):,} symbols, got {ngrams.vocab_size:,}")
    except ValueError as error:
        raise ValueError(f"{path}: {error}: it is not the run's: restore it from a copy, or train again") from None
    return ngrams


def _count(run: "TextTask", order: int) -> KneserNey:
    corpus, budget = corpus_of(run), run.config.duration.budget
    most = _MOST_SYMBOLS if budget is None else min(_MOST_SYMBOLS, max(1, int(budget * _SYMBOLS_A_SECOND)))
    lines = corpus.reading == "lines"
    with progress_bars() as begin:
        begin(None, "counting n-grams")
        text = _last_lines(corpus.train, most, len(corpus.vocabulary)) if lines else _last(corpus.train, most)
        ngrams = KneserNey.fit(torch.from_numpy(text), len(corpus.vocabulary), order, lines=lines)
    write_sealed(run.path / NGRAMS, ngrams.tables(), {"kind": _KIND})
    return ngrams


def _last(tokens: "Tokens", most: int) -> "Ids":
    """The end of a stream: what follows it is most like it."""
    return tokens.slice(max(0, len(tokens) - most), len(tokens))


def _last_lines(tokens: "Tokens", most: int, begin: int) -> "Ids":
    """The last lines, each after the symbol `begin`; one at least."""
    starts, stops = tokens.line_bounds(np.arange(tokens.line_count))
    first = min(int(np.searchsorted(starts, int(stops[-1]) - most)), len(starts) - 1)
    return np.insert(tokens.slice(int(starts[first]), int(stops[-1])), starts[first:] - starts[first], begin)
