"""Schemes of tags that mark spans, BIO and BIOES, in every spelling that files have."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Scheme = Literal["bio", "bioes"]
_ROLES = dict(zip("BIMELSUW", "BIIEESSS", strict=True))  # M of BMES, L and U of BILOU, W of BMEWO
_FAMILIES = ("BIES", "BILU", "BMES", "BMEW")  # the letters that mean B, I, E and S
_SEPARATORS = "-_.:/|+"


@dataclass(frozen=True)
class Spelling:
    """Spelling of the tags of a scheme in a file: `U-PER`, `S_PER`, `b-per`, `PER-B` or a bare `B`.

    >>> spelling = find_spelling({"O", "B_PER", "L_PER", "U_PER"})
    >>> spelling.standard("U_PER"), spelling.own("I-PER")
    ('S-PER', 'I_PER')
    """

    scheme: Scheme  # BIO or BIOES
    letters: str  # the letters for B, I, E and S
    separator: str = "-"  # between the letter and the type; empty where there are no types
    suffix: bool = False  # whether the letter comes last
    outside: str = "O"  # the tag of a word outside all spans

    def standard(self, tag: str) -> str:
        """Return the BIO or BIOES tag, as `B-PER`; the type of a bare letter is "_". Other tags stay unchanged."""
        if tag == self.outside:
            return "O"
        letter, kind = _cut(tag, self.separator, self.suffix)
        return f"{_ROLES[letter.upper()]}-{kind}" if letter else tag

    def own(self, standard: str) -> str:
        """Return the spelling of a standard tag."""
        if standard == "O":
            return self.outside
        letter, kind = self.letters["BIES".index(standard[0])], standard[2:]
        if not self.separator:
            return letter
        return self.separator.join((kind, letter) if self.suffix else (letter, kind))


def find_scheme(tags: Collection[str]) -> Scheme | None:
    """Return the scheme in which tags mark spans; None where they mark no spans, as parts of speech do.

    Raises:
        ValueError: as `find_spelling`.

    >>> find_scheme({"O", "B-PER", "I-PER"}), find_scheme({"NOUN", "VERB"})
    ('bio', None)
    """
    spelling = find_spelling(tags)
    return None if spelling is None else spelling.scheme


def find_spelling(tags: Collection[str]) -> Spelling | None:
    """Return the spelling of tags that mark spans; None if they mark no spans."""
    if brackets := [tag for tag in tags if "(" in tag and "*" in tag]:
        raise ValueError(f"the tag {brackets[0]!r} marks a span by brackets: use B-X, I-X and O instead")
    outside = "o" if "o" in tags and "O" not in tags else "O"
    marks = [tag for tag in tags if tag != outside]
    forms = [("", False), *((separator, suffix) for suffix in (False, True) for separator in _SEPARATORS)]
    for separator, suffix in forms:
        letters = {_cut(tag, separator, suffix)[0] for tag in marks}
        roles = {_ROLES[letter.upper()]: letter for letter in letters if letter}
        one_each = "" not in letters and len(roles) == len(letters)
        if one_each and (not roles.keys().isdisjoint("BI") or (roles and (separator, suffix) == ("-", False))):
            scheme: Scheme = "bio" if roles.keys() <= set("BI") else "bioes"
            return Spelling(scheme, _letters(roles), separator, suffix, outside)
    for separator, suffix in forms[1:]:
        _refuse_mixture(marks, separator, suffix)
    return None


def _cut(tag: str, separator: str, suffix: bool) -> tuple[str, str]:
    """Return the letter and the type of a tag; both empty where it has no letter of a scheme."""
    if not separator:
        letter, kind = tag, "_"
    elif suffix:
        kind, _, letter = tag.rpartition(separator)
    else:
        letter, _, kind = tag.partition(separator)
    return (letter, kind) if len(letter) == 1 and letter.upper() in _ROLES and kind else ("", "")


def _letters(roles: dict[str, str]) -> str:
    """Return a letter for each of B, I, E and S: the letters in use, and the rest from the same family."""
    letters = set("".join(roles.values()).upper())
    family = next((family for family in _FAMILIES if letters <= set(family)), _FAMILIES[0])
    if all(letter.islower() for letter in roles.values()):
        family = family.lower()
    return "".join(roles.get(role, usual) for role, usual in zip("BIES", family, strict=True))


def _refuse_mixture(marks: Collection[str], separator: str, suffix: bool) -> None:
    """`ValueError` where two tags begin and continue spans of one type, but not all tags belong to their scheme."""
    cut = {tag: _cut(tag, separator, suffix) for tag in sorted(marks)}
    begins = {kind: tag for tag, (letter, kind) in cut.items() if letter in {"B", "b"}}
    pair = next(
        (
            (begins[kind], tag)
            for tag, (letter, kind) in cut.items()
            if kind in begins and _ROLES[letter.upper()] in "IE"
        ),
        None,
    )
    if pair is None:
        return
    odd = [tag for tag, (letter, _) in cut.items() if not letter]
    what = f"{odd[0]!r} is not a tag of this scheme" if odd else "two letters mean the same"
    raise ValueError(
        f"the tags {pair[0]} and {pair[1]} mark spans, but {what}: use B-X and I-X in "
        "spans, where E-X and S-X are optional, and O outside"
    )


def impossible(tags: Sequence[str], scheme: Scheme) -> tuple[int, str] | None:
    """Return the index of the first tag that breaks the scheme and a description; None if there is no such tag.

    >>> impossible(["O", "I-PER"], "bio")
    (1, 'I-PER after O')
    >>> impossible(["B-PER", "O"], "bioes")
    (1, 'O after B-PER')
    """
    before = "O"
    for index, tag in enumerate(tags):
        within = scheme == "bioes" and before[0] in "BI"  # a span that must go on
        goes_on = tag[0] in "IE" and before[0] in "BI" and before[2:] == tag[2:]
        if not goes_on and (tag[0] in "IE" or within):
            return index, f"{tag} after {before}" if index else f"{tag} first in its sentence"
        before = tag
    if scheme == "bioes" and before[0] in "BI":
        return len(tags) - 1, f"{before} last in its sentence"
    return None


def is_iob1(rows: Iterable[Sequence[str]]) -> bool:
    """Tell if BIO tags are of the older scheme IOB1, that of CoNLL-2003's files: B-X only parts neighbours of a type.

    At least one span begins with I-X, which BIO does not allow, and each B-X comes right after a span of its type.

    >>> is_iob1([["I-PER", "I-PER", "B-PER", "O", "I-LOC"]]), is_iob1([["B-PER", "O", "I-LOC"]]), is_iob1([["O"]])
    (True, False, False)
    """
    found = False
    for tags in rows:
        before = "O"
        for tag in tags:
            goes_on = tag != "O" and before[0] in "BI" and before[2:] == tag[2:]
            if tag[0] == "B" and not goes_on:
                return False
            found = found or (tag[0] == "I" and not goes_on)
            before = tag
    return found


def repaired(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """Return the same spans, read leniently as the scorer conlleval reads them, in well-formed tags.

    A span goes on where I-X or E-X follows B-X or I-X of the same type; any other tag but O begins one. So I-X after O
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
    for index, tag in enumerate(tags):
        following = index + 1 < len(tags) and tags[index + 1] != "O" and not begins[index + 1]
        letter = "B" if begins[index] else "I"
        if scheme == "bioes" and not following:
            letter = "S" if begins[index] else "E"
        whole.append("O" if tag == "O" else letter + tag[1:])
    return whole
