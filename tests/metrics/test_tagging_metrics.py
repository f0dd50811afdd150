"""Accuracy, entities and their scores against counts by hand, an older library's figures and regular expressions."""

import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.metrics import entity_scores, find_entities, tag_accuracy

GOLD = [["B-P", "I-P", "O", "B-L"], ["O", "B-P"], []]


def test_an_entity_counts_when_boundaries_and_type_are_right():
    found = [["B-P", "I-P", "O", "B-P"], ["B-L", "B-P"], []]
    scores = entity_scores(GOLD, found)
    # right: P at 0-1, P at 1; predicted 4, true 3
    assert (scores.precision, scores.recall) == (pytest.approx(2 / 4), pytest.approx(2 / 3))
    assert scores.f1 == pytest.approx(2 * (1 / 2) * (2 / 3) / (1 / 2 + 2 / 3))
    assert scores.entities == 3
    assert scores.by_type == {"L": (0.0, 1), "P": (pytest.approx(4 / 5), 2)}


def test_a_half_found_entity_is_not_found():
    assert entity_scores([["B-P", "I-P"]], [["B-P", "O"]]).f1 == 0


def test_types_may_have_hyphens():
    assert entity_scores([["B-creative-work"]], [["B-creative-work"]]).by_type == {"creative-work": (1.0, 1)}


def test_nothing_to_find_and_nothing_found_is_no_warning():
    assert entity_scores([["O"], []], [["O"], []]).f1 == 0
    assert entity_scores([["O"]], [["B-P"]]).f1 == 0
    assert entity_scores([["B-P"]], [["O"]]).f1 == 0


def test_words_are_counted_once_and_unknown_ones_apart():
    scores = tag_accuracy(
        [["D", "N", "V"], ["N"], []], [["D", "V", "V"], ["V"], []], [[False, True, False], [True], []]
    )
    assert (scores.right, scores.words, scores.unknown_right, scores.unknown_words) == (2, 4, 0, 2)
    assert scores.accuracy == 0.5
    assert scores.confused == (("N", "V", 2),)


def test_no_words_have_no_accuracy():
    assert math.isnan(tag_accuracy([[]], [[]], [[]]).accuracy)


def test_rows_of_other_lengths_are_refused():
    with pytest.raises(ValueError, match="predicted: expected 2 tags in sentence 0, got 1"):
        entity_scores([["O", "O"]], [["O"]])
    with pytest.raises(ValueError, match="zip"):
        tag_accuracy([["O", "O"]], [["O"]], [[False, False]])


# Written by the seqeval package; "about" in the file says how, "seed" drew the sequences.
FIXTURE = json.loads((Path(__file__).parent / "seqeval_scores.json").read_text())
TAGS = ("O", *(f"{letter}-{kind}" for letter in "BIES" for kind in ("P", "L-M")))
ROWS = st.lists(st.sampled_from(TAGS), max_size=8)


def test_the_scores_are_those_of_seqeval_on_random_sequences():
    assert len(FIXTURE["cases"]) > 200
    for case in FIXTURE["cases"]:
        gold, predicted = ([row.split() for row in case[name]] for name in ("gold", "predicted"))
        scores = entity_scores(gold, predicted)
        # the fixture has twelve decimals
        assert (scores.precision, scores.recall, scores.f1, scores.entities) == pytest.approx(case["micro"], abs=1e-11)
        assert scores.by_type.keys() == case["by_type"].keys()
        for name, (f1, entities) in case["by_type"].items():
            assert scores.by_type[name] == (pytest.approx(f1, abs=1e-11), entities)


@given(ROWS)
def test_entities_are_the_matches_of_a_pattern_over_the_letters(row):
    assert set(find_entities(row)) == matched(row)


@given(st.lists(st.tuples(ROWS, ROWS), max_size=4))
def test_scores_are_counts_of_common_entities(pairs):
    pairs = [(gold[: len(found)], found[: len(gold)]) for gold, found in pairs]
    scores = entity_scores([gold for gold, _ in pairs], [found for _, found in pairs])
    right = sum(len(matched(gold) & matched(found)) for gold, found in pairs)
    true, found = (sum(len(matched(pair[side])) for pair in pairs) for side in (0, 1))
    assert scores.entities == true
    assert scores.precision * found == pytest.approx(right)
    assert scores.recall * true == pytest.approx(right)
    assert scores.f1 * (true + found) == pytest.approx(2 * right)


def matched(row):
    """The entities of each type, by a regular expression over the letters of its tags, other tags shown as O."""
    found = set()
    for kind in {tag[2:] for tag in row} - {""}:
        letters = "".join(tag[0] if tag[2:] == kind else "O" for tag in row)
        found |= {(kind, *match.span()) for match in re.finditer("S|[BI]I*E?|E", letters)}
    return found
