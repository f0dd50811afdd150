"""BLEU and chrF of translations and captions, by sacrebleu."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class TranslationScore:
    """Score of a whole corpus.

    Attributes:
        name: BLEU or chrF2.
        value: score from 0 to 100, higher is better.
        signature: sacrebleu's signature, to report with the value.
    """

    name: str
    value: float
    signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[str], *, tokenize: str = "13a") -> TranslationScore:
    r"""Compute corpus BLEU (Papineni et al. 2002; sacrebleu, Post 2018), with one reference per hypothesis.

    .. math:: \mathrm{BLEU} = 100\, \min(1, e^{1 - r/c}) \Bigl(\prod_{n=1}^{4} p_n\Bigr)^{1/4}

    with p_n the share of the hypotheses' n-grams that occur in their references, c and r the total lengths of
    hypotheses and references.

    Args:
        hypotheses: N translations.
        references: N references, in the same order.
        tokenize: sacrebleu's tokeniser: "13a" for ordinary text, "none" if words and punctuation are already separate.

    >>> score = bleu(["a cat sat on the mat"], ["a cat sat on the mat"])
    >>> round(score.value, 3), score.signature.split("|")[:2]
    (100.0, ['nrefs:1', 'case:mixed'])
    """
    _check(hypotheses, references)
    # force: suppress the warning about tokenised text, because the caller chose the tokeniser.
    metric = sacrebleu().metrics.BLEU(tokenize=tokenize, force=True)
    return _scored(metric, "BLEU", hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> TranslationScore:
    """Compute corpus chrF2, the F-score of character n-grams (Popović 2015); see `bleu`.

    >>> round(chrf(["a cat"], ["a cat"]).value, 3)
    100.0
    """
    _check(hypotheses, references)
    return _scored(sacrebleu().metrics.CHRF(), "chrF2", hypotheses, references)


def _scored(metric: Any, name: str, hypotheses: Sequence[str], references: Sequence[str]) -> TranslationScore:
    value = float(metric.corpus_score(list(hypotheses), [list(references)]).score)
    return TranslationScore(name, value, str(metric.get_signature()))


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references) or not references:
        raise ValueError(
            f"hypotheses: expected one per reference, and at least one, "
            f"got {len(hypotheses)} for {len(references)} references"
        )


def sacrebleu() -> Any:
    """Import sacrebleu, or raise ValueError."""
    try:
        module = import_module("sacrebleu")
    except ImportError:
        raise ValueError(
            "BLEU and chrF need the package sacrebleu, which is not installed: pip install sacrebleu"
        ) from None
    return module


def caption_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], order: int = 4) -> TranslationScore:
    """Compute corpus BLEU-`order` with several references per caption (Papineni et al. 2002), by sacrebleu.

    Captions are lower-cased and split at blanks.

    Args:
        hypotheses: N captions.
        references: references of each caption, at least one.
        order: length of the longest n-grams: 4 is BLEU-4.

    >>> score = caption_bleu(["a dog runs on grass"], [["a dog runs on the grass", "a dog runs on grass"]])
    >>> round(score.value, 3)
    100.0
    """
    if not hypotheses or len(hypotheses) != len(references) or not all(references):
        raise ValueError(
            f"references: expected at least one for each of {len(hypotheses)} captions, got {len(references)}"
        )
    if any(isinstance(own, str) for own in references):  # sacrebleu would take each character for a reference
        raise ValueError("references: expected a list of references for each caption, got a text")
    most = max(map(len, references))
    streams: list[Any] = [[own[index] if index < len(own) else None for own in references] for index in range(most)]
    metric = sacrebleu().metrics.BLEU(lowercase=True, tokenize="none", force=True, max_ngram_order=order)
    value = float(metric.corpus_score(list(hypotheses), streams).score)
    return TranslationScore(f"BLEU-{order}", value, str(metric.get_signature()))
