"""The scores of templates of a run: how many passes they get, and the table, fitted once and kept beside the data.

data/templates.safetensors            the table
"""

from time import monotonic
from typing import TYPE_CHECKING, Any

from chainrule._app.tasks.run_directory import DATA
from chainrule.layers._template_scores import TemplateScores
from chainrule.training import load_weights, save_weights

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule._app.tasks.tag.task import TagTask
    from chainrule.training import TrainingBatches

_FILE = "templates.safetensors"
_PASSES = 3.0  # more gained nothing on UD English EWT
_FEWEST = 0.01
_SHARE = 0.1  # of a budget, at most
_TIMED = 8  # steps


def usual_passes(run: "TagTask", batches: "TrainingBatches", passes: float) -> float:
    """Passes over the sentences in which the table of a new run is fitted."""
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
    """Scores that say nothing yet. The first number is that of characters that were never seen."""
    return TemplateScores(["", *run.vocabulary.characters], len(run.vocabulary.tags))


def fitted_templates(run: "TagTask", passes: float) -> TemplateScores:
    """The scores of a run: fitted, or read where that was done before."""
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
