"""A sequence of tags is allowed exactly where its spans are well formed."""

import itertools

import pytest
import torch

from chainrule.heads import LinearChainCRF, TagConstraints

BIO = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
BIOES = ["O", "B-PER", "I-PER", "E-PER", "S-PER", "B-LOC", "I-LOC", "E-LOC", "S-LOC"]


def well_formed_bio(tags):
    return all(
        not tag.startswith("I-") or before in (f"B-{tag[2:]}", tag) for before, tag in itertools.pairwise(["O", *tags])
    )


def well_formed_bioes(tags):
    """Reads spans from left to right; `open_kind` is that of a span that has begun and not ended."""
    open_kind = None
    for tag in tags:
        letter, _, kind = tag.partition("-")
        if letter in "IE":
            if open_kind != kind:
                return False
        elif open_kind is not None:
            return False
        open_kind = kind if letter in "BI" else None
    return open_kind is None


@pytest.mark.parametrize(
    ("constraints", "tags", "well_formed"),
    [(TagConstraints.bio, BIO, well_formed_bio), (TagConstraints.bioes, BIOES, well_formed_bioes)],
)
def test_exactly_the_well_formed_sequences_are_possible(constraints, tags, well_formed):
    crf = LinearChainCRF(len(tags), constraints(tags))
    for length in (1, 2, 3):
        sequences = torch.cartesian_prod(*[torch.arange(len(tags))] * length).view(-1, length)
        log_prob = crf.log_prob(sequences, torch.zeros(len(sequences), length, len(tags))).detach()
        expected = [well_formed([tags[tag] for tag in sequence]) for sequence in sequences.tolist()]
        assert log_prob.isfinite().tolist() == expected
        assert 0 < sum(expected) < len(expected)


def test_types_may_hold_hyphens():
    assert TagConstraints.bio(["O", "B-work-of-art", "I-work-of-art"]).transitions[1, 2]


@pytest.mark.parametrize(
    ("constraints", "tags", "message"),
    [
        (
            TagConstraints.bio,
            ["O", "B-X", "E-X"],
            "tags: expected O, B-X, I-X, got 'E-X': for B, I, E, S use TagConstraints.bioes",
        ),
        (TagConstraints.bio, ["O", "I-X"], "tags: 'I-X' could never be used, as there is no 'B-X'"),
        (TagConstraints.bioes, BIO, "tags: 'B-PER' could never be used, as there is no 'E-PER'"),
        (TagConstraints.bioes, ["O", "E-X", "S-X"], "'E-X' could never be used, as there is no 'B-X'"),
        (TagConstraints.bio, ["NOUN", "VERB"], "got 'NOUN'"),
        (TagConstraints.bio, ["O", "BI-X"], "got 'BI-X'"),
        (TagConstraints.bio, ["O", "-X"], "got '-X'"),
        (TagConstraints.bio, ["O", "B-"], "got 'B-'"),
        (TagConstraints.bio, ["O", "B-X", "B-X"], "tags: expected different tags"),
        (TagConstraints.bio, [], "tags: expected different tags, at least one"),
    ],
)
def test_tags_of_another_scheme_are_refused(constraints, tags, message):
    with pytest.raises(ValueError, match=message):
        constraints(tags)


def test_tags_of_a_narrow_type_are_those_of_a_wide_one():
    crf, tags = LinearChainCRF(300), torch.tensor([[0, 100, 255]])
    scores = torch.randn(1, 3, 300)
    assert torch.equal(crf.log_prob(tags.to(torch.uint8), scores), crf.log_prob(tags, scores))
