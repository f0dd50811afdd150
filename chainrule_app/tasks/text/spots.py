"""The most surprising stretch of a line, above its expectation, and the reason to look at it.

A symbol of a conditional with entropy H is expected to have H nats: digits of a number that may be any have many, and
exceed nothing. The spot of a line is the stretch with the greatest sum of its symbols' excess over H and over one more
nat each, so that a stretch ends where the text is ordinary again.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from chainrule.models import CalibratedMixture, NgramLM
from chainrule.printing import one_line
from chainrule.training import bits
from chainrule_app.printing import shortened
from chainrule_app.readers.corpus import fields_of
from chainrule_app.tasks.text.spans import symbol_spans
from chainrule_app.tasks.text.surprise import Expectation, Numbers
from chainrule_app.tasks.training_data import is_training_file

if TYPE_CHECKING:
    from chainrule import AutoregressiveModel
    from chainrule.data import Vocabulary
    from chainrule_app.readers.store import Ids
    from chainrule_app.tasks.text.rows import Texts
    from chainrule_app.tasks.text.task import TextTask

_A_SYMBOL = 1.0  # nats that a stretch costs for each of its symbols
_NOTABLE = 7.0  # bits above which a spot has a reason
_LONGEST = 16  # symbols that would be expected
_SHOWN = 24  # characters of a stretch
_TOKEN = re.compile(r"\s*(?:\w+|[^\w\s]+)")


@dataclass(frozen=True)
class Spot:
    """A stretch of symbols."""

    start: int
    stop: int
    bits: float  # by which it exceeds its expectation, and `_A_SYMBOL` for each symbol; 0 or more
    excess: float  # bits by which it exceeds its expectation


_NOWHERE = Spot(0, 0, 0.0, 0.0)


def spots_of(lines: Sequence[Numbers]) -> list[Spot]:
    """Return the stretch of greatest sum of each line, by the excess of its symbols.

    >>> import math
    >>> _, spot = spots_of([np.array([0.5]), np.array([0.0, 4.0, 3.0, -2.0, 2.0])])  # nats
    >>> spot.start, spot.stop, round(spot.excess * math.log(2), 3), round(spot.bits * math.log(2), 3)
    (1, 3, 7.0, 5.0)
    """
    lengths = np.array([len(line) for line in lines])
    found, order = [_NOWHERE] * len(lines), lengths.argsort(kind="stable").tolist()
    while order and (longest := lengths[order[-1]]):
        first = bisect_left(order, (longest + 1) // 2, key=lengths.__getitem__)  # shorter ones would be mostly padding
        numbers, order = order[first:], order[:first]
        own = np.zeros((len(numbers), longest))
        own[np.arange(longest) < lengths[numbers][:, None]] = np.concatenate([lines[number] for number in numbers])
        sums = np.zeros((len(numbers), longest + 1))
        np.cumsum(own - _A_SYMBOL, axis=1, out=sums[:, 1:])
        least = np.minimum.accumulate(sums[:, :-1], axis=1)
        gains, rows = sums[:, 1:] - least, np.arange(len(numbers))
        stops = gains.argmax(1)
        starts = (sums[:, :-1] == least[rows, stops][:, None]).argmax(1)
        for number, start, stop, gain in zip(
            numbers, starts.tolist(), (stops + 1).tolist(), gains[rows, stops].tolist(), strict=True
        ):
            if gain > 0:
                found[number] = Spot(start, stop, bits(gain), bits(gain + _A_SYMBOL * (stop - start)))
    return found


def without_fields(excess: Numbers, fields: npt.NDArray[np.bool_]) -> Numbers:
    """Return the excess (T,) of symbols, of which those in `fields` (T,) have none."""
    return np.where(fields, np.minimum(excess, 0), excess)


def joined(pieces: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Join the arrays of the pieces of a line."""
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _are_characters(vocabulary: "Vocabulary", ids: "Ids", text: str) -> bool:
    """Tell if each symbol of a line is a character of its text, but for the line end, which may be one too."""
    return vocabulary.level == "char" and abs(len(ids) - len(text)) <= 1


def fields_in(vocabulary: "Vocabulary", ids: "Ids", text: str) -> npt.NDArray[np.bool_]:
    """Tell of each symbol (T,) of a line if it lies in a number, an address, a time or an identifier."""
    masked = np.zeros(max(len(text), 1), bool)
    for start, stop in fields_of(text):
        masked[start:stop] = True
    if _are_characters(vocabulary, ids, text):
        return np.resize(np.append(masked[: len(text)], False), len(ids))
    decoded, spans = symbol_spans(vocabulary, ids)
    places = np.array([min(start, len(masked) - 1) for start, _ in spans], int)
    return masked[places] if decoded.startswith(text[: len(decoded)]) else np.zeros(len(ids), bool)


@dataclass(frozen=True)
class Reason:
    """A line for people: which stretch is surprising, by how many bits, and what would be expected in its place.

    It is computed when it is read, for a model has to write what it expects.
    """

    spot: Spot
    ids: "Ids" = field(repr=False)  # of the line, up to some symbols after the stretch
    vocabulary: "Vocabulary" = field(repr=False)
    model: "AutoregressiveModel" = field(repr=False)
    begin: "Ids" = field(repr=False)  # symbols before a line
    characters: str = field(default="", repr=False)  # of the line, where each is a symbol: some may be unknown ones

    def __str__(self) -> str:
        return self._text

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (self._text,)

    @cached_property
    def _text(self) -> str:
        start, stop = self.spot.start, self.spot.stop
        before, stretch, after = self._part(0, start), self._part(start, stop), self._part(stop, None)
        expected = self._expected()
        # For people a word is whole.
        if re.search(r"\w\Z", stretch) and (end := re.match(r"\w*", after)):
            stretch += end.group()
        word = re.search(r"\w*\Z", before) if re.match(r"\w", stretch) or re.match(r"\w", expected) else None
        head = "" if word is None else word.group()
        found = _quoted(head + stretch if stretch.strip() else stretch)
        expected = _quoted(head + expected)
        instead = f" where {expected} was expected" if expected != found else ""
        return f"+{self.spot.excess:.1f} bits: {found}{instead}"

    def _part(self, start: int, stop: int | None) -> str:
        return self.characters[start:stop] if self.characters else self.vocabulary.decode(self.ids[start:stop])

    def _expected(self) -> str:
        """Return the likeliest token at the start of the stretch, symbol by symbol."""
        known = torch.from_numpy(np.concatenate([self.begin, self.ids[: self.spot.start]]))
        length, prefix = len(known) + _LONGEST, known if len(known) else None
        end = self.vocabulary.eos
        drawn = self.model.sample(1, length=length, prefix=prefix, temperature=0, eos=end)[0, len(known) :]
        token = _TOKEN.match(self.vocabulary.decode(drawn.cpu().numpy()).split("\n")[0])
        return "" if token is None else token.group()


def _quoted(text: str) -> str:
    return f'"{one_line(shortened(text, _SHOWN))}"' if text.strip() else "the end of the line"


def reason_of(
    spot: Spot, ids: "Ids", text: str, vocabulary: "Vocabulary", model: "AutoregressiveModel", *, in_lines: bool
) -> "Reason | str":
    """Return the reason for a notable spot of a line, else an empty text."""
    if spot.excess < _NOTABLE:
        return ""
    begin = vocabulary.encode("" if in_lines else "\n")
    characters = text[: spot.stop + _SHOWN] if _are_characters(vocabulary, ids, text) else ""
    return Reason(spot, ids[: spot.stop + _SHOWN].copy(), vocabulary, model, begin, characters)


def is_training_text(run: "TextTask", data: "Texts") -> bool:
    """Tell if the data are the text that the run was trained on."""
    source = run.facts.source
    if isinstance(data, list):
        return (
            sha256("".join(f"{text}\n" for text in data).encode("utf-8", "surrogatepass")).hexdigest() == source.sha256
        )
    return is_training_file(data, source)


def expectation(model: "AutoregressiveModel", *, trained_on: bool) -> Expectation:
    """Return how to measure the excess of symbols, in the text that the model was trained on or in another."""
    counts = model.companion if isinstance(model, CalibratedMixture) else None
    return Expectation(NgramLM(counts.ngrams.leaving_one_out()) if trained_on and isinstance(counts, NgramLM) else None)
