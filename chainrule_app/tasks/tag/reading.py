"""The sentences that a run tags or evaluates, as it reads them from a file or from memory."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from chainrule.option_error import UserError, option
from chainrule_app.readers.tagged.conll_file import (
    TEXT_HINT,
    ConllFile,
    HeldSentences,
    cells_of,
    columns_of,
    is_conllu,
    read_lines_of,
)
from chainrule_app.readers.tagged.spans import words_between_blanks, words_of_text

if TYPE_CHECKING:
    from chainrule_app.readers.origin import Origin
    from chainrule_app.tasks.tag.task import TagTask


def sentences_of(
    run: "TagTask", file: Any, *, tagged: bool, column: str | None = None, text: bool = False
) -> "ConllFile | HeldSentences":
    """Read tagged sentences, words alone, or with `text` one sentence per line; "-" is standard input."""
    if isinstance(file, HeldSentences):
        return file.checked(tagged=tagged, max_length=run.data.max_length)
    origin, lines = read_lines_of(file)
    if text:
        return _from_text(origin, lines, run)
    facts = run.facts
    if column is None and is_conllu(lines) == facts.conllu:
        column = facts.column
    separator, width = columns_of(lines)
    widths = {0, 1, 2} if facts.conllu else {0, 1, facts.width - 1, facts.width}
    tabs_of_another_form = separator is not None and (facts.conllu or is_conllu(lines))
    if not (tagged or tabs_of_another_form) and width not in widths:
        expected = "words alone or with a tag" if facts.conllu else f"{facts.width} columns, as in training"
        hint = TEXT_HINT if separator is None else "tags would be written over one of them; cut the others off"
        raise UserError(f"{origin}: expected {expected}, got {width} columns", hint)
    return ConllFile(
        origin, lines, column, word_column=run.data.word_column, tagged=tagged, max_length=run.data.max_length
    )


def _from_text(origin: "Origin", lines: list[str], run: "TagTask") -> "ConllFile | HeldSentences":
    max_length = run.data.max_length
    if run.data.spans:
        held = HeldSentences(origin, enumerate(map(words_of_text, lines), 1))
        return held.checked(tagged=False, max_length=max_length)
    rows: list[str] = []
    for number, line in enumerate(lines, 1):
        words = [word for word in cells_of(line, None) if word.strip()]
        if len(words) > max_length:
            raise UserError(
                f"{origin.at(number)}: expected at most {max_length} words, got {len(words)}",
                f"put a sentence on each line, or train with a greater {option('max_length')}",
            )
        rows += [*words, ""]
    file = ConllFile(origin, rows, tagged=False, documents=False)
    texts = zip(file.sentences, lines, map(words_between_blanks, lines), strict=True)
    file.sentences = [
        replace(sentence, line=number, text=line, offsets=tuple(own.offsets))
        for number, (sentence, line, own) in enumerate(texts, 1)
    ]
    return file
