"""A file of sentences in columns, a word a line: CoNLL-U, and the older forms of words with tags."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from chainrule.option_error import UserError, option
from chainrule_app.readers.delimited import DelimitedFile
from chainrule_app.readers.origin import ByteSource, DataSource, Origin, digest_of
from chainrule_app.readers.tagged.spans import TaggedWords

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_DOCUMENT = "-DOCSTART-"
_MOST_LINES = 1 << 23  # held in memory; a small compressed file may hold far more
_BLANKS = " \t\r"  # between columns; other white space, such as a no-break space, belongs to a word


@dataclass(frozen=True)
class Sentence:
    """The words of a sentence and their lines."""

    words: tuple[str, ...]  # none where the sentence is empty
    tags: tuple[str, ...]  # a tag for each word; empty if the file has no tags
    lines: tuple[int, ...]  # the number of each word's line, from 1
    line: int  # the number of the first word's line, or of the blank line of an empty sentence
    text: str = ""  # that the words were found in, if there was one
    offsets: tuple[tuple[int, int], ...] = ()  # where in it each word begins and ends


TEXT_HINT = f"pass {option('text')} if each line is a sentence"


class ConllFile:
    """The sentences of a file in columns, its other lines kept, so that it can be written out with other tags.

    CoNLL-U has ten columns separated by tabs; lines of several words (id 3-4), empty words (id 3.1) and comments are
    no words. Any other file has a word first in each line and its tag last, or words alone, separated by tabs, or by
    blanks where no line has a tab; comments may come before the words of a sentence, see `comments_of`. Blank lines end
    sentences; where there is nothing to end, a blank line is an empty sentence. A line of -DOCSTART- and the blank line
    after it separate documents and are no sentence. A file without words and blank lines is one empty sentence.
    """

    def __init__(
        self,
        origin: Origin,  # of the lines, for errors
        lines: Sequence[str],
        column: str | None = None,  # of the tags: a name of CoNLL-U (upos, ...) or a header, or a number from 1
        *,
        word_column: int = 1,  # which column has the words, a number from 1; not of CoNLL-U
        tagged: bool = True,  # whether every word must have a tag
        max_length: int | None = None,  # words of the longest sentence that is taken; None takes all
        documents: bool = True,  # whether -DOCSTART- separates documents; otherwise it is a word
    ):
        self.name, self.origin, self._lines, self._documents = str(origin), origin, lines, documents
        self.conllu = is_conllu(lines)
        self.separator, self.width = columns_of(lines, documents=documents)
        first = next((number for number, line in enumerate(lines, 1) if line.strip()), 0)
        cells = [cell.strip(_BLANKS) for cell in cells_of(lines[first - 1], self.separator)] if first else []
        named = column is not None and not column.isdigit() and not self.conllu and column in cells
        self._header, self._names = (first, cells) if named else (0, [])
        self._word = self._place_of_words(word_column)
        self._tag = self._place_of_tags(column, tagged)
        self._comments = comments_of(lines, self.separator, self.width, self._tag) if documents else set()
        self._has_tags = tagged
        self._max_length = max_length
        self.sentences = list(self._read())  # in the order of the file

    @property
    def column(self) -> str:
        """The column of the tags, as `column` names it."""
        names = CONLLU if self.conllu else self._names
        return names[self._tag] if names else str(self._tag + 1)

    def with_tags(self, number: int, tags: Sequence[str]) -> str:
        """Return the lines of a sentence with other tags, after the lines before it; all together are the file."""
        (start, stop), lines = self._extents[number], self.sentences[number].lines
        written = list(self._lines[start:stop])
        for line, tag in zip(lines, tags, strict=True):
            written[line - 1 - start] = self._with_tag(self._lines[line - 1], tag)
        return "\n".join(written)

    @cached_property
    def _extents(self) -> list[tuple[int, int]]:
        """The lines from the end of the sentence before each to its own end."""
        extents: list[tuple[int, int]] = []
        start, count = 0, len(self._lines)
        for number, sentence in enumerate(self.sentences, 1):
            stop = sentence.lines[-1] if sentence.lines else start + 1
            while stop < count and (number == len(self.sentences) or self._lines[stop - 1].strip()):
                stop += 1
            extents.append((start, stop))
            start = stop
        return extents

    def _with_tag(self, line: str, tag: str) -> str:
        """Return a line with another tag, everything else as it was."""
        if self.separator is not None:
            cells = line.split(self.separator)
            return self.separator.join([*cells[: self._tag], tag, *cells[self._tag + 1 :]])
        spans = [match.span() for match in re.finditer("[^ \t]+", line)]
        if self._tag == len(spans):
            return line.rstrip(_BLANKS) + ("\t" if len(spans) == 1 else " ") + tag
        start, stop = spans[self._tag]
        return line[:start] + tag + line[stop:]

    def _place_of_tags(self, column: str | None, tagged: bool) -> int:
        if not self.width:
            return 1  # nothing but blank lines
        if self.conllu:
            name = column or "upos"
            if name.isdigit() and 3 <= int(name) <= len(CONLLU):
                return int(name) - 1
            if name not in CONLLU[2:]:
                raise ValueError(f"{self.name}: column: expected one of {', '.join(CONLLU[2:])}, got {name!r}")
            return CONLLU.index(name)
        alone = self.width == 1
        if alone and tagged:
            first = next(number for number, line in enumerate(self._lines, 1) if line.strip())
            raise ValueError(f"{self.origin.at(first)}: expected a word and its tag, got one column")
        if column is None or alone:
            return 1 if alone else self.width - 1 - (self._word == self.width - 1)
        if self._header:
            column = str(self._names.index(column) + 1)
        first = 2 if self._word == 0 else 1
        if not column.isdigit() or not first <= int(column) <= self.width + (not tagged):
            what = "no CoNLL-U, " if column in CONLLU else ""
            raise ValueError(
                f"{self.name}: column: expected a number from {first} to {self.width} ({what}the file has {self.width} "
                f"columns, words in column {self._word + 1}) or a name in its first row, got {column!r}"
            )
        if int(column) == self._word + 1:
            raise ValueError(f"{self.name}: column {column} holds the words: name the column of the tags")
        return int(column) - 1

    def _place_of_words(self, column: int) -> int:
        if self.conllu or self.width <= 1:
            return 1 if self.conllu else 0
        if column > self.width:
            raise ValueError(f"{self.name}: word_column: expected a number from 1 to {self.width}, got {column}")
        return column - 1

    def _read(self) -> Iterator[Sentence]:
        words: list[str] = []
        tags: list[str] = []
        lines: list[int] = []
        ended = False  # a sentence
        separated = False  # the last line that is not blank begins a document
        for number, line in enumerate(self._lines, 1):
            if self._documents and _is_separator(line) and not words:
                separated = True
                continue
            if separated and not line.strip():
                separated = False
                continue
            separated = False
            if not line.strip():
                yield Sentence(tuple(words), tuple(tags), tuple(lines), lines[0] if lines else number)
                words, tags, lines, ended = [], [], [], True
                continue
            if number in self._comments or number == self._header:
                continue
            cells = cells_of(line, self.separator)
            if len(cells) != self.width:
                raise UserError(
                    f"{self.origin.at(number)}: expected {self.width} columns as in the file's first row, got "
                    f"{len(cells)}: {line!r:.80}",
                    "" if self._has_tags or self.separator else TEXT_HINT,
                )
            if self.conllu and not cells[0].isdigit():
                if not _is_id(cells[0]):
                    raise ValueError(f"{self.origin.at(number)}: expected the number of a word first, got {line!r:.80}")
                continue
            words.append(self._cell(cells, self._word, "word", number))
            if self._has_tags:
                tags.append(self._cell(cells, self._tag, "tag", number))
            lines.append(number)
            if self._max_length is not None and len(words) > self._max_length:
                raise UserError(
                    f"{self.origin.at(lines[0])}: a sentence of more than {self._max_length} words begins here",
                    f"put blank lines between sentences, or raise {option('max_length')}",
                )
        if words or (self._lines and not ended):
            yield Sentence(tuple(words), tuple(tags), tuple(lines), lines[0] if lines else len(self._lines))

    def _cell(self, cells: list[str], index: int, what: str, number: int) -> str:
        cell = cells[index].strip(_BLANKS)
        if not cell.strip() or (what == "tag" and cell == "_"):
            raise ValueError(f"{self.origin.at(number)}: expected a {what} in column {index + 1}, got {cells[index]!r}")
        return cell


class HeldSentences(DataSource):
    """Sentences in memory: words, each with a tag or none of them, read as `ConllFile` reads those of a file."""

    conllu, column = False, "2"

    def __init__(self, origin: Origin, numbered: Iterable[tuple[int, TaggedWords]]):
        self.origin, self.name = origin, str(origin)
        self.sentences, widened = [], 0
        for index, own in numbered:
            lines = (index,) * len(own.words)
            self.sentences.append(
                Sentence(tuple(own.words), tuple(own.tags), lines, index, own.text, tuple(own.offsets))
            )
            widened += own.widened
        if widened:
            print(
                f"{origin}: {widened:,} spans that begin or end within a word are read as whole words", file=sys.stderr
            )
        with_words = [sentence for sentence in self.sentences if sentence.words]
        self.has_tags = bool(with_words) and bool(with_words[0].tags)
        for sentence in with_words:
            if bool(sentence.tags) != self.has_tags:
                expected, got = ("pairs of a word and a tag", "words") if self.has_tags else ("words", "pairs")
                raise ValueError(
                    f"{origin.at(sentence.line)}: expected {expected} as in the sentences before, got {got}"
                )

    @property
    def width(self) -> int:
        """Columns of a file of them."""
        return 1 + self.has_tags

    def checked(self, *, tagged: bool, max_length: int | None) -> "HeldSentences":
        """Return the sentences; raise ValueError for one that is too long or, if tags are wanted, has none."""
        for sentence in self.sentences:
            if tagged and sentence.words and not sentence.tags:
                raise ValueError(f"{self.origin.at(sentence.line)}: expected words with tags, got only words")
            if max_length is not None and len(sentence.words) > max_length:
                raise UserError(
                    f"{self.origin.at(sentence.line)}: a sentence of more than {max_length} words",
                    f"divide it, or raise {option('max_length')}",
                )
        return self

    def with_tags(self, number: int, tags: Sequence[str]) -> str:
        """Return a sentence with other tags, as lines of a word and its tag."""
        words = self.sentences[number].words
        return "".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True))

    def fingerprint(self) -> dict[str, Any]:
        rows = (text for own in self.sentences for text in (*own.words, "", *own.tags, ""))
        texts = (text.encode("utf-8", "surrogatepass") for text in rows)
        return digest_of(self.origin, (part for text in texts for part in (b"%d:" % len(text), text)))


def read_conll(
    path: str | Path | ByteSource | HeldSentences,
    column: str | None = None,
    *,
    word_column: int = 1,
    max_length: int | None = None,
) -> ConllFile | HeldSentences:
    """Read tagged sentences of a file, see `DelimitedFile`, or in memory; other arguments as `ConllFile`'s."""
    if isinstance(path, HeldSentences):
        return path.checked(tagged=True, max_length=max_length)
    return ConllFile(*read_lines_of(path), column, word_column=word_column, max_length=max_length)


def read_lines_of(path: str | Path | ByteSource) -> tuple[Origin, list[str]]:
    """Return the origin and the lines of a file as `read_conll` reads it, without their ends."""
    file, lines = DelimitedFile(path), list[str]()
    with closing(file.lines()) as numbered:
        for number, line in numbered:
            if number > _MOST_LINES:
                raise ValueError(f"{file.name}: expected at most {_MOST_LINES:,} lines, got more: split the file")
            lines.append(line)
    return file.origin, lines


def columns_of(lines: Sequence[str], *, documents: bool = True) -> tuple[str | None, int]:
    r"""Return the column separator, a tab or None for blanks, and the number of columns, 0 without rows.

    >>> columns_of(["", "Hi\tINTJ"]), columns_of(["Time flies ."])
    (('\t', 2), (None, 3))
    """
    rows = [line for line in lines if line.strip() and not (documents and _is_separator(line))]
    rows = [line for line in rows if not line.startswith("#")] or rows
    separator = "\t" if any("\t" in line for line in rows) else None
    return separator, len(cells_of(rows[0], separator)) if rows else 0


def cells_of(line: str, separator: str | None) -> list[str]:
    """Return the cells of a line; where the separator is None, between blanks and tabs, and no other white space.

    >>> cells_of("10\u00a0000  NUM", None)
    ['10\\xa0000', 'NUM']
    """
    if separator is not None:
        return line.split(separator)
    return [cell for cell in line.replace("\t", " ").split(" ") if cell]


def comments_of(lines: Sequence[str], separator: str | None, width: int, tag: int) -> set[int]:
    """Return the numbers of the lines that are comments.

    In CoNLL-U these are all that begin with `#`. In other columns they come before the words of a sentence and are no
    rows: they have more or fewer cells, or begin with `#` and a blank where tabs separate cells; or where blanks do,
    they have for a tag what no other row has.

    >>> sorted(comments_of(["# id 3 x=y", "# _ _ O", "2 _ _ NUM", "", "Oh _ _ O"], None, 4, 3))
    [1]
    """
    if is_conllu(lines):
        return {number for number, line in enumerate(lines, 1) if line.startswith("#")}
    if not any(line.startswith("#") for line in lines):
        return set()
    heads: list[int] = []
    begins = True
    for number, line in enumerate(lines, 1):
        begins = not line.strip() or (begins and line.startswith("#"))
        if begins and line.strip():
            heads.append(number)
    candidates = set(heads)
    others = [cells_of(line, separator) for number, line in enumerate(lines, 1) if number not in candidates]
    tags = {cells[tag] for cells in others if len(cells) == width > tag}
    by_tabs = separator is not None

    def is_row(line: str) -> bool:
        cells = cells_of(line, separator)
        if len(cells) != width or cells[0].startswith("# "):
            return False
        return by_tabs or width <= tag or cells[tag] in tags

    return {number for number in heads if not is_row(lines[number - 1])}


def is_conllu(lines: Sequence[str]) -> bool:
    r"""Return whether the first line that is no comment is a row of CoNLL-U: ten columns, the number of a word first.

    >>> is_conllu(["# newdoc", "1\tHi\thi\tINTJ\tUH\t_\t0\troot\t_\t_"]), is_conllu(["Hi\tINTJ"])
    (True, False)
    """
    cells = next((line for line in lines if line.strip() and not line.startswith("#")), "").split("\t")
    return len(cells) == len(CONLLU) and _is_id(cells[0])


def _is_separator(line: str) -> bool:
    return line.startswith(_DOCUMENT) and cells_of(line, None)[0] == _DOCUMENT


def _is_id(cell: str) -> bool:
    """Return whether a cell can be the id of a CoNLL-U line: 3, 3-4, 3.1."""
    return all(part.isdigit() for part in cell.replace("-", ".").split(".", 1))
