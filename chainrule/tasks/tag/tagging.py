"""Sentences with a tag for every word."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from chainrule.tasks.abilities import Answer, Record

if TYPE_CHECKING:
    from chainrule.data.tagged import ConllFile
    from chainrule.tasks.tag.task import TagTask


@dataclass(frozen=True)
class Tagging:
    """Tag sentences: the file comes back with the tags in their column, everything else as it was.

    Args:
        file: Sentences in columns as those of training, with tags or without, or a word a line; .gz too; - is standard
            input. Empty sentences come back empty.
        json: Print a JSON object for each sentence: words, tags, the probability of each, the log-probability of all.
    """

    text: Annotated[bool, Parameter(negative=())] = False
    """Each line of FILE is a sentence, its words separated by blanks."""
    n_best: int | None = None
    """With --json: the so many most probable tag sequences of each sentence, with their log-probabilities."""


def tag_file(run: "TagTask", file: str, options: Tagging, *, out: Path | None, device: str, json: bool) -> Answer:
    """Tag a file."""
    from chainrule.tasks.tag.reading import sentences_of

    n = options.n_best
    if n is not None and n < 1:
        raise ValueError(f"--n-best: expected a whole number >= 1, got {n}")
    if n is not None and not json:
        raise ValueError("--n-best: columns hold one tag a word: say --json too")
    sentences = sentences_of(run, file, tagged=False, text=options.text)

    def closing() -> Iterable[str]:
        if out is not None:
            words = sum(len(sentence.words) for sentence in sentences.sentences)
            yield f"{words:,} words of {len(sentences.sentences):,} sentences in {out}"

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
