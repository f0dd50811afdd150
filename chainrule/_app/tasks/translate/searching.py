"""Translate sentences by beam search in batches of similar length, as symbols or text, and measure BLEU."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import torch

from chainrule._app.tasks.run_directory import DATA
from chainrule.data import Vocabulary
from chainrule.data._characters import split_words
from chainrule.data._pairs import held_out_texts, source_context
from chainrule.data._ragged import Ragged
from chainrule.decoding import Decoded, beam_search, rescored
from chainrule.models import Seq2Seq, TransformerSeq2Seq
from chainrule.training import MetricValue, ValidationMetric
from chainrule.training._validation import Rows

if TYPE_CHECKING:
    from chainrule._app.tasks.translate.task import TranslateTask
    from chainrule._base import TrainableModel

TranslationModel: TypeAlias = Seq2Seq | TransformerSeq2Seq
_COMPARED = 2000  # first held-out pairs: enough to distinguish epochs


def translations(
    model: TranslationModel, sources: Ragged, *, batch_size: int = 128, exact: bool = False, **search: Any
) -> list[Decoded]:
    """Search the most probable translations of each sentence, in order, in batches of similar length.

    `search` has options of `beam_search`, whose beam is 1 by default; `exact` scores each sentence alone.
    """
    order = np.argsort(sources.lengths, kind="stable")
    results: dict[int, Decoded] = {}
    search = {"beam_size": 1, "length_penalty": 0.0} | search
    scoring = {name: search[name] for name in ("eos", "length_penalty")}
    for first in range(0, len(order), batch_size):
        chosen = order[first : first + batch_size]
        decoded = beam_search(model, source_context(sources, chosen), **search)
        if exact:
            contexts = (_on_device(source_context(sources, chosen[[row]]), model) for row in range(len(chosen)))
            decoded = [rescored(model, context, row, **scoring) for context, row in zip(contexts, decoded, strict=True)]
        results.update(zip(chosen.tolist(), decoded, strict=True))
    return [results[index] for index in range(len(order))]


def _on_device(context: dict[str, torch.Tensor], model: TranslationModel) -> dict[str, torch.Tensor]:
    device = model.bias_ho.device
    return {name: leaf.to(device) for name, leaf in context.items()}


@dataclass(frozen=True)
class Translator:
    """Model with its vocabularies: text in, text out. An unknown word is replaced by the source word it attends to
    most."""

    model: TranslationModel  # in evaluation mode
    source_vocabulary: Vocabulary  # includes <eos>
    target_vocabulary: Vocabulary  # includes <eos>
    max_length: int  # maximum symbols of a translation, including <eos>

    def search(self, sources: Sequence[str], *, exact: bool = False, **search: Any) -> "list[list[Translation]]":
        """Return the n best translations of each sentence; takes the options of `translations`."""
        filled = [index for index, source in enumerate(sources) if source.strip()]
        numbers = Ragged.of([self.source_vocabulary.encode(f"{sources[index]}\n") for index in filled])
        search |= {"eos": self.target_vocabulary.eos, "max_length": self.max_length}
        results = translations(self.model, numbers, exact=exact, **search)
        answers = [[Translation("", 0.0, 0.0, True, True)] for _ in sources]
        for index, result in zip(filled, results, strict=True):
            texts = [self._text(sources[index], sequence.tolist()) for sequence in result.sequences]
            figures = zip(texts, result.log_probs.tolist(), result.scores.tolist(), result.ended.tolist(), strict=True)
            answers[index] = [Translation(*figure, result.proven) for figure in figures]
        return answers

    def symbols(self, source: str, target: str) -> tuple[list[str], list[str]]:
        """Return the printed symbols of a sentence and of its translation."""
        vocabularies = (self.source_vocabulary, source), (self.target_vocabulary, target)
        read, written = (
            [vocabulary.token(symbol) for symbol in vocabulary.encode(f"{text}\n")] for vocabulary, text in vocabularies
        )
        return read, written

    def attention(self, source: str, target: str) -> torch.Tensor:
        """Return the attention of each translated symbol over the source symbols, (T, S)."""
        return self._attended(source, self.target_vocabulary.encode(f"{target}\n").tolist())

    def _text(self, source: str, symbols: list[int]) -> str:
        unknown = self.target_vocabulary.unknown
        text = self.target_vocabulary.decode(symbols)
        if unknown is None or unknown not in symbols or not self.model.has_attention:
            return text
        source_words, words = split_words(source), split_words(text)
        attended = self._attended(source, symbols)[:, : len(source_words)].argmax(1).tolist()
        return " ".join(
            source_words[index] if symbol == unknown else word
            for word, symbol, index in zip(words, symbols, attended, strict=True)
        )

    @torch.no_grad()
    def _attended(self, source: str, symbols: list[int]) -> torch.Tensor:
        context = source_context(Ragged.of([self.source_vocabulary.encode(f"{source}\n")]), np.zeros(1, dtype=np.int64))
        x = torch.tensor([symbols], dtype=torch.long, device=self.model.bias_ho.device)
        return self.model.attended(x, _on_device(context, self.model))[0].cpu()


@dataclass(frozen=True)
class Translation:
    text: str  # without <eos>
    log_prob: float  # log-probability in nats
    score: float  # ranking score
    ended: bool  # reached <eos>
    proven: bool  # see Decoded.proven


def translation_metric(run: "TranslateTask") -> ValidationMetric:
    """Measure BLEU of greedy translations of held-out sentences; show another one each time."""
    from chainrule.metrics import bleu

    sources, references = (texts[:_COMPARED] for texts in held_out_texts(run.path / DATA))
    pairs, tokenize, longest = run.pairs, run.tokenize, run.longest

    def answer(model: "TrainableModel", rows: Rows) -> Sequence[str]:
        translator = Translator(
            cast(TranslationModel, model), pairs.source_vocabulary, pairs.target_vocabulary, longest
        )
        return [best.text for best, *_ in translator.search([sources[row] for row in rows])]

    def compare(rows: Rows, hypotheses: Sequence[str], step: int) -> MetricValue:
        index = int(np.random.default_rng(step).integers(len(rows)))
        source, reference = sources[rows[index]], references[rows[index]]
        example = f"source      {source}\nreference   {reference}\nhypothesis  {hypotheses[index]}"
        value = bleu(hypotheses, [references[row] for row in rows], tokenize=tokenize).value
        return MetricValue("bleu", value, example)

    return ValidationMetric(len(sources), answer, compare)
