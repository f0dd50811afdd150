"""Surprise of a text to a trained model: a row a line, an element or the whole file."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias, TypeGuard

from chainrule.option_error import OptionError, option
from chainrule.ranges import Range
from chainrule_app.batchwise import Answered
from chainrule_app.heavy import np
from chainrule_app.pages.result_figures import surprise_figure
from chainrule_app.printing import progress_bars
from chainrule_app.readers.origin import read_chunks
from chainrule_app.readers.text import name_of, open_bytes
from chainrule_app.results import Column, Form, Result
from chainrule_app.tasks.config import CheckedOptions, Switch
from chainrule_app.tasks.likelihood_record import Basis
from chainrule_app.tasks.tally import Tally
from chainrule_app.tasks.training_data import NOTE

if TYPE_CHECKING:
    from chainrule import AutoregressiveModel
    from chainrule.data import Vocabulary
    from chainrule_app.readers.origin import ByteSource
    from chainrule_app.readers.store import Ids
    from chainrule_app.tasks.text import scoring
    from chainrule_app.tasks.text.scoring import Scored
    from chainrule_app.tasks.text.surprise import Numbers, Reader
    from chainrule_app.tasks.text.task import TextTask

    Texts: TypeAlias = str | ByteSource | list[str]
    """A file that is read once, or texts in memory."""


Per = Literal["line", "element", "file"]
By = Literal["spot", "excess", "bits", "nats"]
_ROWS = 1 << 12  # whose figures and spots are computed together
_PIECES = 64  # of a file, read together
_OF_ONE_ROW = ("line", "index", "excess", "text")
_BEGINNING = 1 << 14  # symbols of the training text, and bytes of another, whose line ends are compared
_NATS, _BITS, _EXCESS = Column("nats", 2), Column("bits_per_element", 3, heading="bits/elem"), Column("excess", 2)
_HIDDEN = (
    Column("bits_per_character", shown=False), Column("bits_per_byte", shown=False),
    Column("unknown_share", shown=False),
)  # fmt: skip
_FIGURES = (
    Column("line"), _NATS, _BITS, _EXCESS, Column("unknown"),
    Column("elements", shown=False), Column("perplexity", shown=False),
)  # fmt: skip
_SPOT = Column("spot", 1)
_OF_SPOTS = (_SPOT, Column("why", parse=str))
_OF_LINES, _OF_ELEMENTS = (*_FIGURES, *_HIDDEN), _FIGURES
_OF_TEXTS = (
    Column("text"), Column("elements"), _NATS, _BITS, Column("perplexity", 2), _EXCESS, Column("unknown"), *_HIDDEN,
)  # fmt: skip


@dataclass(frozen=True)
class TextScoring(CheckedOptions):
    """Score a text: nats and bits, exact under the model.

    A model trained on a stream scores every symbol given all earlier symbols of the file; a model trained on lines
    scores each line independently, including its end. Either way the nats of the lines add up to the file's. A piece of
    a word that spans line ends counts for the line in which it begins, and a line in which none begins has no row.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "The text, - for standard input.",
    }

    per: Per | None = None
    """Print one row per line or element, or only the figures of the file; by default line for sorted rows and tables,
    else file."""
    by: By | None = None
    """Sort by spot (bits by which the most surprising stretch exceeds its expectation, the default), by excess (nats
    above the held-out average, divided by the root of the length; the default with --adapt), by bits (average per
    element, which favours very short lines), or by nats (sum of the row, which favours long lines)."""
    mask: Switch = False
    """Ignore the surprise inside numbers, addresses, times and identifiers, and print a star for each (lines)."""
    adapt: Switch = False
    """Dynamic evaluation: train a copy of the model while it reads. Each part is scored before it is learnt, so the
    figures are a valid likelihood. The run does not change."""
    adapt_rate: Annotated[float, Range(0.0, 1e6)] | None = None
    """Step of each weight after each part, in units of its typical gradient; with --adapt."""


def score_text(run: "TextTask", data: "Texts", options: TextScoring, *, device: str) -> Result:
    """Score a file, or in-memory texts independently."""
    rate = options.adapt_rate
    if rate is not None and not options.adapt:
        raise OptionError("adapt_rate", f"requires {option('adapt')}")
    by = options.by or ("excess" if options.adapt else "spot")
    if by == "spot" and options.adapt:
        raise OptionError("by", f"spot requires fixed weights, which {option('adapt')} changes", "leave one out")
    if options.mask and (by != "spot" or options.per not in (None, "line")):
        raise OptionError("mask", f"requires {option('per', 'line')} and {option('by', 'spot')}")
    scorer = _Scorer(run, data, options, by, run.model(device), expected_nats(run))
    # By default lines, with the figures of the file.
    whole = options.per is None and not isinstance(data, list)
    return scorer.result(options.per or "line", "figures" if whole else "table")


@dataclass(frozen=True)
class _Scorer:
    """Scorer with an exact likelihood, by line, element or file."""

    run: "TextTask"
    data: "Texts"
    options: TextScoring
    by: By
    model: "AutoregressiveModel"
    expected: float  # held-out nats per element

    @cached_property
    def trained_on(self) -> bool:
        """Tell if the data are the text of the training."""
        from chainrule_app.tasks.text.spots import is_training_text

        return is_training_text(self.run, self.data)

    def result(self, per: Per, form: Form = "table") -> Result:
        from chainrule_app.tasks.text import scoring

        in_memory, vocabulary = isinstance(self.data, list), self.run.vocabulary
        columns: Sequence[Column] = {"line": _OF_LINES, "element": _OF_ELEMENTS, "file": ()}[per]
        if in_memory and per == "line":
            columns = _OF_TEXTS
        elif in_memory and per == "element":
            columns = (Column("index"), *_OF_ELEMENTS[1:])
        if columns and self.by == "spot":
            columns = (*columns, *(_OF_SPOTS if per == "line" else [_SPOT]))
        if columns and columns[0].name != "text":
            columns = (*columns, Column("text"))
        total = Row()
        batchwise = self.run.data.reading == "lines" and not (in_memory or self.options.adapt)

        def cells(own: list[Row]) -> list[Sequence[Any]]:
            if not columns:
                return []
            from chainrule_app.tasks.text.figures import figures_of_rows

            values = figures_of_rows(own, self.expected)
            if isinstance(self.data, list) and per == "line":
                values["text"] = [self.data[row.line - 1] for row in own]
            if self.by == "spot":
                values |= self._spots(own, per)
            if self.options.mask:
                from chainrule_app.readers.corpus import template_of

                values["text"] = list(map(template_of, values["text"]))
            return list(zip(*(values[column.name] for column in columns), strict=True))

        def answer(reader: "Reader", pool: "scoring.Pool") -> Answered:
            scored = scoring.score_pool(reader, vocabulary, pool)
            own = list(_rows(scored, vocabulary, per, keep_empty=False))
            return cells(own), ([row.sums for row in own],)

        def rows() -> Iterator[Sequence[Any]]:
            reader = self._reader(per)
            with self._bar(shown=not columns) as advance:

                def add(sums: list[tuple[Any, ...]]) -> None:
                    for figures in sums:
                        total.read(*figures)
                    advance(sum(lines for *_, lines in sums))

                if batchwise:
                    assert not isinstance(self.data, list)
                    with closing(scoring.read_pieces(self.data, strict=self.run.data.level != "byte")) as pieces:
                        pools = scoring.line_pools(vocabulary, scoring.whole_lines(pieces))
                        yield from self.run.answered(pools, partial(answer, reader), add)
                    return
                scored = _rows(self._scored(reader), vocabulary, per, keep_empty=in_memory)
                while own := list(islice(scored, 1 if self.options.adapt else _ROWS)):
                    add([row.sums for row in own])
                    yield from cells(own)

        return total.scored(
            columns,
            rows(),
            self.run.basis,
            self.data,
            summary=total.summary,
            notes=self._notes,
            rank=BY[self.by] if columns else "",
            form=form,
            hints={"batchwise": batchwise} | ({"rows": _count_lines(self.data)} if per == "line" else {}),
            views={name: partial(self.result, name) for name in ("line", "element", "file")},
            figure=surprise_figure if per == "element" else lambda _: surprise_figure(self.result("element")),
        )

    def _notes(self) -> Iterator[str]:
        if not isinstance(self.data, list):
            yield from _line_end_notes(self.run, self.data)
        if self.trained_on:
            counts = "; for the spots, counts of n-grams leave the scored line out" if self.by == "spot" else ""
            yield f"{NOTE.format(kind='text')}{counts}"

    def _spots(self, rows: "list[Row]", per: Per) -> dict[str, Sequence[Any]]:
        """Return the most surprising stretch of each row in bits, and the reason."""
        from chainrule.training import bits
        from chainrule_app.tasks.text.spots import fields_in, joined, reason_of, spots_of, without_fields

        if per == "element":
            return {"spot": [bits(float(row.excess[0][0])) for row in rows]}
        there, vocabulary = [row for row in rows if row.excess], self.run.vocabulary
        ids, excess = ([joined(getattr(row, name)) for row in there] for name in ("ids", "excess"))
        if self.options.mask:
            texts = (row.text for row in there)
            fields = map(partial(fields_in, vocabulary), ids, texts)
            excess = list(map(without_fields, excess, fields))
        in_lines = self.run.data.reading == "lines"
        found = (
            (spot.bits, reason_of(spot, own, row.text, vocabulary, self.model, in_lines=in_lines))
            for spot, own, row in zip(spots_of(excess), ids, there, strict=True)
        )
        spots, reasons = zip(*(next(found) if row.excess else (None, "") for row in rows), strict=True)
        return {"spot": spots, "why": reasons}

    def _scored(self, reader: "Reader") -> "Iterator[Scored]":
        from chainrule.training import DynamicEvaluator
        from chainrule_app.tasks.text import scoring

        run, rate = self.run, self.options.adapt_rate
        rates: dict[str, Any] = {} if rate is None else {"rate": rate}
        evaluator = DynamicEvaluator(self.model, **rates) if self.options.adapt else None
        vocabulary, strict, in_lines = run.vocabulary, run.data.level != "byte", run.data.reading == "lines"
        score_lines = partial(scoring.score_lines, reader, vocabulary)
        if isinstance(self.data, list):
            texts = enumerate(self.data, 1)
            lines = ((number, line) for number, text in texts for line in scoring.ended_lines(text))
            yield from score_lines(lines if in_lines else texts, evaluator)
        elif in_lines:
            with closing(scoring.read_pieces(self.data, strict=strict)) as pieces:
                yield from score_lines(scoring.whole_lines(pieces), evaluator)
        else:
            with closing(scoring.read_stream(self.data, strict=strict)) as chunks:
                yield from scoring.score_stream(reader, vocabulary, chunks, evaluator)

    @contextmanager
    def _bar(self, *, shown: bool) -> Iterator[Callable[[int], None]]:
        """Show the progress over rows of which only the sum is of interest."""
        if not shown:
            yield lambda _: None
            return
        with progress_bars() as begin:
            yield begin(_count_lines(self.data), "lines")

    def _reader(self, per: Per) -> "Reader":
        from chainrule_app.tasks.text.spots import expectation
        from chainrule_app.tasks.text.surprise import Reader

        apart = self.by == "spot" and per != "file"
        return Reader(self.model, expectation(self.model, trained_on=self.trained_on) if apart else None)


@dataclass
class Row(Tally):
    """Surprise of a line, an element, or all of the text."""

    line: int = 0
    lines: int = 1
    text: str = ""
    unknown: int = 0
    characters: int = 0
    ids: "list[Ids]" = field(default_factory=list)  # of a line, with the excess of each symbol where that was asked for
    excess: "list[Numbers]" = field(default_factory=list)

    def read(self, nats: float, elements: int, unknown: int, text: tuple[int, int], lines: int = 1) -> None:
        self.add(nats, elements, lines)
        self.unknown += unknown
        self.characters += text[0]
        self.bytes += text[1]

    @property
    def sums(self) -> tuple[Any, ...]:
        """The arguments of `read` that add this row."""
        return self.nats, self.elements, self.unknown, (self.characters, self.bytes), self.lines

    def summary(self) -> dict[str, Any]:
        """Return nats, bits and perplexity, and figures that compare between levels."""
        from chainrule_app.tasks.text.figures import figures_of_rows

        return {name: column[0] for name, column in figures_of_rows([self]).items() if name not in _OF_ONE_ROW}

    def scored(
        self, columns: Sequence[Column], rows: Iterable[Sequence[Any]], basis: Basis, data: Any, **others: Any
    ) -> Result:
        """Build the result of scoring a file, or texts in memory; `rows` call `read`."""
        empty = (
            f"{'data' if isinstance(data, list) else data}: expected at least one symbol to score, got an empty text"
        )
        return self.result(columns, rows, basis=basis, unit="line", empty=empty, main="", **others)


BY: dict[By, str] = {"spot": "spot", "excess": "excess", "bits": "bits_per_element", "nats": "nats"}


def _count_lines(data: "Texts") -> int | None:
    """Count the lines of a plain file where a progress bar shows them."""
    if not _is_file(data) or not sys.stderr.isatty():
        return None
    with open_bytes(data) as file:
        return sum(part.count(b"\n") for part in read_chunks(file))


def _is_file(data: "Texts") -> "TypeGuard[str]":
    return isinstance(data, str) and Path(data).is_file()


def _line_end_notes(run: "TextTask", file: "str | ByteSource") -> Iterator[str]:
    """Report if lines end differently from the training text; for words, a line end is ordinary white space."""
    if run.data.level == "word" or (isinstance(file, str) and not _is_file(file)):
        return
    try:
        trained = run.corpus().train
    except (FileNotFoundError, ValueError):
        return
    with open_bytes(file) as content:
        own = content.read(_BEGINNING)
    beginning = run.vocabulary.decode(trained.slice(0, min(len(trained), _BEGINNING)))
    kinds = ("CR LF" if b"\r\n" in own else "LF", "CR LF" if "\r\n" in beginning else "LF")
    if b"\n" in own and "\n" in beginning and kinds[0] != kinds[1]:
        yield (
            f"{name_of(file)}: lines end in {kinds[0]}, but in {kinds[1]} in the training text: every line end is "
            "surprising; convert the file for figures of its text alone"
        )


def expected_nats(run: "TextTask") -> float:
    """Return held-out nats per element at the best validation; 0 if none is recorded."""
    return min((record["nats_per_element"] for record in run.metrics("validation")), default=0.0)


def _rows(scored: "Iterable[Scored]", vocabulary: "Vocabulary", per: Per, *, keep_empty: bool) -> Iterator[Row]:
    if per == "element":
        for piece in scored:
            size = size_of_text(piece.text)  # counted with the first element of its piece
            for place, (symbol, nats) in enumerate(zip(piece.ids.tolist(), piece.nats.tolist(), strict=True)):
                row = Row(line=piece.line, text=vocabulary.token(symbol))
                row.excess += [] if piece.excess is None else [piece.excess[place : place + 1]]
                row.read(nats, 1, int(symbol == vocabulary.unknown), size)
                yield row
                size = 0, 0
        return
    if per == "file":
        every = iter(scored)
        while pieces := list(islice(every, _PIECES)):
            ids, nats = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("ids", "nats"))
            row = Row(line=pieces[0].line, lines=len(pieces))
            text = "".join([piece.text for piece in pieces])
            row.read(float(nats.sum()), len(ids), _count(ids, vocabulary.unknown), size_of_text(text))
            yield row
        return
    for line, own in groupby(scored, key=lambda piece: piece.line):
        row, texts = Row(line=line), list[str]()
        for piece in own:
            unknown = _count(piece.ids, vocabulary.unknown)
            row.read(float(piece.nats.sum()), len(piece.ids), unknown, size_of_text(piece.text))
            texts.append(piece.text)
            if piece.excess is not None:
                row.ids.append(piece.ids)
                row.excess.append(piece.excess)
        row.text = "".join(texts).removesuffix("\n")
        if row.elements or keep_empty:
            yield row


def _count(ids: "Ids", symbol: int | None) -> int:
    return 0 if symbol is None else int(np.count_nonzero(ids == symbol))


def size_of_text(text: str) -> tuple[int, int]:
    """Count characters and bytes; invalid UTF-8 counts as its original bytes."""
    if text.isascii():
        return len(text), len(text)
    try:
        return len(text), len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return len(text), len(text.encode("utf-8", "surrogatepass"))
