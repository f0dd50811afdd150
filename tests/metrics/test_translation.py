"""BLEU and chrF are sacrebleu's, with their signatures."""

import math
import sys

import pytest

from chainrule.metrics import bleu, caption_bleu, chrf

REFERENCES = ["the cat sat on the mat .", "two dogs run ."]


def test_bleu_is_that_of_its_definition():
    hypotheses = ["the cat sat on a mat .", "two dogs run ."]
    found = bleu(hypotheses, REFERENCES, tokenize="none")
    precisions = [10 / 11, 7 / 9, 4 / 7, 2 / 5]  # of the 1-, 2-, 3- and 4-grams; the lengths are equal
    assert found.value == pytest.approx(100 * math.exp(sum(map(math.log, precisions)) / 4))
    assert (found.name, "tok:none" in found.signature) == ("BLEU", True)
    assert bleu(REFERENCES, REFERENCES).value == pytest.approx(100)
    assert "tok:13a" in bleu(REFERENCES, REFERENCES).signature


def test_chrf_looks_at_characters():
    assert chrf(REFERENCES, REFERENCES).value == pytest.approx(100)
    near, far = (chrf([text, REFERENCES[1]], REFERENCES).value for text in ("the cats sat on the mats .", "nothing"))
    assert 100 > near > far


def test_what_does_not_fit_is_named(monkeypatch):
    with pytest.raises(ValueError, match=r"hypotheses: .* got 1 for 2 references"):
        bleu(["a"], REFERENCES)
    with pytest.raises(ValueError, match="got 0 for 0"):
        chrf([], [])
    with pytest.raises(ValueError, match="expected a list of references for each caption, got a text"):
        caption_bleu(["a dog"], ["a dog"])  # was 50 of 100, of characters
    for captions, references in (([], []), (["a dog"], []), (["a dog"], [[]]), (["a dog"], [["a dog"], ["a cat"]])):
        with pytest.raises(ValueError, match=f"at least one for each of {len(captions)} captions"):
            caption_bleu(captions, references)
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(ValueError, match=r"pip install sacrebleu"):
        bleu(REFERENCES, REFERENCES)
