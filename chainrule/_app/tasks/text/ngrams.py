"""The counts of n-grams of a run: how long n-grams are, and their tables, counted once and kept beside the weights.

ngrams.safetensors      the tables
"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from chainrule._app.tasks.display import progress_bars
from chainrule._app.tasks.run_directory import NGRAMS
from chainrule._app.tasks.text.preparing import corpus_of
from chainrule.layers import KneserNey
from chainrule.models import CalibratedMixture, NgramLM
from chainrule.training._checkpoint import read_sealed, write_sealed

if TYPE_CHECKING:
    from chainrule._app.tasks.text.task import TextTask
    from chainrule._base import AutoregressiveModel
    from chainrule.data._vocabulary import Ids, Tokens

# N-grams of an order as a share of the symbols. With 0.6 tiny Shakespeare has order 8, a third of the tables of order
# 12 and 0.001 nats more; texts that repeat themselves keep 12. Words need what is there once.
MOST_DIFFERENT = {"char": 0.6, "byte": 0.6, "word": 1.0, "bpe": 1.0}
_ORDERS = {"char": 12, "byte": 12, "word": 5, "bpe": 5}
_FEWEST_SYMBOLS, _MOST_SYMBOLS = 1 << 12, 1 << 22
_SYMBOLS_A_SECOND = 50_000  # of a budget: counting takes 1 or 2% of it, on a slow machine 5%


def usual_order(level: str) -> int:
    """Symbols of the longest n-grams; shorter ones are the longest where they would be too many."""
    return _ORDERS[level]


def fitted_order(run: "TextTask") -> int:
    """Symbols of the longest n-grams in the tables of a run; those asked for where the tables cannot be read."""
    asked: int = run.training.kneser_ney_order
    try:
        return KneserNey.from_tables(read_sealed(run.path / NGRAMS)[0]).order
    except (OSError, ValueError):  # `with_ngrams` says why
        return asked


def with_ngrams(run: "TextTask", network: "AutoregressiveModel") -> "AutoregressiveModel":
    """The network of a run, averaged with the counts of its text where the run has them.

    Raises:
        FileNotFoundError: the counts are gone.
        ValueError: their file is damaged, or of another text or vocabulary.
    """
    order, path = run.training.kneser_ney_order, run.path / NGRAMS
    if not order:
        return network
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file, though the run counts n-grams: restore it, or train again")
    tables, record = read_sealed(path)
    try:
        if not _record(run).items() <= record.items():
            raise ValueError("expected the n-grams of the run's text, got those of another")
        ngrams = KneserNey.from_tables(tables)
        if ngrams.vocab_size != len(run.vocabulary) or ngrams.order > order:
            raise ValueError(
                f"expected n-grams of at most {order} out of {len(run.vocabulary):,} symbols, "
                f"got {ngrams.order} out of {ngrams.vocab_size:,}"
            )
    except ValueError as error:
        raise ValueError(f"{path}: {error}: restore it from a copy, or train again") from None
    return CalibratedMixture(network, NgramLM(ngrams))


def count_ngrams(run: "TextTask") -> None:
    """Count the n-grams of a new run's text, and write their tables, where its options ask for them.

    Raises:
        OSError: the disk is full or not writable.
        ValueError: the text has fewer than two symbols to train on.
    """
    order, budget = run.training.kneser_ney_order, run.config.duration.budget
    if not order:
        return
    corpus, most = corpus_of(run), _MOST_SYMBOLS
    if budget is not None:
        most = min(most, max(_FEWEST_SYMBOLS, int(budget * _SYMBOLS_A_SECOND)))
    lines = corpus.reading == "lines"
    with progress_bars() as begin:
        begin(None, "counting n-grams")
        text = _last_lines(corpus.train, most, len(corpus.vocabulary)) if lines else _last(corpus.train, most)
        if len(text) < 2:
            source = run.config.sources["source"] or run.facts.source.name
            raise ValueError(f"{source}: expected at least two symbols to train on, got {len(text)}: give more text")
        symbols, most_different = torch.from_numpy(text), MOST_DIFFERENT[corpus.level]
        ngrams = KneserNey.fit(symbols, len(corpus.vocabulary), order, lines=lines, most_different=most_different)
    write_sealed(run.path / NGRAMS, ngrams.tables(), _record(run))


def _record(run: "TextTask") -> dict[str, Any]:
    facts, reading = run.facts, run.data.reading
    return {"kind": "n-grams", "source": facts.source.sha256, "train": asdict(facts.train), "reading": reading}


def _last(tokens: "Tokens", most: int) -> "Ids":
    """The end of a stream: what follows it is most like it."""
    return tokens.slice(max(0, len(tokens) - most), len(tokens))


def _last_lines(tokens: "Tokens", most: int, begin: int) -> "Ids":
    """The last lines, each after the symbol `begin`; of the last one as much as there may be."""
    starts, stops = tokens.line_bounds(np.arange(max(0, tokens.line_count - most), tokens.line_count))
    first = min(int(np.searchsorted(starts, int(stops[-1]) - most)), len(starts) - 1)
    text = tokens.slice(int(starts[first]), min(int(stops[-1]), int(starts[first]) + most))
    return np.insert(text, starts[first:] - starts[first], begin)
