"""Inside a trained translator: its parts, and which words of the source each word of a translation attended to."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chainrule._app.results import Report
from chainrule._app.tasks.config import CheckedOptions, within
from chainrule._app.tasks.page import attention_report, inspect_again

if TYPE_CHECKING:
    from chainrule._app.tasks.translate.task import TranslateTask
    from chainrule.data._pairs import Pair


@dataclass(frozen=True)
class TranslatorInspection(CheckedOptions):
    """Look inside a trained translator: how large its parts are, what each word attended to, what surprised it.

    Reads the references of held-out pairs, or those of DATA, and translates their sources greedily. Prints the parts
    and how narrowly the decoder attends, and writes a page with an alignment of each pair (HTML, one file, needs no
    network).

    Args:
        data: Pairs to read in place of held-out ones, a line each: the source, a tab, the target; .gz too.
    """

    rows: int = within(4, 1, 64)
    """Pairs to read, the first ones."""


def inspect_translator(run: "TranslateTask", file: str | None, options: TranslatorInspection, *, seed: int) -> Report:
    """Inspect a run on its held-out pairs, or on those of a file."""
    import numpy as np
    import torch

    from chainrule._app.pages.attention_page import AttentionExample
    from chainrule._app.tasks.translate.prediction import encoded_pairs, translator_of

    pairs, translator = _pairs(run, file, options.rows), translator_of(run, None, "cpu")
    batch = encoded_pairs(run, pairs, Path(file or run.path), None).batch(np.arange(len(pairs)))
    assert batch.lengths is not None
    with torch.no_grad():
        nats = -translator.model(batch.x, batch.context, batch.lengths).log_prob(batch.x)  # (B, T)
    written = [best.text for best, *_ in translator.search([pair.source for pair in pairs])]
    examples = []
    for pair, translation, terms, length in zip(pairs, written, nats, batch.lengths.tolist(), strict=True):
        given, symbols = translator.symbols(pair.source, pair.target)
        alpha = translator.attention(pair.source, pair.target) if translator.model.has_attention else None
        texts = {"source": pair.source, "reference": pair.target, "translation": translation}
        facts = {**texts, "read": given}
        nats_each = terms[:length].double().tolist()
        examples.append(AttentionExample(f"Pair {pair.line}", texts, facts, symbols, nats_each, alpha, read=given))
    command = inspect_again(run, file, rows=options.rows)
    return attention_report(run, translator.model, examples, looks_at="symbols of the source", command=command)


def _pairs(run: "TranslateTask", file: str | None, rows: int) -> "list[Pair]":
    """The first pairs of a file, or of those held out."""
    from itertools import islice

    from chainrule._app.tasks.run_directory import DATA
    from chainrule.data._pairs import Pair, held_out_texts, read_pairs

    if file is None:
        texts = zip(*held_out_texts(run.path / DATA), strict=True)
        return [Pair(line, source, target) for line, (source, target) in enumerate(islice(texts, rows), start=1)]
    if not (pairs := list(islice(read_pairs(file), rows))):
        raise ValueError(f"{file}: expected at least one pair, got none")
    return pairs
