"""`chainrule evaluate RUN DATA` on a run of a translator."""

import json as json_format
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def evaluate(
    run: Path,
    data: Path | None = None,
    /,
    *,
    source: Path | None = None,
    target: Path | None = None,
    beam: int = 5,
    length_penalty: float = 1.0,
    tokenize: str | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
    device: str = "auto",
) -> None:
    """Compare translations with references: BLEU and chrF by sacrebleu, with their signatures, and perplexity.

    Sentences are decoded, no word of a reference is shown to the model; perplexity, over all words and ends of the
    references, is the model's own exact likelihood.

    Args:
        run: The run directory.
        data: Pairs, a line each: the source, a tab, the target; .gz too.
        source: In place of DATA: source sentences, a line each.
        target: Their references, a line each.
        beam: Prefixes kept alive by the search; 1 is greedy.
        length_penalty: α of the score log p / length^α by which translations are ranked.
        tokenize: How BLEU cuts words: 13a, intl, char or none; as in training if not given.
        json: Print the figures as one JSON object.
        device: Where to compute: auto, cpu or cuda.
    """
    from chainrule.cli.translate.translate import check_search, translator_of
    from chainrule.data.pairs import PairedSentences, Sentences, encode_sentence, pair_evaluation, read_pairs
    from chainrule.metrics.translation import bleu, chrf
    from chainrule.runs.translate import TranslateRun
    from chainrule.training.evaluate import evaluate as likelihood

    check_search(beam, 1, length_penalty, None)
    if (data is None) == (source is None) or (source is None) != (target is None):
        raise ValueError("DATA: expected pairs, or --source and --target in its place, and nothing else")
    opened = TranslateRun.open(run)
    first = data or source
    assert first is not None
    pairs = list(read_pairs(first, target))
    if not pairs:
        raise ValueError(f"{first}: expected at least one pair, got none")
    translator, limit = translator_of(opened, None, device), opened.data.max_length
    vocabularies = opened.pairs
    numbers = PairedSentences(
        Sentences.of(
            [
                encode_sentence(vocabularies.source_vocabulary, pair.source, limit, str(first), pair.line)
                for pair in pairs
            ]
        ),
        Sentences.of(
            [
                encode_sentence(vocabularies.target_vocabulary, pair.target, limit, str(target or first), pair.line)
                for pair in pairs
            ]
        ),
    )
    found = translator.search([pair.source for pair in pairs], beam_size=beam, length_penalty=length_penalty)
    hypotheses, references = [best.text for best, *_ in found], [pair.target for pair in pairs]
    scores = [bleu(hypotheses, references, tokenize=tokenize or opened.tokenize), chrf(hypotheses, references)]
    perplexity = likelihood(translator.model, pair_evaluation(numbers)).perplexity
    if json:
        figures = {
            "sentences": len(pairs),
            "beam": beam,
            "length_penalty": length_penalty,
            **{score.name: {"value": score.value, "signature": score.signature} for score in scores},
            "perplexity": perplexity,
        }
        print(json_format.dumps(figures))
        return
    search = "greedy" if beam == 1 else f"beam {beam}, length penalty {length_penalty:g}"
    for score in scores:
        print(f"{score.name:<10} {score.value:6.2f}  {score.signature}")
    print(f"perplexity {perplexity:6.2f}  per symbol of the references, ends included")
    print(f"{len(pairs):,} sentences, {search}")
