"""BLEU against several references."""

from collections.abc import Sequence
from typing import Any

from chainrule.metrics.translation import TranslationScore, sacrebleu


def caption_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], order: int = 4) -> TranslationScore:
    """Corpus BLEU-`order` with any number of references each (Papineni et al. 2002), by sacrebleu.

    Captions are compared as they stand, lower-cased, words cut at blanks.

    Args:
        hypotheses: N captions.
        references: of each, at least one.
        order: longest n-grams counted: 4 is BLEU-4.

    Raises:
        ValueError: there is nothing to compare, or as many references as captions are not given; sacrebleu is missing.

    >>> score = caption_bleu(["a dog runs on grass"], [["a dog runs on the grass", "a dog runs on grass"]])
    >>> round(score.value, 3)
    100.0
    """
    if not hypotheses or len(hypotheses) != len(references) or not all(references):
        raise ValueError(
            f"references: expected at least one for each of {len(hypotheses)} captions, got {len(references)}"
        )
    most = max(map(len, references))
    streams: list[Any] = [[own[place] if place < len(own) else None for own in references] for place in range(most)]
    metric = sacrebleu().metrics.BLEU(lowercase=True, tokenize="none", force=True, max_ngram_order=order)
    value = float(metric.corpus_score(list(hypotheses), streams).score)
    return TranslationScore(f"BLEU-{order}", value, str(metric.get_signature()))
