"""Templates fitted before training, kept as data/templates.safetensors, and the validation metric of a tagger."""

from collections.abc import Iterable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from chainrule._app.tasks.run_directory import DATA
from chainrule.data import _tagged
from chainrule.layers._word_forms import TemplateScores
from chainrule.training import MetricValue, ValidationMetric, load_weights, save_weights
from chainrule.training._validation import Rows

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule._app.tasks.tag.task import TagTask
    from chainrule._base import TrainableModel
    from chainrule.data import Batch
    from chainrule.data._tagged import TaggedCorpus, TaggedVocabulary
    from chainrule.models import SequenceTagger
    from chainrule.training import TrainingBatches

_FILE = "templates.safetensors"
_PASSES = 3.0  # more gained nothing on UD English EWT
_FEWEST = 0.01
_SHARE = 0.1  # of a budget, at most
_TIMED = 8  # steps


def default_passes(run: "TagTask", batches: "TrainingBatches", passes: float) -> float:
    """Choose the passes that fit the templates: at most three, in at most a tenth of the budget; none for spans."""
    if run.facts.scheme is not None:
        return 0.0
    budget = run.config.duration.budget
    if budget is None:
        return min(_PASSES, passes)
    steps = min(_TIMED, batches.steps_per_epoch)
    scores = new_templates(run)
    _fit(scores, batches, 1)  # the first step takes longer
    began = monotonic()
    _fit(scores, batches, steps)
    of_a_pass = (monotonic() - began) / steps * batches.steps_per_epoch
    return round(min(_PASSES, max(_FEWEST, _SHARE * budget / of_a_pass)), 2)


def new_templates(run: "TagTask") -> TemplateScores:
    """Return empty template scores; symbol 0 stands for unseen characters."""
    return TemplateScores(["", *run.vocabulary.characters], len(run.vocabulary.tags))


def fitted_templates(run: "TagTask", passes: float) -> TemplateScores:
    """Return the template scores of a run: read if they exist, else fitted."""
    scores, path = new_templates(run), run.path / DATA / _FILE
    if path.is_file():
        load_weights(path, scores)
        return scores
    batches, _ = run.batches((0, 1))
    _fit(scores, batches, max(1, round(passes * batches.steps_per_epoch)))
    save_weights(path, scores, {})
    return scores


def _fit(scores: TemplateScores, batches: "TrainingBatches", steps: int) -> None:
    def tagged_words(step: int) -> "tuple[Tensor, Tensor | None, Tensor]":
        batch = batches.at(step)
        context: Any = batch.context
        return context["characters"], batch.lengths, batch.x

    scores.fit(tagged_words, steps)


_SHOWN = 14  # words of an example


@torch.no_grad()
def predicted_tags(
    model: "SequenceTagger", batches: Iterable["Batch"], vocabulary: "TaggedVocabulary"
) -> Iterator[list[str]]:
    """Predict the tags of each sentence, in order; expects a model in evaluation mode."""
    from chainrule.state import map_state

    device = next(model.parameters()).device
    for batch in batches:
        assert batch.lengths is not None
        context = map_state(lambda part: part.to(device), batch.context)
        rows = model.decode(context, batch.lengths.to(device)).tolist()
        for row, length in zip(rows, batch.lengths.tolist(), strict=True):
            yield [vocabulary.tags[tag] for tag in row[:length]]


def tag_metric(corpus: "TaggedCorpus") -> ValidationMetric:
    """Measure entity F1 if the tags mark spans, else word accuracy; show another sentence each time."""
    from chainrule.metrics import entity_scores, tag_accuracy

    vocabulary = corpus.vocabulary
    gold = [
        [vocabulary.tags[tag] for tag in row[:length]]
        for batch in _tagged.tagged_evaluation(corpus.valid)
        if batch.lengths is not None
        for row, length in zip(batch.x.tolist(), batch.lengths.tolist(), strict=True)
    ]
    unknown = [[not vocabulary.word(word) for word in words] for words in corpus.valid_words]
    marks_spans = vocabulary.scheme is not None
    interesting = {number for number, row in enumerate(gold) if len(row) > 1 and (not marks_spans or set(row) != {"O"})}

    def answer(model: "TrainableModel", rows: Rows) -> Sequence[list[str]]:
        batches = _tagged.tagged_evaluation(corpus.valid, rows=rows)
        return list(predicted_tags(cast("SequenceTagger", model), batches, vocabulary))

    def compare(rows: Rows, predicted: Sequence[list[str]], step: int) -> MetricValue:
        true, example = [gold[row] for row in rows], ""
        candidates = [index for index, row in enumerate(rows) if int(row) in interesting]
        if candidates:
            index = candidates[int(np.random.default_rng(step).integers(len(candidates)))]
            example = side_by_side(corpus.valid_words[rows[index]], true[index], predicted[index])
        if marks_spans:
            return MetricValue(
                "f1", entity_scores(*(list(map(vocabulary.standard, rows)) for rows in (true, predicted))).f1, example
            )
        return MetricValue("accuracy", tag_accuracy(true, predicted, [unknown[row] for row in rows]).accuracy, example)

    return ValidationMetric(len(gold), answer, compare)


def side_by_side(words: Sequence[str], gold: Sequence[str], predicted: Sequence[str]) -> str:
    """Format a tagged sentence; wrong tags show the right one."""
    cells = [
        f"{word}/{tag}" if tag == true else f"{word}/{tag}(is {true})"
        for word, true, tag in zip(words, gold, predicted, strict=True)
    ]
    return " ".join(cells[:_SHOWN]) + (" ..." if len(cells) > _SHOWN else "")
