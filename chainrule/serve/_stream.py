"""Requests to an engine, and streams of the tokens that it draws."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chainrule.serve._text import Token
from chainrule.state import State


@dataclass(frozen=True)
class Request:
    """One text to draw.

    Args:
        prompt: its first symbols; see `Engine.encode`.
        max_tokens: symbols to draw at most; 0 only reads the prompt.
        temperature, top_k, top_p: as in `AutoregressiveModel.sample`.
        seed: the same seed gives the same text, whatever else is drawn; a new one if None.
        stop: strings that end the text and are left out of it.
        alternatives: number of likeliest symbols to report with each symbol.
        score_prompt: report the symbols of the prompt too, each with its log-probability, before those drawn.
        start: `Token.state` of another text, to go on from: the prompt begins with the symbol in that token's place,
            its own or another, which is not scored. None begins a text.
        keep_states: report with each symbol drawn the state that it was drawn from.
    """

    prompt: Sequence[int]
    max_tokens: int
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    alternatives: int = 0
    score_prompt: bool = False
    start: State = None
    keep_states: bool = False


class Stream:
    """The tokens of one text as they are drawn, an asynchronous iterator. `aclose` frees its row within one step.

    Args:
        request: that it answers.
        on_close: called once, at its end or before.

    Attributes:
        closed: whether it has ended, or nobody wants more of it.
        loop: the event loop that reads it.
    """

    def __init__(self, request: Request, on_close: Callable[[], None]):
        self.request, self.closed, self._on_close = request, False, on_close
        self.loop = asyncio.get_running_loop()
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
