"""Sentences read by a trained tagger: a tag for every word, or the features that the tags are predicted from."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from chainrule.tasks.abilities import Answer, Code, Record
from chainrule.tasks.config import CheckedOptions, within
from chainrule.tasks.display import Switch, counted

if TYPE_CHECKING:
    from chainrule.data.tagged import ConllFile
    from chainrule.tasks.tag.task import TagTask


@dataclass(frozen=True)
class Tagging(CheckedOptions):
    r"""Tag sentences: the file comes back with the tags in their column, everything else as it was.

    Lines are written with \n at their ends, and without a byte order mark.

    Args:
        file: Sentences in columns as those of training, with tags or without, or a word a line; .gz too; - is standard
            input. Empty sentences come back empty.
        json: Print a JSON object for each sentence: words, tags, the probability of each, the log-probability of all.
    """

    text: Switch = False
    """Each line of FILE is a sentence, its words separated by blanks."""
    n_best: int | None = within(None, 1, 1 << 12)
    """With --json: the so many most probable tag sequences of each sentence, with their log-probabilities."""


def tag_file(run: "TagTask", data: list[str], options: Tagging, *, out: Path | None, device: str, json: bool) -> Answer:
    """Tag a file."""
    n = options.n_best
    if n is not None and not json:
        raise ValueError("--n-best: columns hold one tag a word: say --json too")
    sentences = sentences_of(run, data[0], tagged=False, text=options.text)

    def closing() -> Iterable[str]:
        if out is not None:
            words = sum(len(sentence.words) for sentence in sentences.sentences)
            yield f"{counted(words, 'word')} of {counted(len(sentences.sentences), 'sentence')} in {out}"

    return Answer(_records(run, sentences, n, device) if json else _lines(run, sentences, device), closing=closing)


def _lines(run: "TagTask", file: "ConllFile", device: str) -> Iterator[Record]:
    from chainrule.data.tagged import number_sentences, tagged_evaluation
    from chainrule.tasks.tag.validation_metric import predicted_tags

    model, vocabulary = run.model(device), run.vocabulary
    numbers = number_sentences(file.sentences, vocabulary)
    for line in file.with_tags(predicted_tags(model, tagged_evaluation(numbers), vocabulary)):
        yield Record({}, line)


def _records(run: "TagTask", file: "ConllFile", n: int | None, device: str) -> Iterator[Record]:
    import torch

    from chainrule.data.tagged import number_sentences, tagged_evaluation
    from chainrule.state import map_state

    model, tags = run.model(device), run.vocabulary.tags
    chosen = next(model.parameters()).device
    sentences = iter(file.sentences)
    for batch in tagged_evaluation(number_sentences(file.sentences, run.vocabulary)):
        assert batch.lengths is not None
        with torch.no_grad():
            found = model(map_state(lambda part: part.to(chosen), batch.context), batch.lengths.to(chosen))
            paths, log_probs = found.n_best(n or 1)
            shares = found.marginals.gather(2, paths[:, 0].clamp_min(0).unsqueeze(2)).squeeze(2)
        for row, length in enumerate(batch.lengths.tolist()):
            alternatives = [
                {"tags": [tags[tag] for tag in path[:length]], "log_prob": log_prob}
                for path, log_prob in zip(paths[row].tolist(), log_probs[row].tolist(), strict=True)
                if log_prob > -torch.inf
            ]
            sentence = next(sentences)
            values = {
                "line": sentence.line,
                "words": list(sentence.words),
                "tags": alternatives[0]["tags"],
                "probabilities": shares[row, :length].tolist(),
                "log_prob": alternatives[0]["log_prob"],
            }
            yield Record(values if n is None else values | {"n_best": alternatives})


@dataclass(frozen=True)
class TagEmbedding:
    """Embed sentences: for each the number of its line, and the mean of the features that its tags are predicted from.

    Args:
        data: Sentences in columns as those of training, with tags or without, or a word a line; .gz too; - is standard
            input.
    """

    text: Switch = False
    """Each line of DATA is a sentence, its words separated by blanks."""


def embed_sentences(run: "TagTask", file: str, options: TagEmbedding, *, device: str) -> Iterator[Code]:
    """The code of each sentence."""
    import torch

    from chainrule.data.tagged import number_sentences, tagged_evaluation
    from chainrule.layers.pooling import mean_pooling
    from chainrule.state import map_state

    model = run.model(device)
    place = next(model.parameters()).device
    found = sentences_of(run, file, tagged=False, text=options.text)
    sentences = iter(found.sentences)
    for batch in tagged_evaluation(number_sentences(found.sentences, run.vocabulary)):
        assert batch.lengths is not None
        lengths = batch.lengths.to(place)
        with torch.no_grad():
            h = model.features(map_state(lambda part: part.to(place), batch.context), lengths)
        for numbers in mean_pooling(h, lengths).float().cpu().tolist():
            yield Code(str(next(sentences).line), numbers)


def sentences_of(
    run: "TagTask", file: str, *, tagged: bool, column: str | None = None, text: bool = False
) -> "ConllFile":
    """Read a file, or standard input for "-".

    Args:
        tagged: whether every word must have its tag.
        column: of the tags; that of training if not given, or where the form of the file is another, upos or the last.
        text: each line is a sentence, its words separated by blanks.

    Raises:
        FileNotFoundError, ValueError: as `chainrule.data.tagged.read_conll`.
    """
    from chainrule.data.tagged.conll_file import TEXT_HINT, ConllFile, columns_of, is_conllu, read_lines_of
    from chainrule.data.text import name_of

    name = name_of(file)
    lines = read_lines_of(file)
    if text:
        return _from_text(name, lines, run.data.max_length)
    facts = run.facts
    if column is None and is_conllu(lines) == facts.conllu:
        column = facts.column
    separator, width = columns_of(lines)
    known = {0, 1, 2} if facts.conllu else {0, 1, facts.width - 1, facts.width}
    tabs_of_another_form = separator is not None and (facts.conllu or is_conllu(lines))
    if not (tagged or tabs_of_another_form) and width not in known:
        expected = "words alone or with a tag" if facts.conllu else f"{facts.width} columns, as in training"
        hint = TEXT_HINT if separator is None else "tags would be written over one of them; cut the others off"
        raise ValueError(f"{name}: expected {expected}, got {width} columns: {hint}")
    return ConllFile(name, lines, column, tagged=tagged, max_length=run.data.max_length)


def _from_text(name: str, lines: list[str], max_length: int) -> "ConllFile":
    from chainrule.data.tagged.conll_file import ConllFile

    rows: list[str] = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if len(words) > max_length:
            raise ValueError(
                f"{name} line {number}: expected at most {max_length} words, got {len(words)}: put a sentence on each "
                "line, or train with a greater --max-length"
            )
        rows += [*words, ""]
    file = ConllFile(name, rows, tagged=False, documents=False)
    file.sentences = [replace(sentence, line=number) for number, sentence in enumerate(file.sentences, 1)]
    return file
