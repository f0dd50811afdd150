"""`chainrule train --resume`: which options a resumed run may change, and whether its data are unchanged."""

from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from chainrule._app.tasks.config import Duration, Fingerprint, RunConfig
from chainrule._app.tasks.display import flag
from chainrule._app.tasks.task import Task


def resumed_config(run: Task[Any], asked: RunConfig, given: frozenset[str], *, check_data: bool) -> RunConfig:
    """The config of a run that goes on, with what the user changed; nothing is written yet.

    Args:
        run: as it is on the disk.
        asked: the config that the command line describes.
        given: the names of options that the user wrote: only these must agree.
        check_data: whether to compare the data with those that the run began with.

    Raises:
        ValueError: an option that may not change did, or the data did.
    """
    changed = list(_changes(run, run.config, asked, given))
    if changed:
        raise ValueError(
            f"--resume: {run.path} was begun with other options: {'; '.join(changed)}: leave them out, "
            "or begin another run with another --out"
        )
    sources = {
        name: asked.sources[name] if source.is_given(given) else run.config.sources[name]
        for name, source in run.SOURCES.items()
    }
    for name, source in run.SOURCES.items():
        if check_data and (name == "source" or source.is_given(given) or sources[name] is not None):
            _compare(run, sources[name], name)
    free = {name: getattr(asked.training, name) for name in run.FREE if flag(name) in given}
    extended = {flag(item.name) for item in fields(Duration)} & given
    return replace(
        run.config,
        sources=sources,
        training=replace(run.config.training, **free),
        duration=asked.duration if extended else run.config.duration,
    )


def _changes(run: Task[Any], old: RunConfig, new: RunConfig, given: frozenset[str]) -> Iterable[str]:
    if "--model" in given and old.model != new.model:
        yield f"--model was {old.model} and is {new.model}"
    for section in ("data", "options", "training"):
        before, now = asdict(getattr(old, section)), asdict(getattr(new, section))
        for name, value in now.items():
            if name not in run.FREE and flag(name) in given and before.get(name) != value:
                yield f"{flag(name)} was {before.get(name)} and is {value}"


def _compare(run: Task[Any], path: str | None, name: str) -> None:
    """Refuse other data than the run began with; what is gone does not matter while it is there as prepared."""
    began: Fingerprint | None = getattr(run.facts, name)
    if path is not None and not Path(path).exists() and run.is_prepared():
        return
    now = Fingerprint(**run.fingerprint(path))
    if began is None or (began.bytes, began.sha256) != (now.bytes, now.sha256):
        raise ValueError(
            f"--resume: {run.SOURCES[name].flag} changed since the run began: "
            f"it was {_describe(began)} and is {_describe(now)}: restore it, or begin another run with another --out"
        )


def _describe(source: Fingerprint | None) -> str:
    return "none" if source is None else f"{source.name} ({source.bytes} bytes, SHA-256 {source.sha256[:12]}…)"
