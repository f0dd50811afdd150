"""Sentences as a run of a tagger reads them."""

from dataclasses import replace
from typing import TYPE_CHECKING

from chainrule.data.delimited import STDIN
from chainrule.data.tagged.conll_file import ConllFile, is_conllu, read_lines_of

if TYPE_CHECKING:
    from chainrule.runs.tag import TagRun


def sentences_of(run: "TagRun", file: str, *, tagged: bool, column: str | None = None, text: bool = False) -> ConllFile:
    """Read a file, or standard input for "-".

    Args:
        tagged: whether every word must have its tag.
        column: of the tags; that of training if not given, or where the form of the file is another, upos or the last.
        text: each line is a sentence, its words separated by blanks.

    Raises:
        FileNotFoundError, ValueError: as `chainrule.data.tagged.read_conll`.
    """
    name = "standard input" if file == STDIN else file
    lines = read_lines_of(file)
    if text:
        return _from_text(name, lines, run.data.max_length)
    facts = run.config.facts
    if column is None and is_conllu(lines) == facts["conllu"]:
        column = facts["column"]
    return ConllFile(name, lines, column, tagged=tagged, max_length=run.data.max_length)


def _from_text(name: str, lines: list[str], max_length: int) -> ConllFile:
    rows: list[str] = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if len(words) > max_length:
            raise ValueError(
                f"{name} line {number}: expected at most {max_length} words, got {len(words)}: put a sentence on each "
                "line, or train with a greater --max-length"
            )
        rows += [*words, ""]
    file = ConllFile(name, rows, tagged=False)
    file.sentences = [replace(sentence, line=number) for number, sentence in enumerate(file.sentences, 1)]
    return file
