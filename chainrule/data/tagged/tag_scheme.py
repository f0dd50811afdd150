"""How tags mark spans of words: BIO and BIOES, what is impossible in them, and its repair."""

from collections.abc import Collection, Sequence
from typing import Literal

Scheme = Literal["bio", "bioes"]


def find_scheme(tags: Collection[str]) -> Scheme | None:
    """The scheme in which tags mark spans; None where they mark no spans, as parts of speech do.

    Raises:
        ValueError: the tags are BILOU's, whose E is named L and whose S is named U.

    >>> find_scheme({"O", "B-PER", "I-PER"}), find_scheme({"NOUN", "VERB"})
    ('bio', None)
    """
    marks = [tag for tag in tags if tag != "O"]
    if not marks or not all(len(tag) > 2 and tag[1] == "-" for tag in marks):
        return None
    letters = frozenset(tag[0] for tag in marks)
    if letters <= frozenset("BI"):
        return "bio"
    if letters <= frozenset("BIES"):
        return "bioes"
    if letters <= frozenset("BILU"):
        raise ValueError("the tags are of the scheme BILOU: rename L-X to E-X and U-X to S-X, to read them as BIOES")
    return None


def impossible(tags: Sequence[str], scheme: Scheme) -> tuple[int, str] | None:
    """The first place of a row where its scheme is broken, and what is wrong there; None where nothing is.

    >>> impossible(["O", "I-PER"], "bio")
    (1, 'I-PER after O')
    >>> impossible(["B-PER", "O"], "bioes")
    (1, 'O after B-PER')
    """
    before = "O"
    for place, tag in enumerate(tags):
        within = scheme == "bioes" and before[0] in "BI"  # a span that must go on
        goes_on = tag[0] in "IE" and before[0] in "BI" and before[2:] == tag[2:]
        if not goes_on and (tag[0] in "IE" or within):
            return place, f"{tag} after {before}" if place else f"{tag} first in its sentence"
        before = tag
    if scheme == "bioes" and before[0] in "BI":
        return len(tags) - 1, f"{before} last in its sentence"
    return None


def repaired(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """The same spans, read leniently as the scorer conlleval reads them, in well-formed tags.

    A span goes on where I-X or E-X follows B-X or I-X of its own type; any other tag but O begins one. So I-X after O
    becomes B-X, and the older scheme IOB1, in which B-X only parts neighbours, becomes BIO.

    >>> repaired(["O", "I-PER", "I-PER", "I-LOC"], "bio")
    ['O', 'B-PER', 'I-PER', 'B-LOC']
    >>> repaired(["I-PER", "I-PER", "O", "B-LOC"], "bioes")
    ['B-PER', 'E-PER', 'O', 'S-LOC']
    """
    begins = []
    before = "O"
    for tag in tags:
        begins.append(tag != "O" and not (tag[0] in "IE" and before[0] in "BI" and before[2:] == tag[2:]))
        before = tag
    whole = []
    for place, tag in enumerate(tags):
        following = place + 1 < len(tags) and tags[place + 1] != "O" and not begins[place + 1]
        letter = "B" if begins[place] else "I"
        if scheme == "bioes" and not following:
            letter = "S" if begins[place] else "E"
        whole.append("O" if tag == "O" else letter + tag[1:])
    return whole
