"""`chainrule evaluate RUN DATA` on a run of a classifier."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from chainrule.tasks.display import dump_json

_MATRIX = 20  # labels of a table of confusions that is shown


def evaluate(
    run: Path,
    data: Path,
    /,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    errors: int = 5,
    json: Annotated[bool, Parameter(negative=())] = False,
    device: str = "auto",
) -> None:
    """Compare a classifier with texts whose labels are known.

    Accuracy, F1 averaged over labels, nats per text, how far confidence is from accuracy, the table of confusions, and
    the mistakes made with most confidence.

    Args:
        run: The run directory.
        data: Texts and labels, in a file as that of training.
        text_column: Name, or number from 1, of the column of texts; that of training if not given.
        label_column: The same of the labels.
        errors: So many mistakes.
        json: Print the figures as one JSON object.
        device: Where to compute: auto, cpu or cuda.
    """
    import torch

    from chainrule.data.labelled import encoded_part, labelled_evaluation, part_facts
    from chainrule.metrics.classification import classification_scores
    from chainrule.runs.classify import ClassifyRun
    from chainrule.runs.classify_judge import ROWS, label_log_probs, surest_mistakes
    from chainrule.training.parallel import choose_device

    if errors < 0:
        raise ValueError(f"--errors: expected a whole number >= 0, got {errors}")
    opened = ClassifyRun.open(run)
    names, limit = opened.labels.names, opened.data.max_length
    rows = list(opened.file(data, text_column=text_column, label_column=label_column))
    if not rows:
        raise ValueError(f"{data}: expected at least one row below the header, got none")
    part = encoded_part(rows, opened.symbols, opened.labels, str(data))
    model = opened.model(choose_device(device))
    log_probs = label_log_probs(model, labelled_evaluation(part.texts, part.labels, ROWS, limit))
    true = torch.from_numpy(part.labels)
    scores = classification_scores(log_probs, true, names)
    facts = part_facts(part, limit)
    figures: dict[str, Any] = {
        "texts": scores.count,
        "empty": facts["empty"],
        "cut": facts["cut"],
        "accuracy": scores.accuracy,
        "macro_f1": scores.macro_f1,
        "nats_per_text": scores.nats,
        "calibration_error": scores.calibration_error,
        "labels": {
            name: {"precision": precision, "recall": recall, "f1": f1, "texts": count}
            for name, (precision, recall, f1, count) in scores.by_label.items()
        },
        "confusion": [list(row) for row in scores.confusion],
        "errors": [
            {"line": rows[row].line, "true": rows[row].label, "given": names[given], "probability": share,
             "text": rows[row].text}
            for row, given, share in surest_mistakes(log_probs, true, errors)
        ],
    }  # fmt: skip
    print(dump_json(figures)) if json else _show(figures, names)


def _show(figures: dict[str, Any], names: tuple[str, ...]) -> None:
    from chainrule.runs.classify_judge import shortened

    said = [f"{figures[what]:,} {what}" for what in ("empty", "cut") if figures[what]]
    print(
        f"accuracy           {figures['accuracy']:.2%} of {figures['texts']:,} texts" + "".join(f", {s}" for s in said)
    )
    print(f"macro F1           {figures['macro_f1']:.2%}")
    print(f"nats per text      {figures['nats_per_text']:.4f}")
    print(f"calibration error  {figures['calibration_error']:.2%} between confidence and accuracy, on average")
    width = max(len(name) for name in (*names, "label"))
    print(f"{'label':<{width}}  precision   recall       F1    texts")
    for name, row in figures["labels"].items():
        print(
            f"{name:<{width}}  {row['precision']:>9.2%}  {row['recall']:>7.2%}  {row['f1']:>7.2%}  {row['texts']:>7,}"
        )
    if len(names) <= _MATRIX:
        cells = [[f"{count:,}" for count in row] for row in figures["confusion"]]
        columns = [max(len(name), *(len(row[place]) for row in cells)) for place, name in enumerate(names)]
        print("confusions, a row for each true label, a column for each given one:")
        print(" " * width + "".join(f"  {name:>{size}}" for name, size in zip(names, columns, strict=True)))
        for name, row in zip(names, cells, strict=True):
            print(f"{name:<{width}}" + "".join(f"  {cell:>{size}}" for cell, size in zip(row, columns, strict=True)))
    if figures["errors"]:
        print("mistakes made with most confidence:")
        for error in figures["errors"]:
            print(
                f"  line {error['line']}: {error['given']} {error['probability']:.1%}, is {error['true']}: "
                f"{shortened(error['text'])}"
            )
