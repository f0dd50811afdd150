"""Runs on texts, with their verbs and their likelihood."""

from dataclasses import asdict, replace
from hashlib import sha256
from json import dumps
from typing import TYPE_CHECKING, Any

from chainrule_app.printing import counted
from chainrule_app.tasks.capabilities import CheckedRows, FileCodec
from chainrule_app.tasks.likelihood_record import Basis, LikelihoodRecord
from chainrule_app.tasks.text.inspection import TextInspection, inspect_text
from chainrule_app.tasks.text.rows import TextScoring, score_text
from chainrule_app.tasks.text.sampling import (
    TextEmbedding,
    TextSampling,
    embed_lines,
    sample_text,
    text_pieces,
)
from chainrule_app.tasks.text.task import ELEMENT, TextTask, positions_end

if TYPE_CHECKING:
    from chainrule.training import Evaluation as Measurement

_CHECKED_ROWS, _CHECKED_ELEMENTS = 4, 32


class TextRun(TextTask):
    Scoring, score = TextScoring, score_text
    Sampling, sample, pieces = TextSampling, sample_text, text_pieces
    Inspection, inspect = TextInspection, inspect_text
    Embedding, embed = TextEmbedding, embed_lines

    def best(self, evaluation: "Measurement", value: float | None, rows: int) -> tuple[dict[str, Any], str]:
        from chainrule_app.tasks.text.figures import describe_figures, text_figures

        counts = self.facts.valid
        figures = text_figures(evaluation.nats_per_element * counts.elements, asdict(counts))
        # A validation that would take too much of the run reads a part, the same each time.
        whole = evaluation.elements >= counts.elements
        part = "" if whole else f"first {evaluation.elements:,} of {counted(counts.elements, 'symbol')} of the "
        return (
            {"bits_per_element": evaluation.bits_per_element, "perplexity": evaluation.perplexity} | figures,
            f"{evaluation.bits_per_element:.4f} bits ({evaluation.nats_per_element:.4f} nats) per "
            f"{ELEMENT[self.data.level]} on the {part}held-out text, perplexity {evaluation.perplexity:.4g}; "
            f"{describe_figures(figures, of_characters=self.data.level == 'char')}",
        )

    def more_facts(self) -> dict[str, Any]:
        return {"vocabulary_size": len(self.vocabulary)}

    @property
    def basis(self) -> Basis:
        digest = sha256(dumps(self.vocabulary.to_json(), sort_keys=True).encode()).hexdigest()
        level = self.data.level
        tokens = f"{level} level, {counted(len(self.vocabulary), 'symbol')} ({digest[:8]}), {self.data.reading}"
        return Basis("symbol", tokens=tokens)

    def held_out_sources(self) -> dict[str, Any]:
        sources = super().held_out_sources()
        sources.pop("seed", None)  # the tail is held out
        sources.pop("tokenizer", None)  # which changes the symbols, not the text
        return sources

    def held_out(self) -> LikelihoodRecord | None:
        entry, counts = super().held_out(), self.facts.valid
        if entry is None:
            return None
        return replace(entry, bytes=round(counts.bytes * entry.elements / counts.elements))

    def checked_rows(self) -> CheckedRows:
        from chainrule_app.tasks.text.windows import own_window

        elements = min(_CHECKED_ELEMENTS, positions_end(self.config) or _CHECKED_ELEMENTS)
        x, lengths, _ = own_window(self, _CHECKED_ROWS, elements)
        return CheckedRows(self.model(), x, lengths=lengths)

    def codec(self) -> FileCodec:
        from chainrule_app.tasks.text.compression import TextCodec

        return TextCodec(self.vocabulary, self.data.reading, ELEMENT[self.data.level])
