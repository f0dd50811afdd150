"""Label and embed texts with a trained classifier, evaluate it in training and after it, and look inside it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import exp, log
from typing import TYPE_CHECKING, Annotated, Any, cast

from cyclopts import Parameter

from chainrule._blocks import in_blocks
from chainrule_app import frames
from chainrule_app.heavy import modes, np, torch
from chainrule_app.readers import labelled as label_reader
from chainrule_app.readers.origin import origin_of
from chainrule_app.results import Column, Report, Result
from chainrule_app.tasks.config import CheckedOptions, within
from chainrule_app.tasks.display import counted, shortened
from chainrule_app.tasks.run_directory import FRAME

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule._base import TrainableModel
    from chainrule.data import Batch
    from chainrule.metrics._tagging import ClassificationScores
    from chainrule.models import SequenceClassifier
    from chainrule.training import MetricValue, ValidationMetric
    from chainrule.training._validation import Rows
    from chainrule_app.readers.labelled.labelled_file import LabelledText
    from chainrule_app.tasks.classify.task import ClassifyTask


def label_columns(top: int, labels: int, parse: Callable[[str], Any] | None = None) -> list[Column]:
    """Return the columns that `label_cells` fills; `parse` makes labels of their names."""
    named = [Column("label", parse=parse), Column("probability", 4)]
    for number in range(2, min(top, labels) + 1):
        named += [Column(f"label_{number}", parse=parse), Column(f"probability_{number}", 4)]
    return [*named, Column("probabilities", shown=False)]


def label_cells(names: Sequence[str], log_probs: Sequence[float], top: int) -> list[Any]:
    """Return the `top` most probable labels with their probabilities, then the probabilities of all labels."""
    order = sorted(range(len(names)), key=lambda label: -log_probs[label])
    cells: list[Any] = [part for label in order[:top] for part in (names[label], exp(log_probs[label]))]
    return [*cells, {name: exp(value) for name, value in zip(names, log_probs, strict=True)}]


_BLOCK = 64  # texts read together


@dataclass(frozen=True)
class TextColumn(CheckedOptions):
    """Option that selects the column of the texts."""

    text_column: str | None = None
    """Column of the texts (name, or number from 1); detected by default."""


@dataclass(frozen=True)
class Labelling(TextColumn):
    """Label texts: print the line, the label, its probability and the text of each.

    Args:
        file: One text per line, or a file with the columns of the training file; - is standard input. Empty texts get
            the label frequencies of training.
        json: Print one JSON object per text, with the probabilities of all labels, the words and their weights.
    """

    top: Annotated[int, Parameter(name=["--top", "-n"])] = within(1, 1, 1 << 30)
    """Number of most probable labels per text."""


@dataclass(frozen=True)
class LabelledEmbedding(TextColumn):
    """Embed texts: print the line of each, and the pooled features that predict its label.

    Args:
        data: One text per line, or a file with the columns of the training file; - is standard input.
    """


def label_texts(run: "ClassifyTask", data: list[str], options: Labelling, *, device: str) -> Result:
    names, counts = run.labels.names, Counter[str]()
    rows = run.file(data[0], text_column=options.text_column, labelled=False)

    def labelled() -> Iterator[Sequence[Any]]:
        for answer in answers(run, run.model(device), rows):
            counts.update(texts=1, empty=not answer.tokens, cut=answer.cut > 0)
            cells = label_cells(names, answer.log_probs, options.top)
            yield answer.row.line, *cells, answer.row.text, answer.tokens, answer.attention, answer.cut
        if not counts["texts"]:
            raise ValueError(f"{data[0]}: expected at least one text, got none")

    def notes() -> Iterator[str]:
        if rows.columns.header and rows.columns.text_name is None:
            yield "the first line is read as a header, although its names are not those in training"
        if counts["empty"]:
            yield f"{counted(counts['empty'], 'empty text')}: predicted the label frequencies of training"
        if counts["cut"]:
            limit = f"{run.data.max_length:,} (--max-length)"
            yield f"{counted(counts['cut'], 'text')} cut after element {limit}"

    hidden = [Column(name, shown=False) for name in ("tokens", "attention", "cut")]
    labels = label_columns(options.top, len(names), frames.value_parser(run.path / FRAME, "label"))
    columns = [Column("line"), *labels, Column("text"), *hidden]
    return Result(columns, labelled(), notes=notes, main="label")


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
    limit = run.data.max_length
    for block, context in _contexts(run, model, rows):
        with torch.no_grad():
            log_probs = model(context).logits.cpu().double().tolist()
            attention = None if model.attention is None else model.attend(context).tolist()
        for index, row in enumerate(block):
            tokens = run.symbols.tokens(row.text)
            read = min(len(tokens), limit)
            weights = None if attention is None else attention[index][:read]
            yield LabelledAnswer(row, tuple(log_probs[index]), tokens[:read], weights, len(tokens) - read)


def embed_texts(run: "ClassifyTask", file: str, options: LabelledEmbedding, *, device: str) -> Result:
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
    """Yield texts in blocks, each with the context that the model reads."""
    from chainrule.state import map_state

    device = modes.device_of(model)
    for block in in_blocks(rows, _BLOCK):
        texts = label_reader.EncodedTexts.of((row.text for row in block), run.symbols)
        context = texts.context(np.arange(len(block)), run.data.max_length)
        yield block, map_state(lambda leaf: leaf.to(device), context)


_MATRIX = 20  # labels in the confusion matrix at most


@dataclass(frozen=True)
class LabelEvaluation(CheckedOptions):
    """Evaluate a classifier on labelled texts.

    Prints accuracy, F1 averaged over labels, nats per text, calibration error, the confusion matrix, and the most
    confident mistakes.

    Args:
        data: Texts and labels, in a file like the training file.
    """

    text_column: str | None = None
    """Column of the texts (name, or number from 1); as in training by default."""
    label_column: str | None = None
    """Column of the labels (name, or number from 1); as in training by default."""
    errors: int = within(5, 0, 1 << 30)
    """Number of mistakes to show."""


def evaluate_labels(run: "ClassifyTask", data: str | None, options: LabelEvaluation, *, device: str) -> Result:
    from chainrule.metrics import classification_scores

    if data is None:
        raise ValueError("DATA: expected a file of texts and labels, got none")
    names, limit = run.labels.names, run.data.max_length
    rows = list(run.file(data, text_column=options.text_column, label_column=options.label_column))
    if not rows:
        raise ValueError(f"{data}: expected at least one row below the header, got none")
    part = label_reader.encoded_part(rows, run.symbols, run.labels, origin_of(data))
    log_probs = label_log_probs(
        run.model(device), label_reader.labelled_evaluation(part.texts, part.labels, ROWS, limit)
    )
    true = torch.from_numpy(part.labels)
    scores, facts = classification_scores(log_probs, true, names), label_reader.part_facts(part, limit)
    figures = {
        "texts": scores.count,
        "empty": facts["empty"],
        "cut": facts["cut"],
        **label_figures(scores, "text", names),
    }
    figures["errors"] = [
        {"line": rows[row].line, "true": rows[row].label, "given": names[predicted], "probability": share,
         "text": rows[row].text}
        for row, predicted, share in surest_mistakes(log_probs, true, options.errors)
    ]  # fmt: skip
    return Result([], [], summary=lambda: figures, about={"measured": run.basis}, notes=lambda: figure_notes(figures))


def label_figures(scores: "ClassificationScores", unit: str, names: Sequence[str]) -> dict[str, Any]:
    """Return overall and per-label figures and the confusion matrix; `unit` names a row."""
    figures = {
        "accuracy": scores.accuracy,
        "macro_f1": scores.macro_f1,
        f"nats_per_{unit}": scores.nats,
        "calibration_error": scores.calibration_error,
        "labels": {
            name: {"precision": precision, "recall": recall, "f1": f1, f"{unit}s": count}
            for name, (precision, recall, f1, count) in scores.by_label.items()
        },
    }
    if len(names) <= _MATRIX:
        rows = zip(names, scores.confusion, strict=True)
        figures["confusion"] = {true: dict(zip(names, row, strict=True)) for true, row in rows}
    return figures


def figure_notes(figures: dict[str, Any]) -> list[str]:
    """Explain how to read the figures."""
    return ["confusion: a row for each true label, a column for each predicted one"] if "confusion" in figures else []


_SEEN = 3  # times that a word must be read, so that its mean share says something


@dataclass(frozen=True)
class ClassifierInspection(TextColumn):
    """Look inside a trained classifier: its parts, its confidence, and its attention.

    The entropy of the attention tells over how much of a text it spreads; a word's share is relative to an even share.
    If the model pools by attention, writes a page of texts with shaded words. Reads held-out texts or DATA.

    Args:
        data: Texts to read; held-out texts by default; - is standard input.
        seed: No effect: nothing is random.
    """

    rows: int = within(256, 1, 1 << 16)
    """Maximum number of texts to read."""
    top: int = within(12, 1, 1000)
    """Number of words with the largest share of attention to show."""


def inspect_classifier(run: "ClassifyTask", data: str | None, options: ClassifierInspection, *, seed: int) -> Report:
    from chainrule.diagnostics._parts import parts_of

    model = run.model()
    if data is None:
        texts = run.texts()
        lines, source = texts.valid.lines.tolist(), "held-out texts"
        held_out = zip(lines, texts.valid_texts, strict=True)
        rows = [label_reader.LabelledText(line, text, "") for line, text in islice(held_out, options.rows)]
    else:
        rows = list(islice(run.file(data, text_column=options.text_column, labelled=False), options.rows))
        source = f"texts of {run.source_names.get(str(data), data)}"
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
    page = ""
    if model.attention is not None:
        from chainrule_app.pages.attention_page import attention_page

        page = str(attention_page(read, names, f"{run.path}: {source}"))
        figures["attention"] = _attention(read, options.top)
    return Report(figures, tuple(_lines(figures)), page)


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
        yield f"attention  none: the model pools by {figures['pooling']}; train with --pooling attention to learn it"
        return
    if attention["spread"] is not None:
        yield f"attention  spreads over {attention['spread']:.1%} of a text on average; 100% is even"
    if attention["words"]:
        yield f"words with the largest shares, relative to an even share (read at least {_SEEN} times):"
        yield "  " + ", ".join(f"{word['word']} {word['share']:.2f}" for word in attention["words"])


ROWS = 128  # of a batch that is only read
_SHOWN = 2  # wrong answers at each validation
_WIDTH = 90  # characters of a text that is shown


def label_log_probs(model: "SequenceClassifier", batches: "Iterable[Batch]") -> "Tensor":
    """Return log p(label | row) of every row, (N, C) nats on the CPU; expects a model in evaluation mode."""
    from chainrule.state import map_state

    device = modes.device_of(model)
    contexts = (map_state(lambda leaf: leaf.to(device), batch.context) for batch in batches)
    with torch.no_grad():
        return torch.cat([model(context).logits.float().cpu() for context in contexts])


def label_metric(
    names: Sequence[str],
    true: "Tensor",
    batches: "Callable[[Rows], Iterable[Batch]]",
    describe: Callable[[int], tuple[str, str]],
    *,
    prefer_later: bool = False,
) -> "ValidationMetric":
    """Measure accuracy on held-out rows, and show the most confident mistakes."""
    from chainrule.training import MetricValue, ValidationMetric

    def answer(model: "TrainableModel", rows: "Rows") -> "Sequence[Tensor]":
        return list(label_log_probs(cast("SequenceClassifier", model), batches(rows)))

    def compare(rows: "Rows", answers: "Sequence[Tensor]", step: int) -> "MetricValue":
        log_probs, right = torch.stack(list(answers)), true[rows]
        lines = []
        for index, predicted, share in surest_mistakes(log_probs, right, _SHOWN):
            where, what = describe(int(rows[index]))
            answered = f"{where}: {names[predicted]} {share:.0%}, is {names[int(right[index])]}"
            lines.append(f"{answered}: {shortened(' '.join(what.split()), _WIDTH)}" if what else answered)
        accuracy = float((log_probs.argmax(1) == right).cpu().double().mean())
        error = (accuracy * (1 - accuracy) / len(right)) ** 0.5
        return MetricValue("accuracy", accuracy, "\n".join(lines), margin=error if prefer_later else 0.0)

    return ValidationMetric(len(true), answer, compare)


def surest_mistakes(log_probs: "Tensor", true: "Tensor", most: int) -> list[tuple[int, int, float]]:
    """List the most confident wrong predictions: row, predicted label, its probability.

    >>> surest_mistakes(torch.tensor([[0.9, 0.1], [0.6, 0.4]]).log(), torch.tensor([1, 1]), most=1)
    [(0, 0, 0.8999999761581421)]
    """
    shares, predicted = log_probs.exp().max(1)
    wrong = (predicted != true).nonzero().squeeze(1)
    order = wrong[shares[wrong].argsort(descending=True, stable=True)][:most]
    return [(row, int(predicted[row]), float(shares[row])) for row in order.tolist()]
