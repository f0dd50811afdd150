"""The labels of a classifier compared with the right ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.config import CheckedOptions, within
from chainrule.tasks.display import aligned

if TYPE_CHECKING:
    from chainrule.metrics.classification import ClassificationScores
    from chainrule.tasks.classify.task import ClassifyTask

_MATRIX = 20  # labels of a table of confusions that is shown


@dataclass(frozen=True)
class LabelEvaluation(CheckedOptions):
    """Compare a classifier with texts whose labels are known.

    Accuracy, F1 averaged over labels, nats per text, how far confidence is from accuracy, the table of confusions, and
    the mistakes made with most confidence.

    Args:
        data: Texts and labels, in a file as that of training.
    """

    text_column: str | None = None
    """Name, or number from 1, of the column of texts; that of training if not given."""
    label_column: str | None = None
    """The same of the labels."""
    errors: int = within(5, 0, 1 << 30)
    """Number of mistakes to show."""


def evaluate_labels(run: "ClassifyTask", data: str | None, options: LabelEvaluation, *, device: str) -> Answer:
    """Evaluate a run on a file of labelled texts."""
    import torch

    from chainrule.data.labelled import encoded_part, labelled_evaluation, part_facts
    from chainrule.metrics.classification import classification_scores
    from chainrule.tasks.classify.validation_metric import ROWS, label_log_probs, surest_mistakes

    if data is None:
        raise ValueError("DATA: expected a file of texts and labels, got none")
    names, limit = run.labels.names, run.data.max_length
    rows = list(run.file(data, text_column=options.text_column, label_column=options.label_column))
    if not rows:
        raise ValueError(f"{data}: expected at least one row below the header, got none")
    part = encoded_part(rows, run.symbols, run.labels, data)
    log_probs = label_log_probs(run.model(device), labelled_evaluation(part.texts, part.labels, ROWS, limit))
    true = torch.from_numpy(part.labels)
    scores, facts = classification_scores(log_probs, true, names), part_facts(part, limit)
    figures = {"texts": scores.count, "empty": facts["empty"], "cut": facts["cut"], **label_figures(scores, "text")}
    figures["errors"] = [
        {"line": rows[row].line, "true": rows[row].label, "given": names[given], "probability": share,
         "text": rows[row].text}
        for row, given, share in surest_mistakes(log_probs, true, options.errors)
    ]  # fmt: skip
    return Answer(iter([Record(figures, "\n".join(label_lines(figures, names, "text")))]))


def label_figures(scores: "ClassificationScores", what: str) -> dict[str, Any]:
    """Figures for JSON; `what` is the word for one row, such as "text"."""
    return {
        "accuracy": scores.accuracy,
        "macro_f1": scores.macro_f1,
        f"nats_per_{what}": scores.nats,
        "calibration_error": scores.calibration_error,
        "labels": {
            name: {"precision": precision, "recall": recall, "f1": f1, f"{what}s": count}
            for name, (precision, recall, f1, count) in scores.by_label.items()
        },
        "confusion": [list(row) for row in scores.confusion],
    }


def label_lines(figures: dict[str, Any], names: tuple[str, ...], what: str) -> Iterator[str]:
    """The same as lines."""
    from chainrule.tasks.classify.validation_metric import shortened

    said = "".join(f", {figures[part]:,} {part}" for part in ("empty", "cut") if figures.get(part))
    yield f"accuracy           {figures['accuracy']:.2%} of {figures[f'{what}s']:,} {what}s{said}"
    yield f"macro F1           {figures['macro_f1']:.2%}"
    yield f"{f'nats per {what}':<18} {figures[f'nats_per_{what}']:.4f}"
    yield f"calibration error  {figures['calibration_error']:.2%} between confidence and accuracy, on average"
    rows = [
        (name, *(f"{row[part]:.2%}" for part in ("precision", "recall", "f1")), f"{row[f'{what}s']:,}")
        for name, row in figures["labels"].items()
    ]
    yield from aligned([("label", "precision", "recall", "F1", f"{what}s"), *rows])
    if len(names) <= _MATRIX:
        yield "confusions, a row for each true label, a column for each given one:"
        cells = [(name, *map("{:,}".format, row)) for name, row in zip(names, figures["confusion"], strict=True)]
        yield from aligned([("", *names), *cells])
    if figures["errors"]:
        yield "mistakes made with most confidence:"
        for error in figures["errors"]:
            yield (
                f"  line {error['line']}: {error['given']} {error['probability']:.1%}, is {error['true']}: "
                f"{shortened(error['text'])}"
            )
