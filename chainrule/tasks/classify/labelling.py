"""Texts read by a trained classifier: a label and its probability, or the features that it is predicted from."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from chainrule.blocks import in_blocks
from chainrule.tasks.abilities import Answer, Code, Record
from chainrule.tasks.config import CheckedOptions, within
from chainrule.tasks.display import counted

if TYPE_CHECKING:
    from chainrule.data.labelled import LabelledText
    from chainrule.models import SequenceClassifier
    from chainrule.tasks.classify.task import ClassifyTask

_BLOCK = 64  # texts read together
_IMAGED = {".html": 500, ".png": 20}  # texts of a page or image


@dataclass(frozen=True)
class TextColumn(CheckedOptions):
    """Which column of a file holds the texts."""

    text_column: str | None = None
    """Name, or number from 1, of the column of texts; found by itself where it can be."""


@dataclass(frozen=True)
class Labelling(TextColumn):
    """Label texts: a line for each with its label, the probability of that, and the text, tabs between them.

    Args:
        file: A text a line, or a file in columns as that of training; - is standard input. Empty texts are answered
            with the shares of the labels in training.
        json: Print a JSON object for each text, with the probabilities of all labels, the words and their weights.
    """

    top: Annotated[int, Parameter(name=["--top", "-n"])] = within(1, 1, 1 << 30)
    """How many of the likeliest labels of each text to give."""
    attention: Path | None = None
    """A page (.html) or image (.png) to write, in which the words are shaded by how much they counted."""


@dataclass(frozen=True)
class LabelledEmbedding(TextColumn):
    """Embed texts: for each the number of its line, and the pooled features that its label is predicted from.

    Args:
        data: A text a line, or a file in columns as that of training; - is standard input.
    """


def label_texts(
    run: "ClassifyTask", data: list[str], options: Labelling, *, out: Path | None, device: str, json: bool
) -> Answer:
    """Label the texts of a file."""
    attention = options.attention
    if attention is not None and attention.suffix not in _IMAGED:
        raise ValueError(f"--attention: expected a file name that ends in .html or .png, got {attention}")
    pooling = run.config.options.pooling
    if attention is not None and "attention" not in pooling.split("+"):
        raise ValueError(f"--attention: the model pools by {pooling}: train one with --pooling attention")
    return Answer(_records(run, data[0], options, device))


def _records(run: "ClassifyTask", file: str, options: Labelling, device: str) -> Iterator[Record]:
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
        print(
            f"{empty:,} empty text{'s' * (empty != 1)}: answered with the shares of the labels in training",
            file=sys.stderr,
        )
    if cut:
        print(f"{counted(cut, 'text')} cut after element {run.data.max_length:,} (--max-length)", file=sys.stderr)
    if attention is not None:
        from chainrule.tasks.classify.attention_page import write_image, write_page

        if attention.suffix == ".html":
            write_page(attention, shown, names, f"{run.path}: texts of {file}")
        else:
            write_image(attention, shown, names)
        left = f" (the first {len(shown)} of {counted(count, 'text')})" if len(shown) < count else ""
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


@dataclass(frozen=True)
class LabelledAnswer:
    """The answer of a classifier to one text.

    Attributes:
        row: the text, with its line.
        log_probs: of each label, nats.
        tokens: the elements that were read.
        attention: how much each of them counted, where the model has attention.
        cut: elements at the end that were not read.
    """

    row: "LabelledText"
    log_probs: tuple[float, ...]
    tokens: list[str]
    attention: list[float] | None
    cut: int

    @property
    def best(self) -> int:
        """The number of the likeliest label."""
        return max(range(len(self.log_probs)), key=self.log_probs.__getitem__)


def answers(
    run: "ClassifyTask", model: "SequenceClassifier", rows: "Iterable[LabelledText]"
) -> Iterator[LabelledAnswer]:
    """The answers to texts, in order, in bounded memory; an empty text is answered with the prior."""
    import torch

    limit = run.data.max_length
    for block, context in _contexts(run, model, rows):
        with torch.no_grad():
            log_probs = model(context).logits.double().tolist()
            attention = None if model.attention is None else model.attend(context).tolist()
        for place, row in enumerate(block):
            tokens = run.symbols.tokens(row.text)
            read = min(len(tokens), limit)
            weights = None if attention is None else attention[place][:read]
            yield LabelledAnswer(row, tuple(log_probs[place]), tokens[:read], weights, len(tokens) - read)


def embed_texts(run: "ClassifyTask", file: str, options: LabelledEmbedding, *, device: str) -> Iterator[Code]:
    """The code of each text."""
    import torch

    model = run.model(device)
    for block, context in _contexts(run, model, run.file(file, text_column=options.text_column, labelled=False)):
        with torch.no_grad():
            features = model.features(context).float().cpu().tolist()
        for row, numbers in zip(block, features, strict=True):
            yield Code(str(row.line), numbers, row.label or None)


def _contexts(
    run: "ClassifyTask", model: "SequenceClassifier", rows: "Iterable[LabelledText]"
) -> "Iterator[tuple[list[LabelledText], Any]]":
    """Texts in blocks, and each block as the model reads it."""
    import numpy as np

    from chainrule.data.labelled import EncodedTexts
    from chainrule.state import map_state

    device = next(model.parameters()).device
    for block in in_blocks(rows, _BLOCK):
        texts = EncodedTexts.of((row.text for row in block), run.symbols)
        context = texts.context(np.arange(len(block)), run.data.max_length)
        yield block, map_state(lambda leaf: leaf.to(device), context)
