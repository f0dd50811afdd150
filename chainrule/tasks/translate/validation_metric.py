"""Metric of a translator on held-out sentences."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from chainrule.data.pairs import held_out_texts
from chainrule.metrics.bleu import bleu
from chainrule.tasks.run_directory import DATA
from chainrule.tasks.translate.searching import TranslationModel, Translator
from chainrule.training.validation import MetricValue, Rows, ValidationMetric

if TYPE_CHECKING:
    from chainrule.base import TrainableModel
    from chainrule.tasks.translate.task import TranslateTask

_COMPARED = 2000  # of the held-out pairs, the first: as many as tell one epoch from the next


def translation_metric(run: "TranslateTask") -> ValidationMetric:
    """BLEU of greedy translations of the held-out sentences; with it one of them, another each time."""
    sources, references = (texts[:_COMPARED] for texts in held_out_texts(run.path / DATA))
    pairs, tokenize, longest = run.pairs, run.tokenize, run.longest

    def answer(model: "TrainableModel", rows: Rows) -> Sequence[str]:
        translator = Translator(
            cast(TranslationModel, model), pairs.source_vocabulary, pairs.target_vocabulary, longest
        )
        return [best.text for best, *_ in translator.search([sources[row] for row in rows])]

    def compare(rows: Rows, hypotheses: Sequence[str], step: int) -> MetricValue:
        place = int(np.random.default_rng(step).integers(len(rows)))
        source, reference = sources[rows[place]], references[rows[place]]
        example = f"source      {source}\nreference   {reference}\nhypothesis  {hypotheses[place]}"
        value = bleu(hypotheses, [references[row] for row in rows], tokenize=tokenize).value
        return MetricValue("bleu", value, example)

    return ValidationMetric(len(sources), answer, compare)
