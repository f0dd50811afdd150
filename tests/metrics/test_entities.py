"""Entities and their scores against an older library's figures and against regular expressions."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.metrics import entity_scores, find_entities

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
