"""Translations compared with their references."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chainrule.tasks.abilities import Answer, Record

if TYPE_CHECKING:
    from chainrule.data.pairs import Pair, PairedSentences
    from chainrule.tasks.translate.task import TranslateTask


@dataclass(frozen=True)
class TranslationEvaluation:
    """Compare translations with references: BLEU and chrF by sacrebleu, with their signatures, and perplexity.

    Sentences are decoded, no word of a reference is shown to the model; perplexity, over all words and ends of the
    references, is the model's own exact likelihood.

    Args:
        data: Pairs, a line each: the source, a tab, the target; .gz too.
    """

    source: Path | None = None
    """In place of DATA: source sentences, a line each."""
    target: Path | None = None
    """Their references, a line each."""
    beam: int = 5
    """Prefixes kept alive by the search; 1 is greedy."""
    length_penalty: float = 1.0
    """α of the score log p / length^α by which translations are ranked."""
    tokenize: str | None = None
    """How BLEU cuts words: 13a, intl, char or none; as in training if not given."""


def evaluate_translator(
    run: "TranslateTask", data: str | None, options: TranslationEvaluation, *, device: str
) -> Answer:
    """Translate the sources of pairs, and compare with their targets."""
    from chainrule.data.pairs import pair_evaluation, read_pairs
    from chainrule.metrics.bleu import bleu, chrf
    from chainrule.tasks.translate.prediction import check_search, translator_of
    from chainrule.training.evaluate import evaluate

    check_search(options.beam, 1, options.length_penalty, None)
    source, target = options.source, options.target
    if (data is None) == (source is None) or (source is None) != (target is None):
        raise ValueError("DATA: expected pairs, or --source and --target in its place, and nothing else")
    first = Path(data) if source is None and data is not None else source
    assert first is not None
    pairs = list(read_pairs(first, target))
    if not pairs:
        raise ValueError(f"{first}: expected at least one pair, got none")
    numbers, translator = encoded_pairs(run, pairs, first, target), translator_of(run, None, device)
    found = translator.search(
        [pair.source for pair in pairs], beam_size=options.beam, length_penalty=options.length_penalty
    )
    hypotheses, references = [best.text for best, *_ in found], [pair.target for pair in pairs]
    scores = [bleu(hypotheses, references, tokenize=options.tokenize or run.tokenize), chrf(hypotheses, references)]
    perplexity = evaluate(translator.model, pair_evaluation(numbers)).perplexity
    figures = {
        "sentences": len(pairs),
        "beam": options.beam,
        "length_penalty": options.length_penalty,
        **{score.name: {"value": score.value, "signature": score.signature} for score in scores},
        "perplexity": perplexity,
    }
    search = "greedy" if options.beam == 1 else f"beam {options.beam}, length penalty {options.length_penalty:g}"
    lines = [f"{score.name:<10} {score.value:6.2f}  {score.signature}" for score in scores]
    lines.append(f"perplexity {perplexity:6.2f}  per symbol of the references, ends included")
    lines.append(f"{len(pairs):,} sentences, {search}")
    return Answer(iter([Record(figures, "\n".join(lines))]))


def encoded_pairs(run: "TranslateTask", pairs: "list[Pair]", source: Path, target: Path | None) -> "PairedSentences":
    """Pairs as numbers.

    Raises:
        ValueError: a sentence is longer than the run allows; the message names the file and the line.
    """
    from chainrule.data.pairs import PairedSentences, encode_sentence
    from chainrule.data.ragged import Ragged

    limit, known = run.data.max_length, run.pairs

    def sides() -> "Iterator[Ragged]":
        for vocabulary, side, file in (
            (known.source_vocabulary, "source", source),
            (known.target_vocabulary, "target", target or source),
        ):
            yield Ragged.of(
                [encode_sentence(vocabulary, getattr(pair, side), limit, str(file), pair.line) for pair in pairs]
            )

    return PairedSentences(*sides())
