"""Tokens, and the text that they make: held back as long as it may be the beginning of a stop string."""

from dataclasses import dataclass, replace

from chainrule._app.tasks.text.sampler import Decoder
from chainrule.state import State


@dataclass(frozen=True, slots=True)
class Token:
    """One symbol, read or drawn.

    Attributes:
        symbol: its number.
        text: what it adds to the text; empty where a character has several symbols, and for the end of a line.
        log_prob: its log-probability under the model, untempered and unfiltered, nats.
        alternatives: the likeliest symbols in its place: (symbol, log-probability), likeliest first.
        drawn: whether it was drawn, not read from the prompt.
        state: where states are kept, the state of one row that it was drawn from; see `Request.start`.
        finish: "stop" or "length" with the last one, else None.
    """

    symbol: int
    text: str
    log_prob: float
    alternatives: tuple[tuple[int, float], ...] = ()
    drawn: bool = True
    state: State = None
    finish: str | None = None


class Held:
    """The tokens of a text that are not delivered yet.

    Args:
        decoder: of the text.
        stop: strings that end it.
    """

    def __init__(self, decoder: Decoder, stop: tuple[str, ...]):
        self._decoder, self._stop, self._tokens = decoder, stop, list[Token]()

    def add(
        self,
        symbol: int,
        finish: str | None,
        log_prob: float,
        alternatives: tuple[tuple[int, float], ...] = (),
        state: State = None,
    ) -> list[Token]:
        """Return the tokens to deliver after a symbol was drawn; `finish` is why it is the last, if it is.

        An end-of-text symbol adds nothing to the text.
        """
        text = self._decoder.add(symbol) if finish != "stop" else ""
        text += self._decoder.rest() if finish else ""
        self._tokens.append(Token(symbol, text, log_prob, alternatives, state=state, finish=finish))
        if not self._stop:
            return self._released(len(self._tokens))
        text = "".join(held.text for held in self._tokens)
        stop_at = min((index for stop in self._stop if (index := text.find(stop)) >= 0), default=None)
        if stop_at is not None:
            return self._cut(stop_at)
        if finish:
            return self._released(len(self._tokens))
        certain = len(text) - max(_overlap(text, stop) for stop in self._stop)
        length = number = 0
        for held in self._tokens:
            length += len(held.text)
            if length > certain:
                break
            number += 1
        return self._released(number)

    def _released(self, number: int) -> list[Token]:
        released, self._tokens = self._tokens[:number], self._tokens[number:]
        return released

    def _cut(self, length: int) -> list[Token]:
        """Return the tokens of `length` characters; at least one, because the last one carries `finish`."""
        released, begin = list[Token](), 0
        for token in self._tokens:
            if begin >= length and released:
                break
            released.append(replace(token, text=token.text[: max(length - begin, 0)]))
            begin += len(token.text)
        return [*released[:-1], replace(released[-1], finish="stop")]


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of a text that begins a stop string.

    >>> _overlap("one tw", "two"), _overlap("one", "two")
    (2, 0)
    """
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
