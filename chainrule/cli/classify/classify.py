"""`chainrule classify RUN FILE`: a label and its probability for every text."""

import sys
from collections.abc import Iterator
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from chainrule.tasks.display import dump_json

if TYPE_CHECKING:
    from chainrule.cli.classify.answers import Answer

_PICTURED = {".html": 500, ".png": 20}  # texts of a page or picture


def classify(
    run: Path,
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    text_column: str | None = None,
    top: Annotated[int, Parameter(name=["--top", "-n"])] = 1,
    attention: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
    device: str = "auto",
) -> None:
    """Label texts: a line for each with its label, the probability of that, and the text, tabs between them.

    Args:
        run: The run directory.
        file: A text a line, or a file in columns as that of training; - is standard input. Empty texts are answered
            with the shares of the labels in training.
        text_column: Name, or number from 1, of the column of texts; found by itself where it can be.
        top: The so many likeliest labels of each text.
        attention: A page (.html) or picture (.png) to write, in which the words are shaded by how much they counted.
        json: Print a JSON object for each text, with the probabilities of all labels, the words and their weights.
        device: Where to compute: auto, cpu or cuda.
    """
    from chainrule.cli.classify.answers import answers
    from chainrule.runs.classify import ClassifyRun
    from chainrule.training.parallel import choose_device

    if top < 1:
        raise ValueError(f"--top: expected a whole number >= 1, got {top}")
    if attention is not None and attention.suffix not in _PICTURED:
        raise ValueError(f"--attention: expected a file name that ends in .html or .png, got {attention}")
    opened = ClassifyRun.open(run)
    if attention is not None and "attention" not in opened.options.pooling.split("+"):
        raise ValueError(
            f"--attention: the model pools by {opened.options.pooling}: train one with --pooling attention"
        )
    rows = opened.file(file, text_column=text_column, labelled=False)
    model, names = opened.model(choose_device(device)), opened.labels.names
    shown: list[Answer] = []
    count = empty = cut = 0
    for answer in answers(opened, model, rows):
        count, empty, cut = count + 1, empty + (not answer.tokens), cut + (answer.cut > 0)
        if attention is not None and len(shown) < _PICTURED[attention.suffix]:
            shown.append(answer)
        if json:
            print(dump_json(_record(answer, names)))
        else:
            print("\t".join([*_likeliest(answer, names, top), " ".join(answer.row.text.split())]))
    if not count:
        raise ValueError(f"{file}: expected at least one text, got none")
    if empty:
        print(f"{empty:,} empty texts: answered with the shares of the labels in training", file=sys.stderr)
    if cut:
        print(f"{cut:,} texts were read up to their element {opened.data.max_length:,} (--max-length)", file=sys.stderr)
    if attention is not None:
        from chainrule.cli.classify.attention_page import write_page, write_picture

        (write_page if attention.suffix == ".html" else write_picture)(attention, shown, names)
        left = f" (the first {len(shown)} of {count:,} texts)" if len(shown) < count else ""
        print(f"attention in {attention}{left}", file=sys.stderr)


def _likeliest(answer: "Answer", names: tuple[str, ...], top: int) -> Iterator[str]:
    order = sorted(range(len(names)), key=lambda label: -answer.log_probs[label])
    for label in order[:top]:
        yield names[label]
        yield f"{exp(answer.log_probs[label]):.4f}"


def _record(answer: "Answer", names: tuple[str, ...]) -> dict[str, Any]:
    record: dict[str, Any] = {
        "line": answer.row.line,
        "label": names[answer.best],
        "probability": exp(answer.log_probs[answer.best]),
        "probabilities": {name: exp(value) for name, value in zip(names, answer.log_probs, strict=True)},
        "text": answer.row.text,
        "tokens": answer.tokens,
        "empty": not answer.tokens,
        "cut": answer.cut,
    }
    if answer.attention is not None:
        record["attention"] = answer.attention
    return record
