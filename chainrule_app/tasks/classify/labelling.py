"""Label and embed texts with a trained classifier, evaluate it in training and after it, and look inside it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from math import exp, log, prod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from cyclopts import Parameter

from chainrule.option_error import OptionError
from chainrule.ranges import Range
from chainrule_app import frames
from chainrule_app.batchwise import Answered, nothing
from chainrule_app.blocks import in_blocks
from chainrule_app.heavy import modes, np, torch
from chainrule_app.pages.result_figures import confusion_figure, labels_figure, plane_figure
from chainrule_app.printing import counted, spelled
from chainrule_app.readers import labelled as label_reader
from chainrule_app.readers.origin import origin_of
from chainrule_app.results import Column, Report, Result
from chainrule_app.tasks.classify.labels import (
    ROWS,
    TextColumn,
    figure_notes,
    label_cells,
    label_columns,
    label_figures,
    label_log_probs,
    label_scores,
    several_figures,
    surest_mistakes,
)
from chainrule_app.tasks.config import CheckedOptions
from chainrule_app.tasks.options import Errors, Top
from chainrule_app.tasks.run_directory import FRAME

if TYPE_CHECKING:
    from chainrule.data import Batch
    from chainrule.models import SequenceClassifier
    from chainrule_app.readers.labelled.labelled_file import LabelledText
    from chainrule_app.tasks.classify.task import ClassifyTask


_BLOCK = 64  # texts read together
_EVEN_CHANCE = 0.5


@dataclass(frozen=True)
class Labelling(TextColumn):
    """Label texts: print the line, the label, its probability and the text of each."""

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "file": (
            "One text per line, or a file with the columns of the training file; - is standard input. Empty texts "
            "get the label frequencies of training."
        ),
        "json": "Print one JSON object per text, with the probabilities of all labels, the words and their weights.",
    }

    top: Annotated[Top, Parameter(name=["--top", "-n"])] = 1
    """Number of most probable labels per text."""


@dataclass(frozen=True)
class LabelledEmbedding(TextColumn):
    """Embed texts: print the line of each, and the pooled features that predict its label."""

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "One text per line, or a file with the columns of the training file; - is standard input.",
    }


def label_texts(run: "ClassifyTask", data: list[str], options: Labelling, *, device: str) -> Result:
    names, counts, several = run.labels.names, Counter[str](), run.labels.several
    if several and options.top > 1:
        raise OptionError("top", f"expected 1, because this run gives a text several labels, got {options.top}")
    rows = run.file(data[0], text_column=options.text_column, labelled=False)

    def labelled() -> Iterator[Sequence[Any]]:
        model = run.model(device)

        def answer(block: "list[LabelledText]") -> Answered:
            own, cells = Counter[str](), list[Sequence[Any]]()
            for one in _answers_of(run, model, block):
                own.update(texts=1, empty=not one.tokens, cut=one.cut > 0)
                shown = _several_cells(run, one) if several else label_cells(names, one.log_probs, options.top)
                cells.append((one.row.line, *shown, one.row.text, one.tokens, one.attention, one.cut))
            return cells, (own,)

        yield from run.answered(in_blocks(rows, _BLOCK), answer, counts.update)
        if not counts["texts"]:
            raise ValueError(f"{data[0]}: expected at least one text, got none")

    def notes() -> Iterator[str]:
        if rows.columns.header and rows.columns.text_name is None:
            yield "the first line is read as a header, although its names are not those in training"
        if counts["empty"]:
            yield f"{counted(counts['empty'], 'empty text')}: predicted the label frequencies of training"
        if counts["cut"]:
            limit = f"{run.data.max_length:,} ({spelled('max_length')})"
            yield f"{counted(counts['cut'], 'text')} cut after element {limit}"

    hidden = [Column(name, shown=False) for name in ("tokens", "attention", "cut")]
    parse = None if several else frames.value_parser(run.path / FRAME, "label")
    labels = label_columns(options.top, len(names), parse)
    columns = [Column("line"), *labels, Column("text"), *hidden]
    return Result(columns, labelled(), notes=notes, main="label", hints={"batchwise": True}, figure=labels_figure)


def _several_cells(run: "ClassifyTask", one: "LabelledAnswer") -> list[Any]:
    """Return the most probable set of labels, its probability, and the probability of each label."""
    shares = dict(zip(run.labels.names, map(exp, one.log_probs), strict=True))
    chosen = [name for name, share in shares.items() if share > _EVEN_CHANCE]
    return [run.labels.joined(chosen), prod(max(share, 1 - share) for share in shares.values()), shares]


@dataclass(frozen=True)
class LabelledAnswer:
    row: "LabelledText"
    log_probs: tuple[float, ...]  # nats of each label
    tokens: list[str]
    attention: list[float] | None  # weight of each token, if the model has attention
    cut: int  # number of unread elements at the end

    @property
    def best(self) -> int:
        return max(range(len(self.log_probs)), key=self.log_probs.__getitem__)


def answers(
    run: "ClassifyTask", model: "SequenceClassifier", rows: "Iterable[LabelledText]"
) -> Iterator[LabelledAnswer]:
    """Classify texts in order, in bounded memory; an empty text gets the prior."""
    for block in in_blocks(rows, _BLOCK):
        yield from _answers_of(run, model, block)


def _answers_of(
    run: "ClassifyTask", model: "SequenceClassifier", block: "list[LabelledText]"
) -> Iterator[LabelledAnswer]:
    limit, context = run.data.max_length, _context(run, model, block)
    with torch.no_grad():
        log_probs = label_scores(model, context).cpu().double().tolist()
        attention = None if model.attention is None else model.attend(context).tolist()
    for index, row in enumerate(block):
        tokens = run.symbols.tokens(row.text)
        read = min(len(tokens), limit)
        weights = None if attention is None else attention[index][:read]
        yield LabelledAnswer(row, tuple(log_probs[index]), tokens[:read], weights, len(tokens) - read)


def embed_texts(run: "ClassifyTask", file: str, options: LabelledEmbedding, *, device: str) -> Result:
    model = run.model(device)

    def answer(block: "list[LabelledText]") -> Answered:
        with torch.no_grad():
            features = model.features(_context(run, model, block)).float().cpu().numpy()
        return [(str(row.line), row.label or None, z) for row, z in zip(block, features, strict=True)], ()

    def rows() -> Iterator[Sequence[Any]]:
        texts = run.file(file, text_column=options.text_column, labelled=False)
        yield from run.answered(in_blocks(texts, _BLOCK), answer, nothing)

    columns = [Column("input"), Column("label"), Column("code", heading="z")]
    return Result(columns, rows(), main="code", form="csv", hints={"batchwise": True}, figure=plane_figure)


def _context(run: "ClassifyTask", model: "SequenceClassifier", block: "list[LabelledText]") -> Any:
    """Return what the model reads of some texts."""
    from chainrule.state import map_state

    device = modes.device_of(model)
    texts = label_reader.EncodedTexts.of((row.text for row in block), run.symbols)
    return map_state(lambda leaf: leaf.to(device), texts.context(np.arange(len(block)), run.data.max_length))


@dataclass(frozen=True)
class LabelEvaluation(CheckedOptions):
    """Evaluate a classifier on labelled texts.

    Prints accuracy, F1 averaged over labels, nats per text, calibration error, the confusion matrix, and the most
    confident mistakes. Of texts with several labels the accuracy is the share with all labels right.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "Texts and labels, in a file like the training file.",
    }

    text_column: str | None = None
    """Column of the texts (name, or number from 1); as in training by default."""
    label_column: str | None = None
    """Column of the labels (name, or number from 1); as in training by default."""
    errors: Errors = 5
    """Number of mistakes to show."""


def evaluate_labels(run: "ClassifyTask", data: str | None, options: LabelEvaluation, *, device: str) -> Result:
    from chainrule.metrics import classification_scores

    if data is None:
        raise OptionError("data", "expected a file of texts and labels, got none")
    names, limit = run.labels.names, run.data.max_length
    rows = list(run.file(data, text_column=options.text_column, label_column=options.label_column))
    if not rows:
        raise ValueError(f"{data}: expected at least one row below the header, got none")
    part = label_reader.encoded_part(rows, run.symbols, run.labels, origin_of(data))
    log_probs = list[list[float]]()  # of each label, for each row

    def answer(batch: "Batch") -> Answered:
        return [], (label_log_probs(run.model(device), [batch]).tolist(),)

    def evaluated() -> Iterator[Sequence[Any]]:
        batches = label_reader.labelled_evaluation(part.texts, part.labels, ROWS, limit)
        yield from run.answered(batches, answer, log_probs.extend)

    @cache
    def figures() -> dict[str, Any]:
        found, true = torch.tensor(log_probs, dtype=torch.float32), torch.from_numpy(part.labels)
        facts = label_reader.part_facts(part, limit)
        facts = {"texts": len(true), "empty": facts["empty"], "cut": facts["cut"]}
        if run.labels.several:
            return facts | several_figures(found, true, names)
        scores = classification_scores(found, true, names)
        errors = [
            {"line": rows[row].line, "true": rows[row].label, "given": names[predicted], "probability": share,
             "text": rows[row].text}
            for row, predicted, share in surest_mistakes(found, true, options.errors)
        ]  # fmt: skip
        return facts | label_figures(scores, "text", names) | {"errors": errors}

    return Result(
        [], evaluated(), summary=figures, about={"measured": run.basis}, notes=lambda: figure_notes(figures()),
        figure=None if run.labels.several else confusion_figure, hints={"batchwise": True},
    )  # fmt: skip


_SEEN = 3  # times that a word must be read, so that its mean share says something


@dataclass(frozen=True)
class ClassifierInspection(TextColumn):
    """Look inside a trained classifier: its parts, its confidence, and its attention.

    The entropy of the attention tells over how much of a text it spreads; a word's share is relative to an even share.
    If the model pools by attention, the page has texts with shaded words. Reads held-out texts or DATA.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "Texts to read; held-out texts by default; - is standard input.",
        "seed": "No effect: nothing is random.",
    }

    rows: Annotated[int, Range(1, 1 << 16)] = 256
    """Maximum number of texts to read."""
    top: Annotated[int, Range(1, 1000)] = 12
    """Number of words with the largest share of attention to show."""


def inspect_classifier(run: "ClassifyTask", data: str | None, options: ClassifierInspection, *, seed: int) -> Report:
    from chainrule_app.pages.attention_page import attention_page
    from chainrule_app.pages.finding_pages import label_page
    from chainrule_app.tasks.output import inside, inspect_again
    from chainrule_app.tasks.parts import parts_of

    model = run.model()
    if data is None:
        texts = run.texts()
        lines, source = texts.valid.lines.tolist(), "held-out texts"
        held_out = zip(lines, texts.valid_texts, strict=True)
        rows = [label_reader.LabelledText(line, text, "") for line, text in islice(held_out, options.rows)]
    else:
        rows = list(islice(run.file(data, text_column=options.text_column, labelled=False), options.rows))
        source = f"texts of {data}"
    read = list(answers(run, model, rows))
    if not read:
        raise ValueError(f"{data}: expected at least one text, got none")
    names = run.labels.names
    figures: dict[str, Any] = {
        "run": str(run.path),
        "model": run.config.model,
        "recipe": run.recipe,
        "pooling": run.config.options.pooling,
        "parameters": parts_of(model),
        "read": {"source": source, "texts": len(read), "elements": sum(len(answer.tokens) for answer in read)},
        **_certainty(read, names),
        "attention": None,
    }
    if model.attention is None:
        page = label_page(figures, inside(run), inspect_again(run, data, rows=options.rows))
    else:
        page = attention_page(read, names, f"{run.path}: {source}")
        figures["attention"] = _attention(read, options.top)
    return Report(figures, tuple(_lines(figures)), str(page))


def _certainty(read: Sequence[LabelledAnswer], names: tuple[str, ...]) -> dict[str, Any]:
    """Average the probability of the predicted label: over all texts, and by label."""
    probabilities: dict[str, list[float]] = {name: [] for name in names}
    for answer in read:
        probabilities[names[answer.best]].append(exp(answer.log_probs[answer.best]))
    return {
        "certainty": sum(map(sum, probabilities.values())) / len(read),
        "labels": {
            name: {"texts": len(shares), "certainty": sum(shares) / len(shares) if shares else None}
            for name, shares in probabilities.items()
        },
    }


def _attention(read: Sequence[LabelledAnswer], top: int) -> dict[str, Any]:
    """Measure how widely attention spreads, and list the words with the largest shares, relative to an even share."""
    spread, shares = [], defaultdict[str, list[float]](list)
    for answer in read:
        weights, size = answer.attention or [], len(answer.tokens)
        if size > 1:
            spread.append(exp(-sum(weight * log(weight) for weight in weights if weight > 0)) / size)
            for token, weight in zip(answer.tokens, weights, strict=True):
                shares[token].append(weight * size)
    means = {token: sum(values) / len(values) for token, values in shares.items() if len(values) >= _SEEN}
    chosen = sorted(means, key=lambda token: (-means[token], token))[:top]
    return {
        "spread": sum(spread) / len(spread) if spread else None,
        "words": [{"word": token, "share": means[token], "seen": len(shares[token])} for token in chosen],
    }


def _lines(figures: dict[str, Any]) -> Iterator[str]:
    parts, read, attention = figures["parameters"], figures["read"], figures["attention"]
    yield f"{figures['run']}: {figures['recipe']} with {counted(sum(parts.values()), 'parameter')}"
    yield "parts      " + ", ".join(f"{name} {count:,}" for name, count in parts.items())
    yield f"read       {read['texts']:,} {read['source']}, {counted(read['elements'], 'element')}"
    yield f"certainty  {figures['certainty']:.2%} on average, the probability of the predicted label"
    for name, row in figures["labels"].items():
        sure = "" if row["certainty"] is None else f", {row['certainty']:.2%}"
        yield f"  {name}: {counted(row['texts'], 'text')}{sure}"
    if attention is None:
        remedy = f"train with {spelled('pooling', 'attention')} to learn it"
        yield f"attention  none: the model pools by {figures['pooling']}; {remedy}"
        return
    if attention["spread"] is not None:
        yield f"attention  spreads over {attention['spread']:.1%} of a text on average; 100% is even"
    if attention["words"]:
        yield f"words with the largest shares, relative to an even share (read at least {_SEEN} times):"
        yield "  " + ", ".join(f"{word['word']} {word['share']:.2f}" for word in attention["words"])
