"""Requests to an engine, and streams of the tokens that it draws."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from chainrule.state import State
from chainrule_app.tasks.text.sampling import Decoder


@dataclass(frozen=True, slots=True)
class Token:
    """One symbol, read or drawn."""

    symbol: int  # its number
    text: str  # what it adds to the text; empty where a character has several symbols, and for the end of a line
    log_prob: float  # its log-probability under the model, untempered and unfiltered, nats
    # the likeliest symbols in its place: (symbol, log-probability), likeliest first
    alternatives: tuple[tuple[int, float], ...] = ()
    drawn: bool = True  # whether it was drawn, not read from the prompt
    state: State = None  # where states are kept, the state of one row that it was drawn from; see `Request.start`
    finish: str | None = None  # "stop" or "length" with the last one, else None


class Held:
    """The tokens of a text that are not delivered yet."""

    def __init__(self, decoder: Decoder, stop: tuple[str, ...], rest: str = "", *, blank: bool = False):
        self._decoder, self._stop, self._tokens, self._blank = decoder, stop, list[Token](), blank
        self._rest, self._before = rest, ""  # the end of the prompt that the first symbols repeat, and their text

    def pass_over(self, symbol: int) -> str:
        """Return the text that a symbol adds, without the end of the prompt."""
        text = self._before + self._decoder.add(symbol)
        if self._rest not in text:
            self._before = text
            return ""
        text, self._before, self._rest = text.partition(self._rest)[2] if self._rest else text, "", ""
        text, self._blank = text.removeprefix(" ") if self._blank else text, False
        return text

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
        text = self.pass_over(symbol) if finish != "stop" else ""
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


@dataclass(frozen=True)
class Request:
    """One text to draw."""

    prompt: Sequence[int]  # its first symbols; see `Engine.encode`
    max_tokens: int  # symbols to draw at most; 0 only reads the prompt
    rest: str = ""  # rest, covers: the end of the prompt inside a symbol, and the ways to go on; see `Beginning`
    covers: Sequence[Sequence[int]] = ()
    # the symbols of `rest` alone, reported with a prompt that is scored; what is drawn goes on before them
    tail: Sequence[int] = ()
    blank: bool = False  # the text before ends in a blank, which the next word would bring again
    temperature: float = 1.0  # temperature, top_k, top_p: as in `AutoregressiveModel.sample`
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None  # the same seed gives the same text, whatever else is drawn; a new one if None
    stop: tuple[str, ...] = ()  # strings that end the text and are left out of it
    alternatives: int = 0  # number of likeliest symbols to report with each symbol
    # report the symbols of the prompt too, each with its log-probability, before those drawn
    score_prompt: bool = False
    # `Token.state` of another text, to go on from: the prompt begins with the symbol in that token's place, its own
    # or another, which is not scored. None begins a text
    start: State = None
    keep_states: bool = False  # report with each symbol drawn the state that it was drawn from

    @property
    def reports_cover(self) -> bool:
        """True if all symbols that are drawn to complete a prompt are reported, in place of its own last ones."""
        return self.score_prompt and not self.tail


class Stream:
    """The tokens of one text as they are drawn, an asynchronous iterator. `aclose` frees its row within one step."""

    def __init__(self, request: Request, on_close: Callable[[], None]):
        self.request, self.closed, self._on_close = request, False, on_close
        self.loop = asyncio.get_running_loop()  # the event loop that reads it
        self._tokens: asyncio.Queue[Token | Exception] = asyncio.Queue()
        self._ended = False

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> Token:
        if self._ended:
            raise StopAsyncIteration
        return self._taken(await self._tokens.get())

    async def batch(self) -> list[Token]:
        """Return the tokens that have come since the last call, at least one; none at the end."""
        if self._ended:
            return []
        tokens = [self._taken(await self._tokens.get())]
        while not (self._ended or self._tokens.empty()):
            tokens.append(self._taken(self._tokens.get_nowait()))
        return tokens

    async def aclose(self) -> None:
        """Stop drawing, as `close` does."""
        self.close()

    def close(self) -> None:
        """Stop drawing: the row is free before the next step."""
        if not self.closed:
            self.closed = True
            self._on_close()

    def deliver(self, token: Token | Exception) -> None:
        """Take a token, in the thread of the event loop."""
        self._tokens.put_nowait(token)
        if isinstance(token, Exception) or token.finish:
            self.close()

    def _taken(self, token: Token | Exception) -> Token:
        self._ended = isinstance(token, Exception) or token.finish is not None
        if isinstance(token, Exception):
            raise token
        return token


def facts_of(symbols: Tensor, logits: Tensor, number: int) -> list[tuple[int, float, tuple[tuple[int, float], ...]]]:
    """Return symbols (B,), their log-probabilities, and the likeliest in their places (B, V), likeliest first."""
    log_probs = logits.gather(1, symbols.unsqueeze(1)).squeeze(1).tolist()
    if not number:
        return [(symbol, log_prob, ()) for symbol, log_prob in zip(symbols.tolist(), log_probs, strict=True)]
    best, ids = (part[:, :number].tolist() for part in logits.sort(descending=True, stable=True))
    likeliest = [tuple(zip(*row, strict=True)) for row in zip(ids, best, strict=True)]
    return list(zip(symbols.tolist(), log_probs, likeliest, strict=True))
