"""Sources of a run as plain files: what is compressed, several files or standard input is unpacked for the time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from chainrule._app.tasks.config import RunConfig
from chainrule.data._gather import Kind, gather, must_gather

if TYPE_CHECKING:
    from typing import Any

    from chainrule._app.tasks.task import Task

_KINDS: dict[str, Kind] = {"text": "text", "table": "rows", "classify": "rows", "forecast": "rows"}


@contextmanager
def readable(task: "type[Task[Any]]", config: RunConfig) -> Iterator[RunConfig]:
    """The config with sources that are plain files, for the length of the block."""
    kind = _KINDS.get(task.name)
    sources = {name: path for name, path in config.sources.items() if path is not None}
    gathered = [name for name, path in sources.items() if kind is not None and must_gather(path, kind)]
    if not gathered or kind is None:
        yield config
        return
    column = getattr(config.data, "text_column", None) or "" if kind == "text" else ""
    with TemporaryDirectory(prefix="chainrule-") as folder:
        found: dict[str, str | None] = {}
        for name in gathered:
            (Path(folder) / name).mkdir()
            found[name] = str(gather(sources[name], Path(folder) / name, kind, column))
        yield replace(config, sources=config.sources | found)
