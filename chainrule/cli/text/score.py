"""`chainrule score`: how surprising a text is to a trained model."""

import heapq
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from chainrule.cli.display import dump_json, one_line

if TYPE_CHECKING:
    from chainrule.cli.text.scoring import Scored
    from chainrule.data.vocabulary import Vocabulary

Per = Literal["line", "element", "file"]


def score(
    run: Path,
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    per: Per | None = None,
    sort: Annotated[bool, Parameter(negative=())] = False,
    top: Annotated[int | None, Parameter(name=["--top", "-n"])] = None,
    by: Literal["bits", "nats"] = "bits",
    json: Annotated[bool, Parameter(negative=())] = False,
    device: str = "auto",
) -> None:
    """Score data: nats and bits, exact under the model; shown are the options for a run on a text.

    `chainrule score RUN --help` shows those for RUN.

    A model trained on a stream scores every symbol given all that stands before it in the file; a model trained on
    lines scores each line on its own, its end included. Either way the lines add up to the file. A piece of a word that
    spans line ends counts for the line in which it begins, and a line in which none begins has no row.

    Args:
        run: The run directory.
        file: The text, - for standard input.
        per: One row for each line, each element or the whole file; line where --sort or --top is given, else file.
        sort: Most surprising first.
        top: Only so many rows, the most surprising ones.
        by: What is sorted by: bits, the surprise of the average element, or nats, that of the whole row, by which long
            lines come first however ordinary they are.
        json: Print one JSON object a row.
        device: Where to compute: auto, cpu or cuda.
    """
    from chainrule.cli.text.scoring import read_pieces, read_stream, score_lines, score_stream
    from chainrule.runs.text import TextRun
    from chainrule.training.parallel import choose_device

    if top is not None and top < 1:
        raise ValueError(f"--top: expected a whole number >= 1, got {top}")
    sort = sort or top is not None
    if sort and per == "file":
        raise ValueError("--per file: there is one row, nothing to sort: use --per line or --per element")
    per = per or ("line" if sort else "file")
    opened = TextRun.open(run)
    vocabulary, model = opened.vocabulary, opened.model(choose_device(device))
    strict = opened.data.level != "byte"
    if opened.data.reading == "lines":
        scored = score_lines(model, vocabulary, read_pieces(file, strict=strict))
    else:
        scored = score_stream(model, vocabulary, read_stream(file, strict=strict))
    total = Row(None, None)
    rows = total.adding(_rows(scored, vocabulary, per))
    if sort:
        rows = _sorted(rows, by, top)
    _print_json(rows, per, total) if json else _print_table(rows, per, total)


@dataclass
class Row:
    """The surprise of a line, an element or a file."""

    line: int | None
    text: str | None
    nats: float = 0.0
    elements: int = 0
    unknown: int = 0
    characters: int = 0
    bytes: int = 0

    def add(self, nats: float, elements: int, unknown: int, text: tuple[int, int]) -> None:
        """Add the surprise of more elements, and the characters and bytes of their text."""
        self.nats += nats
        self.elements += elements
        self.unknown += unknown
        self.characters += text[0]
        self.bytes += text[1]

    def adding(self, rows: "Iterable[Row]") -> "Iterator[Row]":
        """Pass rows on and add them up here."""
        for row in rows:
            self.add(row.nats, row.elements, row.unknown, (row.characters, row.bytes))
            yield row

    def figures(self) -> dict[str, Any]:
        """All that is reported, units made in one place."""
        from chainrule.training import units

        return {
            "nats": self.nats,
            "elements": self.elements,
            "bits_per_element": units.bits(units.per_element(self.nats, self.elements)),
            "perplexity": units.perplexity(self.nats, self.elements),
            "unknown": self.unknown,
        }

    def text_figures(self) -> dict[str, Any]:
        """Those that compare between levels; only where the row knows the text it was read from."""
        from chainrule.cli.text.text_figures import text_figures

        counts = {"elements": self.elements, "unknown": self.unknown}
        return text_figures(self.nats, counts | {"characters": self.characters, "bytes": self.bytes})


def _rows(scored: "Iterable[Scored]", vocabulary: "Vocabulary", per: Per) -> Iterator[Row]:
    if per == "element":
        for piece in scored:
            size = _size(piece.text)  # counted with the first element of its piece
            for symbol, nats in zip(piece.ids.tolist(), piece.nats.tolist(), strict=True):
                yield Row(piece.line, vocabulary.token(symbol), nats, 1, int(symbol == vocabulary.unknown), *size)
                size = 0, 0
        return
    for line, pieces in groupby(scored, key=lambda piece: piece.line):
        row = Row(line, "")
        for piece in pieces:
            unknown = 0 if vocabulary.unknown is None else int((piece.ids == vocabulary.unknown).sum())
            row.add(float(piece.nats.sum()), len(piece.ids), unknown, _size(piece.text))
            if per == "line":
                row.text = f"{row.text}{piece.text}".removesuffix("\n")
        if row.elements:
            yield row


def _size(text: str) -> tuple[int, int]:
    """Characters and bytes of a text; what is no UTF-8 counts as the bytes that it was."""
    if text.isascii():
        return len(text), len(text)
    try:
        return len(text), len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return len(text), len(text.encode("utf-8", "surrogatepass"))


def _sorted(rows: Iterator[Row], by: str, top: int | None) -> Iterator[Row]:
    def surprise(row: Row) -> float:
        return row.nats if by == "nats" else row.nats / row.elements

    if top is None:
        return iter(sorted(rows, key=surprise, reverse=True))
    return iter(heapq.nlargest(top, rows, key=surprise))


def _print_json(rows: Iterator[Row], per: Per, total: Row) -> None:
    for row in rows:
        if per != "file":
            text = (row.text or "").encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            per_text = row.text_figures() if per == "line" else {}
            print(dump_json({"line": row.line, **row.figures(), **per_text, "text": text}))
    _refuse_empty(total)
    if per == "file":
        print(dump_json(total.figures() | total.text_figures()))


def _print_table(rows: Iterator[Row], per: Per, total: Row) -> None:
    from chainrule.cli.text.text_figures import describe

    width = max(20, shutil.get_terminal_size((120, 24)).columns - 42) if sys.stdout.isatty() else 1 << 20
    heading = f"{'line':>8} {'nats':>10} {'bits/elem':>9} {'unknown':>7}  text\n"  # once there is a row to show
    for row in rows:
        if per != "file":
            sys.stdout.write(heading)
            heading = ""
            bits = row.figures()["bits_per_element"]
            print(f"{row.line:>8} {row.nats:>10.2f} {bits:>9.3f} {row.unknown:>7}  {_shown(row.text or '', width)}")
    _refuse_empty(total)
    figures = total.figures()
    print(
        f"{figures['elements']} elements, {figures['nats']:.2f} nats, "
        f"{figures['bits_per_element']:.4f} bits per element, perplexity {figures['perplexity']:.4f}, "
        f"{figures['unknown']} unknown"
    )
    print(describe(total.text_figures()))


def _refuse_empty(total: Row) -> None:
    if not total.elements:
        raise ValueError("the text to score is empty: expected at least one symbol")


def _shown(text: str, width: int) -> str:
    """Text that a terminal shows as one line, the end cut."""
    text = one_line(text)
    return text if len(text) <= width else text[: width - 1] + "…"
