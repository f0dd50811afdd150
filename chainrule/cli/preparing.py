"""From what was asked for to a run that can be trained: the directory, the symbols on disk, the batches."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from chainrule.cli.command_line import flag
from chainrule.config import Extent, RunConfig
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
from chainrule.run import CONFIG, CORPUS, VOCABULARY, Run, refuse_taken, remove

EVALUATION_ROWS = 16
# May change on resume, as in `chainrule.training.TrainingOptions`.
_FREE = {"patience", "device", "tensorboard", "watch_gradients", "watch_every"}

Training = StreamBatches | LineBatches
HeldOut = Callable[[], Iterable[Batch]]


def create(asked: RunConfig, out: Path, *, overwrite: bool) -> Run:
    """A new run, its corpus prepared. It takes its place, and an old run goes, only when nothing can fail any more.

    Raises:
        FileExistsError: `out` is taken.
        ValueError, FileNotFoundError: the text cannot be read, or is too short.
    """
    refuse_taken(out, overwrite=overwrite)
    if asked.data.validation_fraction is None:
        fraction = _usual_fraction(asked.source)
        asked = replace(asked, data=replace(asked.data, validation_fraction=fraction))
    whole = out.resolve()
    draft_path = whole.with_name(f"{whole.name}.preparing")
    discard(draft_path)  # left by a run that was killed while it prepared its text
    draft = Run.create(draft_path, asked)
    try:
        corpus = _prepared(draft)
        corpus.vocabulary.save(draft.path / VOCABULARY)
        draft.config = replace(asked, corpus=_facts(corpus))
        draft.write_config()
        batches(draft.config, corpus, (0, 1))
        draft.new_model(asked.training.seed)
        remove(out)
        if out.exists():
            adopt(draft.path, out)
        else:
            draft.path.rename(out)
    except BaseException:
        discard(draft.path)
        raise
    return Run.open(out)


def resume(asked: RunConfig, out: Path, given: frozenset[str]) -> Run:
    """The run in `out`, ready to go on.

    Args:
        asked: the options of this command line.
        out: the run.
        given: the names of those that the user wrote (`--hidden-size`): only these must agree with the run's.

    Raises:
        ValueError: an option or the text changed since the run began.
    """
    run = Run.open(out)
    changed = list(_changes(run.config, asked, given))
    if changed:
        raise ValueError(
            f"--resume: {out} was begun with other options: {'; '.join(changed)}: leave them out, "
            "or begin another run with another --out"
        )
    source = asked.source if "DATA" in given else run.config.source
    validation = asked.validation if "--validation" in given else run.config.validation
    _compare_text(run, source, "source")
    if "--validation" in given or validation is not None:
        _compare_text(run, validation, "validation")
    free = {name: getattr(asked.training, name) for name in _FREE if flag(name) in given}
    extended = {flag(item.name) for item in fields(Extent)} & given
    config = replace(
        run.config,
        source=source,
        validation=validation,
        training=replace(run.config.training, **free),
        extent=asked.extent if extended else run.config.extent,
    )
    if config != run.config:
        run.config = config
        run.write_config()
    if not (run.path / CORPUS / "corpus.json").is_file():
        corpus = _prepared(run)
        if len(corpus.vocabulary) != len(run.vocabulary):
            raise ValueError(f"{run.path / VOCABULARY}: does not fit the text: it was changed since the run began")
    return run


def batches(config: RunConfig, corpus: Corpus, shard: tuple[int, int]) -> tuple[Training, HeldOut]:
    """The training batches of this process, and what makes the held-out ones."""
    training = config.training
    rows, length, seed = training.batch_size, training.chunk_length, training.seed
    if corpus.reading == "lines":
        return (
            LineBatches(corpus.train, rows, training.line_length, seed, shard),
            lambda: line_evaluation(corpus.valid, rows),
        )
    return (
        StreamBatches(corpus.train, rows, length, seed, shard),
        lambda: stream_evaluation(corpus.valid, EVALUATION_ROWS, 4 * length),
    )


def corpus_of(run: Run) -> Corpus:
    """The run's text as symbols."""
    return open_corpus(run.path / CORPUS)


def _prepared(run: Run) -> Corpus:
    config = run.config
    progress = _Progress() if sys.stderr.isatty() else None
    try:
        return prepare_corpus(
            config.source,
            run.path / CORPUS,
            level=config.data.level,
            reading=config.data.reading,
            validation=config.validation,
            validation_fraction=config.data.validation_fraction or 0.05,
            vocabulary_size=config.data.vocabulary_size,
            min_count=config.data.min_count,
            progress=progress,
        )
    finally:
        if progress is not None:
            progress.clear()


def _usual_fraction(source: str | None) -> float:
    """A hundredth of a long text; of a short one more, up to a twentieth, so that about 10,000 bytes are held out.

    The tail of a text is what the text that follows it is most like: every part of it that is held out is missed there.
    """
    size = len(builtin_text()) if source is None else fingerprint(source)["bytes"]
    return max(0.01, min(0.05, 10_000 / max(size, 1)))


def _facts(corpus: Corpus) -> dict[str, Any]:
    return {name: corpus.manifest[name] for name in ("source", "validation", "train", "valid")}


def _changes(old: RunConfig, new: RunConfig, given: frozenset[str]) -> Iterable[str]:
    if "--model" in given and old.model != new.model:
        yield f"--model was {old.model} and is {new.model}"
    for section in ("data", "options", "training"):
        before, now = asdict(getattr(old, section)), asdict(getattr(new, section))
        for name, value in now.items():
            if name not in _FREE and flag(name) in given and before[name] != value:
                yield f"{flag(name)} was {before[name]} and is {value}"


def _compare_text(run: Run, path: str | None, part: str) -> None:
    """Refuse another text than the run began with; one that is gone does not matter while its symbols are there."""
    began = run.config.corpus[part]
    if path is not None and not Path(path).exists() and (run.path / CORPUS / "corpus.json").is_file():
        return
    now = fingerprint(path)
    if began is None or (began["bytes"], began["sha256"]) != (now["bytes"], now["sha256"]):
        raise ValueError(
            f"--resume: {'DATA' if part == 'source' else '--validation'} changed since the run began: "
            f"it was {_describe(began)} and is {_describe(now)}: restore it, or begin another run with another --out"
        )


def _describe(text: dict[str, Any] | None) -> str:
    return "none" if text is None else f"{text['name']} ({text['bytes']} bytes, SHA-256 {text['sha256'][:12]}…)"


def adopt(draft: Path, out: Path) -> None:
    """Move the parts of a run into a directory that is there, what makes it a run last."""
    for part in sorted(draft.iterdir(), key=lambda part: part.name == CONFIG):
        part.rename(out / part.name)
    draft.rmdir()


def discard(draft: Path) -> None:
    """Delete a half-made run, and its directory unless someone keeps other files in it."""
    if draft.is_dir():
        remove(draft)
        if not any(draft.iterdir()):
            draft.rmdir()


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
