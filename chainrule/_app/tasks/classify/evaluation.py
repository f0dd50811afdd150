"""The labels of a classifier compared with the right ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainrule._app.results import Result
from chainrule._app.tasks.config import CheckedOptions, within

if TYPE_CHECKING:
    from chainrule._app.tasks.classify.task import ClassifyTask
    from chainrule.metrics._classification import ClassificationScores

_MATRIX = 20  # labels of which the table of confusions is given


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


def evaluate_labels(run: "ClassifyTask", data: str | None, options: LabelEvaluation, *, device: str) -> Result:
    """Evaluate a run on a file of labelled texts."""
    import torch

    from chainrule._app.tasks.classify.validation_metric import ROWS, label_log_probs, surest_mistakes
    from chainrule.data._labelled import encoded_part, labelled_evaluation, part_facts
    from chainrule.metrics import classification_scores

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
    figures = {
        "texts": scores.count,
        "empty": facts["empty"],
        "cut": facts["cut"],
        **label_figures(scores, "text", names),
    }
    figures["errors"] = [
        {"line": rows[row].line, "true": rows[row].label, "given": names[given], "probability": share,
         "text": rows[row].text}
        for row, given, share in surest_mistakes(log_probs, true, options.errors)
    ]  # fmt: skip
    return Result([], [], summary=lambda: figures, about={"measured": run.basis}, notes=lambda: figure_notes(figures))


def label_figures(scores: "ClassificationScores", unit: str, names: Sequence[str]) -> dict[str, Any]:
    """Figures of all rows, by label, and how labels are confused; `unit` is the word for a row."""
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
    """How to read the figures."""
    return ["confusion: a row for each true label, a column for each predicted one"] if "confusion" in figures else []
