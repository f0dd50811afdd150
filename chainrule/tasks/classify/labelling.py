"""A label and its probability for every text."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from chainrule.tasks.abilities import Answer, Record

if TYPE_CHECKING:
    from chainrule.tasks.classify.answers import LabelledAnswer
    from chainrule.tasks.classify.task import ClassifyTask

_IMAGED = {".html": 500, ".png": 20}  # texts of a page or image


@dataclass(frozen=True)
class Labelling:
    """Label texts: a line for each with its label, the probability of that, and the text, tabs between them.

    Args:
        file: A text a line, or a file in columns as that of training; - is standard input. Empty texts are answered
            with the shares of the labels in training.
        json: Print a JSON object for each text, with the probabilities of all labels, the words and their weights.
    """

    text_column: str | None = None
    """Name, or number from 1, of the column of texts; found by itself where it can be."""
    top: Annotated[int, Parameter(name=["--top", "-n"])] = 1
    """The so many likeliest labels of each text."""
    attention: Path | None = None
    """A page (.html) or image (.png) to write, in which the words are shaded by how much they counted."""


def label_texts(run: "ClassifyTask", file: str, options: Labelling, *, device: str) -> Answer:
    """Label the texts of a file."""
    top, attention = options.top, options.attention
    if top < 1:
        raise ValueError(f"--top: expected a whole number >= 1, got {top}")
    if attention is not None and attention.suffix not in _IMAGED:
        raise ValueError(f"--attention: expected a file name that ends in .html or .png, got {attention}")
    pooling = run.config.options.pooling
    if attention is not None and "attention" not in pooling.split("+"):
        raise ValueError(f"--attention: the model pools by {pooling}: train one with --pooling attention")
    return Answer(_records(run, file, options, device))


def _records(run: "ClassifyTask", file: str, options: Labelling, device: str) -> Iterator[Record]:
    from chainrule.tasks.classify.answers import answers

    attention, names = options.attention, run.labels.names
    rows = run.file(file, text_column=options.text_column, labelled=False)
    shown: list[LabelledAnswer] = []
    count = empty = cut = 0
    for answer in answers(run, run.model(device), rows):
        count, empty, cut = count + 1, empty + (not answer.tokens), cut + (answer.cut > 0)
        if attention is not None and len(shown) < _IMAGED[attention.suffix]:
            shown.append(answer)
        line = "\t".join([*_likeliest(answer, names, options.top), " ".join(answer.row.text.split())])
        yield Record(_values(answer, names), line)
    if not count:
        raise ValueError(f"{file}: expected at least one text, got none")
    if empty:
        print(f"{empty:,} empty texts: answered with the shares of the labels in training", file=sys.stderr)
    if cut:
        print(f"{cut:,} texts were read up to their element {run.data.max_length:,} (--max-length)", file=sys.stderr)
    if attention is not None:
        from chainrule.tasks.classify.attention_page import write_image, write_page

        (write_page if attention.suffix == ".html" else write_image)(attention, shown, names)
        left = f" (the first {len(shown)} of {count:,} texts)" if len(shown) < count else ""
        print(f"attention in {attention}{left}", file=sys.stderr)


def _likeliest(answer: "LabelledAnswer", names: tuple[str, ...], top: int) -> Iterator[str]:
    order = sorted(range(len(names)), key=lambda label: -answer.log_probs[label])
    for label in order[:top]:
        yield names[label]
        yield f"{exp(answer.log_probs[label]):.4f}"


def _values(answer: "LabelledAnswer", names: tuple[str, ...]) -> dict[str, Any]:
    values: dict[str, Any] = {
        "line": answer.row.line,
        "label": names[answer.best],
        "probability": exp(answer.log_probs[answer.best]),
        "probabilities": {name: exp(value) for name, value in zip(names, answer.log_probs, strict=True)},
        "text": answer.row.text,
        "tokens": answer.tokens,
        "empty": not answer.tokens,
        "cut": answer.cut,
    }
    return values if answer.attention is None else values | {"attention": answer.attention}
