"""Properties of elements of a text that hidden units may indicate."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chainrule.option_error import OptionError

HERE = "here"  # name of the group with the property, for patterns that also match its surroundings
PROPERTIES = {
    "quotes": (r'(?<!\w)(?P<here>"(?=\S)[^"\n]*)(?<=\S)"|(?P<here2>“[^”]*)”', "inside double quotation marks"),
    "parentheses": (r"(?P<here>\([^()]*)\)", "inside parentheses"),
    "brackets": (r"(?P<here>\[[^\[\]]*)\]", "inside square brackets"),
    "late-in-line": (r"(?m:^[^\n]{40})(?P<here>[^\n]+)", "after the 40th character of a line"),
    "indentation": (r"(?m:^[ \t]+)", "blanks that begin a line"),
    "upper-case": (r"[A-ZÀ-ÖØ-ÞΑ-ΩА-Я]", "capital letters"),
    "word-start": (r"\b\w", "the first letter of a word"),
    "word-end": (r"\w\b", "the last letter of a word"),
    "line-start": (r"(?m:^)[^\n]", "the first character of a line"),
    "line-end": (r"\n", "the end of a line"),
    "punctuation": (r"[^\w\s]", "punctuation marks"),
    "vowel": (r"(?i:[aeiou])", "vowels"),
    "digit": (r"\d", "digits"),
    "space": (r"\s", "white space"),
}
ENOUGH = 0.05  # minimum share of elements with, and without, a property that is chosen automatically


@dataclass(frozen=True)
class TextProperty:
    """Property of elements whose characters overlap a match of a pattern."""

    name: str  # name in `PROPERTIES`, or the regular expression itself
    pattern: re.Pattern[str]  # the pattern; groups named `here`, `here2`... replace the whole match
    meaning: str = ""  # description; empty for a regular expression

    def of(self, text: str, spans: Sequence[tuple[int, int]]) -> list[bool]:
        """Test each element, given the spans of the elements in the text."""
        inside = [False] * len(text)
        for match in self.pattern.finditer(text):
            for start, stop in _meant(match):
                inside[start:stop] = [True] * (stop - start)
        return [any(inside[start:stop]) for start, stop in spans]


def text_property(name: str) -> TextProperty:
    r"""Look up a property by its name in `PROPERTIES`, or compile a regular expression."""
    if name in PROPERTIES:
        return _named(name)
    try:
        return TextProperty(name, re.compile(name))
    except (re.error, OverflowError, RecursionError) as error:
        raise OptionError(
            "property", f"expected one of {', '.join(PROPERTIES)}, or a regular expression, got {name!r} ({error})"
        ) from None


def choose_property(rows: Iterable[tuple[str, Sequence[tuple[int, int]]]]) -> TextProperty | None:
    """Choose the first property that enough elements have and lack; `None` if none distinguishes any elements."""
    rows = list(rows)
    best, rarest = None, 0.0
    for name in PROPERTIES:
        has = [value for text, spans in rows for value in _named(name).of(text, spans)]
        share = sum(has) / max(len(has), 1)
        rarer = min(share, 1 - share)
        if rarer >= ENOUGH:
            return _named(name)
        if rarer > rarest:
            best, rarest = _named(name), rarer
    return best


def _named(name: str) -> TextProperty:
    pattern, meaning = PROPERTIES[name]
    return TextProperty(name, re.compile(pattern), meaning)


def _meant(match: re.Match[str]) -> list[tuple[int, int]]:
    groups = [group for group in match.re.groupindex if group.startswith(HERE)]
    spans = [match.span(group) for group in groups] if groups else [match.span()]
    return [span for span in spans if span[0] >= 0]
