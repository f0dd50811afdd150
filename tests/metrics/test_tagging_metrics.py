"""Accuracy and entity F1 against counts by hand."""

import math

import pytest

from chainrule.metrics import entity_scores, tag_accuracy

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
