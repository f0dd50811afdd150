"""Hidden units: saturation, dead units, and units that indicate a property of the text."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from chainrule._modes import wide

FLAT = 0.1  # share of the largest slope below which a nonlinearity counts as flat
BINS = 20
SIGMOIDS = ("input", "forget", "output", "reset", "update")


def saturation(values: Tensor, kind: str) -> float:
    """Return the share of values (.., M) at which "tanh" or "sigmoid" is flat: below a tenth of its largest slope."""
    slope = 1 - values**2 if kind == "tanh" else 4 * values * (1 - values)
    return float(wide(slope < FLAT).mean())


def dead_units(values: Tensor) -> float:
    """Return the share of ReLU units that are zero at every element (P, M), and so get no gradient."""
    return float(wide((values == 0).all(0)).mean())


def histogram(values: Tensor) -> Tensor:
    """Return the shares of a gate's values in twenty equal bins of [0, 1]."""
    counts = torch.histc(wide(values.cpu()), BINS, 0, 1)
    return counts / counts.sum()


@dataclass(frozen=True)
class SeparatingUnit:
    """A unit that separates elements with a property from others."""

    unit: int  # index of the unit
    # area under the ROC curve, the probability that an element with the property has the larger value; 0.5 is chance,
    # near 0 the unit separates with the opposite sign
    area: float


def separating_units(values: Tensor, has_property: Tensor, count: int = 5) -> list[SeparatingUnit]:
    r"""Find the `count` best units (P, M) that separate elements with a property (P,) (Mann and Whitney 1947).

    .. math:: \mathrm{area} = P(v_{\text{with}} > v_{\text{without}})
        + \tfrac{1}{2} P(v_{\text{with}} = v_{\text{without}})
    """
    with_it, without = int(has_property.sum()), int((~has_property).sum())
    if not with_it or not without:
        return []
    ranks = _ranks(wide(values))
    areas = (ranks[has_property].sum(0) - with_it * (with_it + 1) / 2) / (with_it * without)
    best = (areas - 0.5).abs().argsort(descending=True, stable=True)[:count]
    return [SeparatingUnit(int(unit), float(areas[unit])) for unit in best]


def _ranks(values: Tensor) -> Tensor:
    """Rank the values of each column from 1, (P, M); ties share their mean rank."""
    ordered = values.t().sort(-1).values.contiguous()
    columns = values.t().contiguous()
    below = torch.searchsorted(ordered, columns, right=False)
    up_to = torch.searchsorted(ordered, columns, right=True)
    return ((below + up_to + 1) / 2).t()


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
        raise ValueError(
            f"property: expected one of {', '.join(PROPERTIES)}, or a regular expression, got {name!r} ({error})"
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
