"""Schemes of tags that mark spans: found, checked, repaired."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.heads import TagConstraints
from chainrule.metrics import entity_scores
from chainrule_app.readers.tagged.tag_schemes import find_scheme, find_spelling, impossible, repaired

BIO = ["O", "B-X", "I-X", "B-Y", "I-Y"]
BIOES = [*BIO, "E-X", "S-X", "E-Y", "S-Y"]
ROWS = {"bio": st.lists(st.sampled_from(BIO), max_size=7), "bioes": st.lists(st.sampled_from(BIOES), max_size=7)}


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        (BIO, "bio"),
        (["O", "I-X"], "bio"),
        (BIOES, "bioes"),
        (["NOUN", "VERB"], None),
        (["O"], None),
        (["B-X", "NOUN"], None),
        (["B-creative-work", "I-creative-work", "O"], "bio"),
        (["A-X", "B-X"], None),
    ],
)
def test_the_scheme_is_seen_from_the_tags(tags, scheme):
    assert find_scheme(tags) == scheme


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        (["O", "B-X", "M-X", "E-X", "S-X"], "bioes"),
        (["O", "B-X", "M-X", "E-X", "W-X"], "bioes"),
        (["O", "B-X", "I-X", "L-X", "U-X"], "bioes"),
        (["B", "M", "E", "S"], "bioes"),
        (["O", "B", "I"], "bio"),
        (["o", "b-x", "i-x"], "bio"),
        (["O", "B_X", "I_X", "B_Y"], "bio"),
        (["O", "X-B", "X-I", "Y-E", "Y-S", "Y-B"], "bioes"),
        (["O", "X.b", "X.i"], "bio"),
    ],
)
def test_every_usual_spelling_of_spans_is_recognised(tags, scheme):
    spelling = find_spelling(tags)
    assert spelling.scheme == scheme
    assert [spelling.own(spelling.standard(tag)) for tag in tags] == tags
    standard = {spelling.standard(tag) for tag in tags}
    assert find_spelling(standard).standard("B-X") == "B-X"
    assert find_scheme(standard) == scheme


def test_a_tag_that_no_row_has_is_spelt_as_the_others():
    spelling = find_spelling(["O", "X-B", "X-M"])
    assert spelling.own("E-Y") == "Y-E"
    assert find_spelling(["O", "B_X", "U_X"]).own("E-X") == "L_X"


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        (
            ["O", "B-X", "I-X", "NOUN"],
            "B-X and I-X mark spans, but 'NOUN' is not a tag of this scheme: use B-X and I-X",
        ),
        (["OUT", "B_X", "I_X"], "B_X and I_X mark spans, but 'OUT' is not a tag"),
        (["O", "B-X", "I-X", "i-X"], "B-X and I-X mark spans, but two letters mean the same"),
        (["(PER*", "*)", "*"], "marks a span by brackets: use B-X, I-X and O"),
    ],
)
def test_tags_that_mark_spans_in_part_are_refused(tags, message):
    with pytest.raises(ValueError, match=message):
        find_scheme(tags)


@pytest.mark.parametrize(("names", "make"), [(BIO, TagConstraints.bio), (BIOES, TagConstraints.bioes)])
def test_what_is_impossible_is_what_the_constraints_forbid(names, make):
    scheme, constraints = find_scheme(names), make(names)
    for length in range(1, 4):
        for numbers in itertools.product(range(len(names)), repeat=length):
            allowed = bool(constraints.starts[numbers[0]]) and bool(constraints.ends[numbers[-1]])
            allowed = allowed and all(constraints.transitions[a, b] for a, b in itertools.pairwise(numbers))
            assert (impossible([names[n] for n in numbers], scheme) is None) == allowed


@pytest.mark.parametrize(
    ("tags", "scheme", "expected"),
    [
        (["O", "I-X"], "bio", (1, "I-X after O")),
        (["I-X"], "bio", (0, "I-X first in its sentence")),
        (["B-X", "I-Y"], "bio", (1, "I-Y after B-X")),
        (["B-X"], "bioes", (0, "B-X last in its sentence")),
        (["B-X", "B-X", "E-X"], "bioes", (1, "B-X after B-X")),
        ([], "bio", None),
    ],
)
def test_the_first_fault_is_named(tags, scheme, expected):
    assert impossible(tags, scheme) == expected


@pytest.mark.parametrize("scheme", ["bio", "bioes"])
@given(data=st.data())
def test_repair_keeps_the_scheme_and_leaves_what_keeps_it(scheme, data):
    row = data.draw(ROWS[scheme])
    whole = repaired(row, scheme)
    assert impossible(whole, scheme) is None
    assert [tag == "O" for tag in whole] == [tag == "O" for tag in row]
    assert [tag[1:] for tag in whole] == [tag[1:] for tag in row]
    if impossible(row, scheme) is None:
        assert whole == row


@given(row=ROWS["bio"])
def test_repair_reads_the_entities_that_the_scorer_reads(row):
    scores = entity_scores([row], [repaired(row, "bio")])
    assert scores.f1 == 1 or set(row) <= {"O"}


def test_the_older_scheme_iob1_becomes_bio():
    assert repaired(["I-X", "I-X", "B-X", "O", "I-Y"], "bio") == ["B-X", "I-X", "B-X", "O", "B-Y"]


def test_iob1_is_recognised():
    from chainrule_app.readers.tagged.tag_schemes import is_iob1

    assert is_iob1([["O", "I-X", "I-X"], ["I-X", "B-X", "I-Y"]])
    assert not is_iob1([["I-X"], ["O", "B-X"]])  # a B after O: of BIO, with a fault
    assert not is_iob1([["I-Y", "B-X"]])  # between types IOB1 needs none
    assert not is_iob1([["B-X", "I-X", "O"]])
