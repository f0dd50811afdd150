"""Symbols of a text: prepared on disk, in batches for training, in a few rows to look at closely, and counted.

Counts of n-grams are made once and saved in the run directory, as ngrams.safetensors.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from chainrule.data import Batch, LineBatches, StreamBatches, line_evaluation, stream_evaluation
from chainrule.data._batches import padded
from chainrule.layers import KneserNey
from chainrule.models import CalibratedMixture, NgramLM
from chainrule.training._checkpoint import read_sealed, write_sealed
from chainrule_app.readers.corpus import Corpus, open_corpus, prepare_corpus
from chainrule_app.readers.text import builtin_text, fingerprint, name_of, read_lines, read_text
from chainrule_app.tasks.display import progress_bars
from chainrule_app.tasks.run_directory import DATA, NGRAMS, VOCABULARY

if TYPE_CHECKING:
    from chainrule import AutoregressiveModel
    from chainrule.data import Tokens, Vocabulary
    from chainrule_app.readers.stored_tokens import Ids
    from chainrule_app.tasks.text.task import TextTask

# N-grams of an order as a share of the symbols. With 0.6 tiny Shakespeare has order 8, a third of the tables of order
# 12 and 0.001 nats more; texts that repeat themselves keep 12. Words need what is there once.
MOST_DIFFERENT = {"char": 0.6, "byte": 0.6, "word": 1.0, "bpe": 1.0}
ORDERS = {"char": 12, "byte": 12, "word": 5, "bpe": 5}
_FEWEST_SYMBOLS, _MOST_SYMBOLS = 1 << 12, 1 << 22
_SYMBOLS_A_SECOND = 50_000  # of a budget: counting takes 1 or 2% of it, on a slow machine 5%

_EVALUATION_ROWS = 16

HeldOut = Callable[[], Iterable[Batch]]


def prepared(run: "TextTask", vocabulary: "Vocabulary | None" = None) -> Corpus:
    """Encode the text of a run, with the vocabulary of another run if passed."""
    options, sources = asdict(run.data), run.config.sources
    del options["text_column"]  # of the file that was unpacked
    with progress_bars() as begin:
        bars: dict[tuple[str, int], tuple[int, Callable[[int], None]]] = {}  # one per file and stage

        def progress(stage: str, done: int, total: int) -> None:
            before, advance = bars.get((stage, total)) or (0, begin(total, stage))
            advance(done - before)
            bars[stage, total] = done, advance

        corpus = prepare_corpus(
            sources["source"],
            run.path / DATA,
            validation=sources["validation"],
            tokenizer=sources["tokenizer"],
            vocabulary=vocabulary,
            progress=progress,
            **options,
        )
    if not (run.path / VOCABULARY).exists():
        corpus.vocabulary.save(run.path / VOCABULARY)
    elif len(corpus.vocabulary) != len(run.vocabulary):
        raise ValueError(f"{run.path / VOCABULARY}: does not match the text: it was changed since the run began")
    return corpus


def corpus_of(run: "TextTask") -> Corpus:
    return open_corpus(run.path / DATA)


def batches_of(run: "TextTask", corpus: Corpus, shard: tuple[int, int]) -> tuple[StreamBatches | LineBatches, HeldOut]:
    """Return the training batches of this process, and a function that makes the held-out ones."""
    training = run.training
    rows, length, seed = training.batch_size, training.chunk_length, training.seed
    assert rows is not None  # settled when the run was made
    if corpus.reading == "lines":
        return (
            LineBatches(corpus.train, rows, training.line_length, seed, shard),
            lambda: line_evaluation(corpus.valid, rows),
        )
    return (
        StreamBatches(corpus.train, rows, length, seed, shard),
        lambda: stream_evaluation(corpus.valid, _EVALUATION_ROWS, 4 * length),
    )


def default_fraction(source: str | None) -> float:
    """Hold out 1% of long texts, up to 5% of short ones: about 10,000 bytes."""
    size = len(builtin_text()) if source is None else fingerprint(source)["bytes"]
    return max(0.01, min(0.05, 10_000 / max(size, 1)))


_MOST_LINES = 1 << 16
Window = tuple[Tensor, Tensor | None]


def own_window(run: "TextTask", rows: int, steps: int) -> tuple[Tensor, Tensor | None, str]:
    """Return held-out symbols (B, T), the lengths of lines, and the part's name: a stream too short uses its training
    part.
    """
    corpus = open_corpus(run.path / DATA)
    if corpus.reading == "lines":
        return *_lines_window(_lines(corpus.valid), rows, steps, str(run.path)), "held-out"
    tokens, part = (corpus.valid, "held-out") if len(corpus.valid) >= rows * steps else (corpus.train, "training")
    return *_stream_window(tokens.slice(0, min(rows * steps, len(tokens))), rows, steps, str(run.path)), part


def file_window(vocabulary: "Vocabulary", reading: str, file: str, rows: int, steps: int) -> Window:
    """Return the first rows of a file, and their lengths; `-` is standard input."""
    strict = not vocabulary.reads_any_bytes
    name = name_of(file)
    if reading == "lines":
        with closing(read_lines(file, strict=strict)) as lines:
            return _lines_window((vocabulary.encode(line + "\n") for _, line in lines), rows, steps, name)
    with closing(read_text(file, strict=strict)) as chunks:
        ids = _beginning(vocabulary.encode_chunks(chunks), rows * steps)
    return _stream_window(ids, rows, steps, name)


def _stream_window(ids: "Ids", rows: int, steps: int, name: str) -> Window:
    """Cut a text into equal consecutive rows; a short text gives fewer, then shorter ones."""
    if len(ids) < 2:
        raise ValueError(f"{name}: {_too_short(len(ids))}")
    rows = min(rows, -(-len(ids) // steps))
    width = min(steps, len(ids) // rows)
    return torch.from_numpy(ids[: rows * width].copy()).view(rows, width), None


def _lines_window(lines: "Iterable[Ids]", rows: int, steps: int, name: str) -> Window:
    """Take the first lines of two symbols or more, cut to `steps`."""
    chosen_lines = list(islice((line[:steps] for line in islice(lines, _MOST_LINES) if len(line) > 1), rows))
    if not chosen_lines:
        raise ValueError(f"{name}: {_too_short(1)} in every line")
    lengths = [len(line) for line in chosen_lines]
    return padded(chosen_lines, max(lengths)), torch.tensor(lengths)


def _lines(tokens: "Tokens") -> "Iterator[Ids]":
    starts, stops = tokens.line_bounds(np.arange(min(tokens.line_count, _MOST_LINES)))
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        yield tokens.slice(start, stop)


def _beginning(parts: "Iterable[Ids]", count: int) -> "Ids":
    held: list[Ids] = []
    for part in parts:
        held.append(part)
        count -= len(part)
        if count <= 0:
            break
    ids = np.concatenate([np.zeros(0, dtype=np.int64), *held])
    return ids[: len(ids) + min(count, 0)]


def _too_short(count: int) -> str:
    return f"expected at least two symbols, got {count or 'an empty text'}"


def fitted_order(run: "TextTask") -> int:
    """Return the n-gram order of a run's tables; the configured one if the tables cannot be read."""
    configured: int = run.training.kneser_ney_order
    try:
        return KneserNey.from_tables(read_sealed(run.path / NGRAMS)[0]).order
    except (OSError, ValueError):  # `with_ngrams` says why
        return configured


def with_ngrams(run: "TextTask", network: "AutoregressiveModel") -> "AutoregressiveModel":
    """Average the network with n-gram counts, if the run has them."""
    order, path = run.training.kneser_ney_order, run.path / NGRAMS
    if not order:
        return network
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file, but the run uses n-gram counts: restore it, or train again")
    tables, record = read_sealed(path)
    try:
        if not _record(run).items() <= record.items():
            raise ValueError("expected the n-grams of the run's text, got n-grams of another text")
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
    """Count the n-grams of a new run's text; a run with initial weights keeps their counts."""
    order, budget = run.training.kneser_ney_order, run.config.duration.budget
    if not order:
        return
    if run.config.init is not None:  # they belong to the weights
        tables, _ = read_sealed(Path(run.config.init.run) / NGRAMS)
        write_sealed(run.path / NGRAMS, tables, _record(run))
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
            raise ValueError(f"{source}: expected at least two symbols to train on, got {len(text)}: add text")
        symbols, most_different = torch.from_numpy(text), MOST_DIFFERENT[corpus.level]
        ngrams = KneserNey.fit(symbols, len(corpus.vocabulary), order, lines=lines, most_different=most_different)
    write_sealed(run.path / NGRAMS, ngrams.tables(), _record(run))


def _record(run: "TextTask") -> dict[str, Any]:
    facts, reading = run.facts, run.data.reading
    return {"kind": "n-grams", "source": facts.source.sha256, "train": asdict(facts.train), "reading": reading}


def _last(tokens: "Tokens", most: int) -> "Ids":
    """Take the end of a stream: it resembles what follows most."""
    return tokens.slice(max(0, len(tokens) - most), len(tokens))


def _last_lines(tokens: "Tokens", most: int, begin: int) -> "Ids":
    """Take the last lines, each after the symbol `begin`, the last one cut to fit."""
    starts, stops = tokens.line_bounds(np.arange(max(0, tokens.line_count - most), tokens.line_count))
    first = min(int(np.searchsorted(starts, int(stops[-1]) - most)), len(starts) - 1)
    text = tokens.slice(int(starts[first]), min(int(stops[-1]), int(starts[first]) + most))
    return np.insert(text, starts[first:] - starts[first], begin)
