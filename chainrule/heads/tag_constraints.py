"""Which tags may follow which in the BIO and BIOES schemes of marking spans."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class TagConstraints(NamedTuple):
    """What is allowed of K tags, in booleans.

    Attributes:
        transitions: (K, K) whether the second may follow the first.
        starts: (K,) whether a sequence may begin with it.
        ends: (K,) whether a sequence may end with it.
    """

    transitions: Tensor
    starts: Tensor
    ends: Tensor


def bio_constraints(tags: Sequence[str]) -> TagConstraints:
    """The sequences of tags in which I-X only goes on a span that B-X began (Ramshaw and Marcus 1995).

    Args:
        tags: O, and B-X and I-X for any types X, in the order of their numbers.

    Raises:
        ValueError: a tag is none of these, stands twice, or is an I-X without a B-X.

    >>> bio_constraints(["O", "B-PER", "I-PER"]).transitions.int()
    tensor([[1, 1, 0],
            [1, 1, 1],
            [1, 1, 1]], dtype=torch.int32)
    """
    marks = _marks(tags, "BI", "for B, I, E, S use bioes_constraints")
    _require(marks, tags, "I", "B")
    return _constraints(marks, opens=lambda mark: False)


def bioes_constraints(tags: Sequence[str]) -> TagConstraints:
    """The sequences of tags in which every span is S-X, or B-X, then any number of I-X, then E-X.

    Args:
        tags: O, and B-X, I-X, E-X and S-X for any types X, in the order of their numbers.

    Raises:
        ValueError: a tag is none of these, stands twice, or belongs to a span that could not begin or end.

    >>> bioes_constraints(["O", "B-PER", "E-PER", "S-PER"]).transitions.int()
    tensor([[1, 1, 0, 1],
            [0, 0, 1, 0],
            [1, 1, 0, 1],
            [1, 1, 0, 1]], dtype=torch.int32)
    """
    marks = _marks(tags, "BIES", "rename them")
    for mark, needed in (("B", "E"), ("E", "B"), ("I", "B")):
        _require(marks, tags, mark, needed)
    return _constraints(marks, opens=lambda mark: mark in "BI")


def _constraints(marks: list[tuple[str, str]], opens: Callable[[str], bool]) -> TagConstraints:
    """`opens(mark)`: whether its span must go on."""
    starts = torch.tensor([mark not in "IE" for mark, _ in marks])
    ends = torch.tensor([not opens(mark) for mark, _ in marks])
    transitions = ends.unsqueeze(1) & starts  # out of a whole span, into a new one
    for before, (mark, kind) in enumerate(marks):
        for after, (following, its_kind) in enumerate(marks):
            if mark in "BI" and following in "IE" and kind == its_kind:
                transitions[before, after] = True
    return TagConstraints(transitions, starts, ends)


def _marks(tags: Sequence[str], letters: str, remedy: str) -> list[tuple[str, str]]:
    """Each tag as its letter and type."""
    if not tags or len(set(tags)) < len(tags):
        raise ValueError(f"tags: expected different tags, at least one, got {list(tags)}")
    marks = []
    for tag in tags:
        letter, hyphen, kind = tag.partition("-")
        if tag != "O" and not (len(letter) == 1 and letter in letters and hyphen and kind):
            expected = ", ".join(f"{known}-X" for known in letters)
            raise ValueError(f"tags: expected O, {expected}, got {tag!r}: {remedy}")
        marks.append((letter, kind))
    return marks


def _require(marks: list[tuple[str, str]], tags: Sequence[str], letter: str, needed: str) -> None:
    for (mark, kind), tag in zip(marks, tags, strict=True):
        if mark == letter and (needed, kind) not in marks:
            raise ValueError(
                f"tags: {tag!r} could never be used, as there is no '{needed}-{kind}': add it, or use the scheme's "
                "other function"
            )
