"""Runs on texts, with their verbs."""

from chainrule_app.tasks.text.inspection import TextInspection, inspect_text
from chainrule_app.tasks.text.rows import TextScoring, score_text
from chainrule_app.tasks.text.sampling import (
    TextEmbedding,
    TextSampling,
    embed_lines,
    sample_text,
    text_pieces,
)
from chainrule_app.tasks.text.task import TextTask


class TextRun(TextTask):
    Scoring, score = TextScoring, score_text
    Sampling, sample, pieces = TextSampling, sample_text, text_pieces
    Inspection, inspect = TextInspection, inspect_text
    Embedding, embed = TextEmbedding, embed_lines
