"""A text on its way to training: symbols on disk, batches of them."""

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from chainrule.data import (
    Batch,
    Corpus,
    LineBatches,
    StreamBatches,
    builtin_text,
    fingerprint,
    line_evaluation,
    open_corpus,
    prepare_corpus,
    stream_evaluation,
)
from chainrule.tasks.run_directory import DATA, VOCABULARY

if TYPE_CHECKING:
    from chainrule.tasks.text.task import TextTask

_EVALUATION_ROWS = 16

HeldOut = Callable[[], Iterable[Batch]]


def prepared(run: "TextTask") -> Corpus:
    """The text of a run, turned into symbols anew; its vocabulary is written where there is none yet.

    Raises:
        ValueError, OSError: the text cannot be read, is too short, or has other symbols than the vocabulary.
    """
    data, sources = run.data, run.config.sources
    progress = _Progress() if sys.stderr.isatty() else None
    try:
        corpus = prepare_corpus(
            sources["source"],
            run.path / DATA,
            level=data.level,
            reading=data.reading,
            validation=sources["validation"],
            validation_fraction=data.validation_fraction or 0.05,
            vocabulary_size=data.vocabulary_size,
            min_count=data.min_count,
            progress=progress,
        )
    finally:
        if progress is not None:
            progress.clear()
    if not (run.path / VOCABULARY).exists():
        corpus.vocabulary.save(run.path / VOCABULARY)
    elif len(corpus.vocabulary) != len(run.vocabulary):
        raise ValueError(f"{run.path / VOCABULARY}: does not fit the text: it was changed since the run began")
    return corpus


def corpus_of(run: "TextTask") -> Corpus:
    """The run's text as symbols."""
    return open_corpus(run.path / DATA)


def batches_of(run: "TextTask", corpus: Corpus, shard: tuple[int, int]) -> tuple[StreamBatches | LineBatches, HeldOut]:
    """The training batches of this process, and what makes the held-out ones."""
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


def usual_fraction(source: str | None) -> float:
    """A hundredth of a long text; of a short one more, up to a twentieth, so that about 10,000 bytes are held out.

    The tail of a text is what the text that follows it is most like: every part of it that is held out is missed there.
    """
    size = len(builtin_text()) if source is None else fingerprint(source)["bytes"]
    return max(0.01, min(0.05, 10_000 / max(size, 1)))


class _Progress:
    """One line on the terminal while a large text is read."""

    def __init__(self) -> None:
        self._shown = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        line = f"{stage}: {100 * done // max(total, 1)}%"
        if line != self._shown:
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
            self._shown = line

    def clear(self) -> None:
        """Leave no trace."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
