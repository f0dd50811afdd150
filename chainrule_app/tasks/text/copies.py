"""Lines of sampled texts that occur in the training text."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from chainrule_app.tasks.copies import Copies

if TYPE_CHECKING:
    from chainrule_app.tasks.text.task import TextTask

_MOST_SYMBOLS = 1 << 23  # of a training text that is searched, which takes half a second


class LineCopies(Copies[str]):
    """The lines of samples that occur in the training text; of a stream, those that a line end closes."""

    def __init__(self, run: "TextTask"):
        def find(lines: set[str]) -> set[str]:
            symbols = run.corpus().train
            if len(symbols) > _MOST_SYMBOLS:
                raise ValueError("a long text")
            return lines.intersection(run.vocabulary.decode(symbols.slice(0, len(symbols))).split("\n"))

        super().__init__("line", find)
        self._stop = -1 if run.data.reading == "stream" else None

    def counted(self, rows: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        """Yield rows of a prompt, the whole text and more; count their texts."""
        for row in rows:
            self.add_text(row[1])
            yield row

    def add_text(self, text: str) -> None:
        for line in filter(str.strip, text.split("\n")[: self._stop]):
            self.add(line)
