"""Runs on texts, with their verbs."""

from typing import TYPE_CHECKING, Any

from chainrule_app.tasks.text.inspection import TextInspection, inspect_text
from chainrule_app.tasks.text.rows import TextScoring, score_text
from chainrule_app.tasks.text.sampling import (
    Sampler,
    TextEmbedding,
    TextSampling,
    embed_lines,
    sample_text,
    text_pieces,
)
from chainrule_app.tasks.text.task import TextTask

if TYPE_CHECKING:
    from chainrule_app.tasks.preview import OnValidation

_SAMPLE_LENGTH = {"char": 200, "byte": 200, "word": 40, "bpe": 60}


class TextRun(TextTask):
    Scoring, score = TextScoring, score_text
    Sampling, sample, pieces = TextSampling, sample_text, text_pieces
    Inspection, inspect = TextInspection, inspect_text
    Embedding, embed = TextEmbedding, embed_lines

    def on_validation(self) -> "OnValidation":
        vocabulary = self.vocabulary
        ends = vocabulary.eos if self.data.reading == "lines" else None

        def sample(trained: Any, step: int, seconds: float) -> str:
            sampler = Sampler(trained, vocabulary, eos=ends)
            return sampler.texts(1, vocabulary.begin(""), _SAMPLE_LENGTH[self.data.level], step)[0][0]

        return sample
