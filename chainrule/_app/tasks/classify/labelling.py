"""Texts read by a trained classifier: a label and its probability, or the features that it is predicted from."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from chainrule._app.results import Column, Result
from chainrule._app.tasks.classify.answers import label_cells, label_columns
from chainrule._app.tasks.config import CheckedOptions, within
from chainrule._app.tasks.display import counted
from chainrule._blocks import in_blocks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from chainrule._app.tasks.classify.task import ClassifyTask
    from chainrule.data._labelled import LabelledText
    from chainrule.models import SequenceClassifier

_BLOCK = 64  # texts read together
_PICTURED, _DRAWN = 500, 20  # texts of a page, of an image


@dataclass(frozen=True)
class TextColumn(CheckedOptions):
    """Which column of a file holds the texts."""

    text_column: str | None = None
    """Name, or number from 1, of the column of texts; found by itself where it can be."""


@dataclass(frozen=True)
class Labelling(TextColumn):
    """Label texts: for each the number of its line, its label, the probability of the label, and the text.

    Args:
        file: A text a line, or a file in columns as that of training; - is standard input. Empty texts are answered
            with the shares of the labels in training.
        json: Print a JSON object for each text, with the probabilities of all labels, the words and their weights.
        plot: A page (.html) or image (.png) in which the words are shaded by how much they counted.
    """

    top: Annotated[int, Parameter(name=["--top", "-n"])] = within(1, 1, 1 << 30)
    """How many of the likeliest labels of each text to give."""


@dataclass(frozen=True)
class LabelledEmbedding(TextColumn):
    """Embed texts: for each the number of its line, and the pooled features that its label is predicted from.

    Args:
        data: A text a line, or a file in columns as that of training; - is standard input.
    """


def label_texts(run: "ClassifyTask", data: list[str], options: Labelling, *, device: str) -> Result:
    """Label the texts of a file."""
    names, pictured, counts = run.labels.names, list[LabelledAnswer](), Counter[str]()
    rows = run.file(data[0], text_column=options.text_column, labelled=False)

    def labelled() -> Iterator[Sequence[Any]]:
        for answer in answers(run, run.model(device), rows):
            counts.update(texts=1, empty=not answer.tokens, cut=answer.cut > 0)
            if len(pictured) < _PICTURED:
                pictured.append(answer)
            cells = label_cells(names, answer.log_probs, options.top)
            yield answer.row.line, *cells, answer.row.text, answer.tokens, answer.attention, answer.cut
        if not counts["texts"]:
            raise ValueError(f"{data[0]}: expected at least one text, got none")

    def notes() -> Iterator[str]:
        if counts["empty"]:
            yield f"{counted(counts['empty'], 'empty text')}: answered with the shares of the labels in training"
        if counts["cut"]:
            limit = f"{run.data.max_length:,} (--max-length)"
            yield f"{counted(counts['cut'], 'text')} read up to element {limit}, the rest is left out"

    def page() -> str:
        from chainrule._app.tasks.classify.attention_page import attention_page

        return str(attention_page(_attended(run, pictured), names, f"{run.path}: texts of {data[0]}"))

    def figure() -> "Figure":
        from chainrule._app.tasks.classify.attention_page import attention_figure

        return attention_figure(_attended(run, pictured)[:_DRAWN], names)

    hidden = [Column(name, shown=False) for name in ("tokens", "attention", "cut")]
    columns = [Column("line"), *label_columns(options.top, len(names)), Column("text"), *hidden]
    return Result(columns, labelled(), notes=notes, main="label", plots={".html": page, ".png": figure})


def _attended(run: "ClassifyTask", read: "list[LabelledAnswer]") -> "list[LabelledAnswer]":
    if any(answer.attention is None for answer in read):
        pooling = run.config.options.pooling
        raise ValueError(f"--plot: the model pools by {pooling}: train one with --pooling attention")
    return read


@dataclass(frozen=True)
class LabelledAnswer:
    """The answer of a classifier to one text."""

    row: "LabelledText"
    log_probs: tuple[float, ...]  # of each label, nats
    tokens: list[str]
    attention: list[float] | None  # how much each of them counted, where the model has attention
    cut: int  # elements at the end that were not read

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
            log_probs = model(context).logits.cpu().double().tolist()
            attention = None if model.attention is None else model.attend(context).tolist()
        for place, row in enumerate(block):
            tokens = run.symbols.tokens(row.text)
            read = min(len(tokens), limit)
            weights = None if attention is None else attention[place][:read]
            yield LabelledAnswer(row, tuple(log_probs[place]), tokens[:read], weights, len(tokens) - read)


def embed_texts(run: "ClassifyTask", file: str, options: LabelledEmbedding, *, device: str) -> Result:
    """The code of each text."""
    import torch

    model = run.model(device)

    def rows() -> Iterator[Sequence[Any]]:
        for block, context in _contexts(run, model, run.file(file, text_column=options.text_column, labelled=False)):
            with torch.no_grad():
                features = model.features(context).float().cpu().numpy()
            yield from ((str(row.line), row.label or None, z) for row, z in zip(block, features, strict=True))

    return Result([Column("input"), Column("label"), Column("code", heading="z")], rows(), main="code", form="csv")


def _contexts(
    run: "ClassifyTask", model: "SequenceClassifier", rows: "Iterable[LabelledText]"
) -> "Iterator[tuple[list[LabelledText], Any]]":
    """Texts in blocks, and each block as the model reads it."""
    import numpy as np

    from chainrule._modes import device_of
    from chainrule.data._labelled import EncodedTexts
    from chainrule.state import map_state

    device = device_of(model)
    for block in in_blocks(rows, _BLOCK):
        texts = EncodedTexts.of((row.text for row in block), run.symbols)
        context = texts.context(np.arange(len(block)), run.data.max_length)
        yield block, map_state(lambda leaf: leaf.to(device), context)
