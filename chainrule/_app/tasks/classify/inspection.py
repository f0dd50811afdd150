"""Inside a trained classifier: its parts, how sure it is, and which words its attention takes up."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import exp, log
from typing import TYPE_CHECKING, Any

from chainrule._app.results import Report
from chainrule._app.tasks.classify.labelling import LabelledAnswer, answers
from chainrule._app.tasks.config import CheckedOptions, within
from chainrule._app.tasks.display import counted

if TYPE_CHECKING:
    from chainrule._app.tasks.classify.task import ClassifyTask

_SEEN = 3  # times that a word must be read, so that its mean share says something


@dataclass(frozen=True)
class ClassifierInspection(CheckedOptions):
    """Look inside a trained classifier: its parts, how sure it is of its labels, and what its attention takes up.

    The attention of a text is spread over as many words as its entropy says; a word's share is compared with an even
    one. Writes a page of texts whose words are shaded by it, where the model pools by attention. Works on held-out
    texts or on DATA.

    Args:
        data: Texts to read in place of the held-out ones; - is standard input.
        seed: Without effect: nothing is drawn.
    """

    rows: int = within(256, 1, 1 << 16)
    """Texts to read at most."""
    top: int = within(12, 1, 1000)
    """Words with the largest share of attention to show."""


def inspect_classifier(run: "ClassifyTask", data: str | None, options: ClassifierInspection, *, seed: int) -> Report:
    """Inspect a run on its held-out texts, or on a file."""
    from chainrule.data._labelled import LabelledText
    from chainrule.diagnostics._parts import parts_of

    model = run.model()
    if data is None:
        texts = run.texts()
        lines, source = texts.valid.lines.tolist(), "held-out texts"
        held_out = zip(lines, texts.valid_texts, strict=True)
        rows = [LabelledText(line, text, "") for line, text in islice(held_out, options.rows)]
    else:
        rows, source = list(islice(run.file(data, labelled=False), options.rows)), f"texts of {data}"
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
        from chainrule._app.tasks.classify.attention_page import attention_page

        page = str(attention_page(read, names, f"{run.path}: {source}"))
        figures["attention"] = _attention(read, options.top)
    return Report(figures, tuple(_lines(figures)), page)


def _certainty(read: Sequence[LabelledAnswer], names: tuple[str, ...]) -> dict[str, Any]:
    """Probabilities of the labels that are given: of all texts, and by label."""
    given: dict[str, list[float]] = {name: [] for name in names}
    for answer in read:
        given[names[answer.best]].append(exp(answer.log_probs[answer.best]))
    return {
        "certainty": sum(map(sum, given.values())) / len(read),
        "labels": {
            name: {"texts": len(shares), "certainty": sum(shares) / len(shares) if shares else None}
            for name, shares in given.items()
        },
    }


def _attention(read: Sequence[LabelledAnswer], top: int) -> dict[str, Any]:
    """Over how much of a text attention is spread, and the words whose share is largest, in even shares."""
    spread, shares = [], defaultdict[str, list[float]](list)
    for answer in read:
        weights, size = answer.attention or [], len(answer.tokens)
        if size > 1:
            spread.append(exp(-sum(weight * log(weight) for weight in weights if weight > 0)) / size)
            for token, weight in zip(answer.tokens, weights, strict=True):
                shares[token].append(weight * size)
    means = {token: sum(found) / len(found) for token, found in shares.items() if len(found) >= _SEEN}
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
    yield f"certainty  {figures['certainty']:.2%} on average, the probability of the label that is given"
    for name, row in figures["labels"].items():
        sure = "" if row["certainty"] is None else f", {row['certainty']:.2%}"
        yield f"  {name}: {counted(row['texts'], 'text')}{sure}"
    if attention is None:
        yield f"attention  none: the model pools by {figures['pooling']}; --pooling attention learns what to look at"
        return
    if attention["spread"] is not None:
        yield f"attention  spread over {attention['spread']:.1%} of a text on average; 100% is even"
    if attention["words"]:
        yield f"largest shares, in even ones, of words read {_SEEN} times or more:"
        yield "  " + ", ".join(f"{word['word']} {word['share']:.2f}" for word in attention["words"])
