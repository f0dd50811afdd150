"""BLEU of translations and of captions, by sacrebleu."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class TranslationScore:
    """A figure over a whole corpus, and how it was computed.

    Attributes:
        name: BLEU or chrF2.
        value: from 0 to 100, higher is better.
        signature: sacrebleu's, to be given with the value.
    """

    name: str
    value: float
    signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[str], *, tokenize: str = "13a") -> TranslationScore:
    r"""Corpus BLEU (Papineni et al. 2002; sacrebleu, Post 2018), one reference each.

    .. math:: \mathrm{BLEU} = 100\, \min(1, e^{1 - r/c}) \Bigl(\prod_{n=1}^{4} p_n\Bigr)^{1/4}

    with p_n the share of the hypotheses' n-grams that their references hold, and lengths c and r of all hypotheses and
    all references.

    Args:
        hypotheses: N translations.
        references: N, in the same order.
        tokenize: how sacrebleu cuts words: "13a" where texts are as people write them, "none" where words and
            punctuation are separate already.

    Raises:
        ValueError: there are no sentences, or not as many of both; sacrebleu is not installed.

    >>> score = bleu(["a cat sat on the mat"], ["a cat sat on the mat"])
    >>> round(score.value, 3), score.signature.split("|")[:2]
    (100.0, ['nrefs:1', 'case:mixed'])
    """
    _check(hypotheses, references)
    # force: the warning that a text looks tokenised is for those who do not say how it is to be cut.
    metric = sacrebleu().metrics.BLEU(tokenize=tokenize, force=True)
    return _scored(metric, "BLEU", hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> TranslationScore:
    """Corpus chrF2, the F-score of character n-grams (Popović 2015), one reference each; as `bleu`.

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
            f"hypotheses: expected one for each reference, and at least one, "
            f"got {len(hypotheses)} for {len(references)} references"
        )


def sacrebleu() -> Any:
    """The module.

    Raises:
        ValueError: it is not installed.
    """
    try:
        module = import_module("sacrebleu")
    except ImportError:
        raise ValueError(
            "BLEU and chrF need the package sacrebleu, which is not installed: pip install sacrebleu"
        ) from None
    return module


def caption_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], order: int = 4) -> TranslationScore:
    """Corpus BLEU-`order` with any number of references each (Papineni et al. 2002), by sacrebleu.

    Captions are compared lower-cased, words cut at blanks.

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
