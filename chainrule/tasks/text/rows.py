"""Surprise of a text to a trained model: a row a line, an element or the whole file."""

import math
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from chainrule.data.text import name_of
from chainrule.printing import one_line
from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.codes import MOST_SAMPLES, refuse_samples
from chainrule.tasks.config import CheckedOptions, within
from chainrule.tasks.display import Switch
from chainrule.tasks.ledger import LedgerEntry

if TYPE_CHECKING:
    from chainrule.data.vocabulary import Vocabulary
    from chainrule.tasks.text.scoring import Scored
    from chainrule.tasks.text.task import TextTask


Per = Literal["line", "element", "file"]
_BEGINNING = 1 << 14  # symbols of the training text whose line ends are looked at
By = Literal["excess", "bits", "nats"]
_HEADING = f"{'line':>8} {'nats':>10} {'bits/elem':>9} {'unknown':>7}  text"


@dataclass(frozen=True)
class TextScoring(CheckedOptions):
    """Score a text: nats and bits, exact under the model.

    A model trained on a stream scores every symbol given everything before it in the file; a model trained on lines
    scores each line on its own, its end included. Either way the lines add up to the file. A piece of a word that
    spans line ends counts for the line in which it begins, and a line in which none begins has no row. For a model
    with a code the nats are an upper bound, shown with the standard error of the draws, and with the ELBO.

    Args:
        data: The text, - for standard input.
        json: Print one JSON object a row.
        top: Print only this many rows, the most surprising ones.
    """

    per: Per | None = None
    """One row for each line, each element or the whole file; line where --sort or --top is given, else file."""
    by: By = "excess"
    """Sort by excess: nats above those of as many elements of the held-out text, divided by the root of their number;
    by bits, the surprise of the average element, which puts very short lines first; or by nats, that of the whole row,
    which puts long lines first."""
    adapt: Switch = False
    """Dynamic evaluation: a copy of the model is trained while it reads. Each part is scored before it is learnt, so
    that the figures are a valid likelihood. The run is not changed."""
    adapt_rate: float | None = within(None, 0.0, 1e6)
    """Step of each weight after each part, in units of its usual gradient; with --adapt."""
    samples: int | None = within(None, 1, MOST_SAMPLES)
    """K, codes drawn for the bound of a sentence-vae, twice; 100 if not given. More bring it nearer."""


def score_text(run: "TextTask", file: str, options: TextScoring, *, ranked: bool, device: str) -> Answer:
    """Score a file."""
    if run.has_code:
        from chainrule.tasks.text.codes import score_by_bounds

        return score_by_bounds(run, file, options, ranked=ranked, device=device)
    refuse_samples(options.samples, run.config.model)
    from chainrule.tasks.text.scoring import adapt_to_lines, read_pieces, read_stream, score_lines, score_stream
    from chainrule.training.dynamic_evaluation import RATE, DynamicEvaluator

    if ranked and options.per == "file":
        raise ValueError("--per file: there is one row, nothing to sort: use --per line or --per element")
    rate = options.adapt_rate
    if rate is not None and not options.adapt:
        raise ValueError(f"--adapt-rate {rate:g}: there is nothing to learn without --adapt: add it or leave this out")
    per = options.per or ("line" if ranked else "file")
    vocabulary, model = run.vocabulary, run.model(device)
    strict = run.data.level != "byte"
    evaluator = DynamicEvaluator(model, rate=RATE if rate is None else rate) if options.adapt else None
    if run.data.reading == "stream":
        chunks = read_stream(file, strict=strict)
        close = chunks.close
        scored = score_stream(model, vocabulary, _telling(run, file, chunks, lambda text: text), evaluator)
    else:
        lines = read_pieces(file, strict=strict)
        close = lines.close
        pieces = _telling(run, file, lines, lambda piece: piece[1])
        if evaluator is None:
            scored = score_lines(model, vocabulary, pieces)
        else:
            scored = adapt_to_lines(evaluator, vocabulary, pieces)
    total, expected = Row(None, None), expected_nats(run) if ranked else 0.0
    width = max(20, shutil.get_terminal_size((120, 24)).columns - 42) if sys.stdout.isatty() else 1 << 20

    def records() -> Iterator[Record]:
        try:
            for row in _rows(scored, vocabulary, per):
                total.add(row.nats, row.elements, row.unknown, (row.characters, row.bytes))
                if per != "file":
                    yield row.record(per, options.by, expected, width)
        finally:
            close()
        if not total.elements:
            raise ValueError(f"{file}: expected at least one symbol to score, got an empty text")
        if per == "file":
            yield Record(total.figures() | total.text_figures())

    def closing() -> Iterable[str]:
        figures = total.figures()
        yield (
            f"{figures['elements']} elements, {figures['nats']:.2f} nats, "
            f"{figures['bits_per_element']:.4f} bits per element, perplexity {figures['perplexity']:.4f}, "
            f"{figures['unknown']} unknown"
        )
        from chainrule.training.evaluate import describe_figures

        yield describe_figures(total.text_figures())

    def entry() -> LedgerEntry:
        return LedgerEntry(run.basis, total.nats, total.elements, "", bytes=total.bytes)

    return Answer(records(), "" if per == "file" else _HEADING, closing, entry)


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

    def figures(self) -> dict[str, Any]:
        """All that is reported, units made in one place."""
        from chainrule.training.evaluate import Evaluation

        total = Evaluation(self.nats, self.elements)
        return {
            "nats": self.nats,
            "elements": self.elements,
            "bits_per_element": total.bits_per_element,
            "perplexity": total.perplexity,
            "unknown": self.unknown,
        }

    def text_figures(self) -> dict[str, Any]:
        """Figures that compare between levels; only where the row knows the text it was read from."""
        counts = {"elements": self.elements, "unknown": self.unknown}
        from chainrule.training.evaluate import text_figures

        return text_figures(self.nats, counts | {"characters": self.characters, "bytes": self.bytes})

    def record(self, per: Per, by: By, expected: float, width: int) -> Record:
        """The row as it is printed, its text cut to `width`."""
        figures = self.figures()
        text = (self.text or "").encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        line = (
            f"{self.line:>8} {self.nats:>10.2f} {figures['bits_per_element']:>9.3f} {self.unknown:>7}  "
            f"{_shown(self.text or '', width)}"
        )
        values = {"line": self.line, **figures, **(self.text_figures() if per == "line" else {}), "text": text}
        return Record(values, line, surprise(self.nats, self.elements, by, expected))


Piece = TypeVar("Piece")


def _telling(run: "TextTask", file: str, pieces: Iterable[Piece], text_of: Callable[[Piece], str]) -> Iterator[Piece]:
    """Pass the pieces of a file on; say so if its lines end in another way than those of the training text."""
    own: bool | None = None
    for piece in pieces:
        text = text_of(piece)
        if own is None and "\n" in text:
            own = "\r\n" in text
            trained = _trained_on_crlf(run)
            if trained is not None and own != trained:
                names = ("LF", "CR LF")
                print(
                    f"{name_of(file)}: lines end in {names[own]}, those of the training text in {names[trained]}: "
                    "every line end is a surprise; convert the file for figures of its text alone",
                    file=sys.stderr,
                )
        yield piece


def _trained_on_crlf(run: "TextTask") -> bool | None:
    """Whether lines of the training text end in a carriage return too; None where that cannot be told."""
    from chainrule.tasks.text.preparing import corpus_of

    if run.data.level == "word":
        return None  # carriage returns are white space between words
    try:
        text = corpus_of(run).train
    except (FileNotFoundError, ValueError):
        return None
    beginning = run.vocabulary.decode(text.slice(0, min(len(text), _BEGINNING)))
    return "\r\n" in beginning if "\n" in beginning else None


def expected_nats(run: "TextTask") -> float:
    """Nats per element of the held-out text at the run's best validation; 0 where none is recorded."""
    from chainrule.tasks.run_directory import METRICS
    from chainrule.training.metrics import read_metrics

    path = run.path / METRICS
    records = read_metrics(path) if path.is_file() else ()
    return min((record["nats_per_element"] for record in records if record["event"] == "validation"), default=0.0)


def surprise(nats: float, elements: int, by: By, expected: float) -> float:
    """What rows are sorted by.

    The standard deviation of a sum grows with the square root of the number of its terms: divided by it, the excess of
    a short line and that of a long one compare.

    >>> surprise(12.0, 4, "excess", 1.0), surprise(12.0, 4, "bits", 1.0), surprise(12.0, 4, "nats", 1.0)
    (4.0, 3.0, 12.0)
    """
    if by == "excess":
        return (nats - elements * expected) / math.sqrt(elements)
    return nats if by == "nats" else nats / elements


def _rows(scored: "Iterable[Scored]", vocabulary: "Vocabulary", per: Per) -> Iterator[Row]:
    if per == "element":
        for piece in scored:
            size = size_of_text(piece.text)  # counted with the first element of its piece
            for symbol, nats in zip(piece.ids.tolist(), piece.nats.tolist(), strict=True):
                yield Row(piece.line, vocabulary.token(symbol), nats, 1, int(symbol == vocabulary.unknown), *size)
                size = 0, 0
        return
    for line, pieces in groupby(scored, key=lambda piece: piece.line):
        row = Row(line, "")
        for piece in pieces:
            unknown = 0 if vocabulary.unknown is None else int((piece.ids == vocabulary.unknown).sum())
            row.add(float(piece.nats.sum()), len(piece.ids), unknown, size_of_text(piece.text))
            if per == "line":
                row.text = f"{row.text}{piece.text}".removesuffix("\n")
        if row.elements:
            yield row


def size_of_text(text: str) -> tuple[int, int]:
    """Characters and bytes of a text; what is no UTF-8 counts as the bytes that it was."""
    if text.isascii():
        return len(text), len(text)
    try:
        return len(text), len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return len(text), len(text.encode("utf-8", "surrogatepass"))


def _shown(text: str, width: int) -> str:
    """Text that a terminal shows as one line, the end cut."""
    text = one_line(text)
    return text if len(text) <= width else text[: width - 1] + "…"
