"""BLEU of captions of held-out images."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from chainrule.metrics.bleu import caption_bleu
from chainrule.tasks.caption.searching import search, words_of
from chainrule.training.validation import MetricValue, Rows, ValidationMetric

if TYPE_CHECKING:
    from chainrule.base import TrainableModel
    from chainrule.models.captioner import Captioner
    from chainrule.tasks.caption.task import CaptionTask

_COMPARED = 300  # held-out images whose captions are compared at each validation
_SHOWN = 2


def caption_metric(run: "CaptionTask") -> ValidationMetric:
    """BLEU-4 of greedy captions of the first held-out images; with two of them and a reference of each."""
    vocabulary, valid = run.prepared.vocabulary, run.prepared.valid
    references = [run.held_out_captions(image) for image in range(min(_COMPARED, len(valid)))]

    def answer(model: "TrainableModel", rows: Rows) -> Sequence[str]:
        images = (valid.images[row] for row in rows)
        found = search(cast("Captioner", model), images, vocabulary, beam=1, max_length=run.data.max_length)
        return [words_of(each, vocabulary)[0] for each in found]

    def compare(rows: Rows, captions: Sequence[str], step: int) -> MetricValue:
        true = [references[row] for row in rows]
        shown = [f"{caption}   ({row[0]})" for caption, row in list(zip(captions, true, strict=True))[:_SHOWN]]
        return MetricValue("bleu", caption_bleu(captions, true).value, "\n".join(shown))

    return ValidationMetric(len(references), answer, compare)
