"""A progress bar on a terminal, on standard error, for work that takes long."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Started = Callable[[int, str], Callable[[int], None]]


@contextmanager
def progress_bars() -> Iterator[Started]:
    """Give a function that begins a bar, of a total and a word, and returns one that advances it.

    Where standard error is no terminal, nothing is shown.
    """
    if not sys.stderr.isatty():
        yield lambda total, word: lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        def begin(total: int, word: str) -> Callable[[int], None]:
            bar = progress.add_task(word, total=total)
            return lambda count: progress.advance(bar, count)

        yield begin
