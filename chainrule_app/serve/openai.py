"""OpenAI's completions and models, from the engines of the runs of texts.

Unlike OpenAI's API, `echo` with `logprobs` gives the exact log-probability of every symbol of a prompt, including the
first one, and their sum equals `Run.score`. Log-probabilities come from the model, before the temperature and the
filters.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from time import time
from typing import Annotated, Any
from uuid import uuid4

import numpy as np
from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import Receive, Scope, Send

from chainrule.data import Beginning
from chainrule.option_error import OptionError
from chainrule_app.serve import stream
from chainrule_app.serve.engine import Engine
from chainrule_app.serve.guard import Limits, final_error, while_wanted
from chainrule_app.serve.state import ServerState
from chainrule_app.serve.stream import Stream, Token

_LEAST = -9999.0  # stands for the log-probability of what cannot be, which JSON has no number for
_MOST_STOPS, _LONGEST_STOP = 16, 256
_Symbol = Annotated[int, Field(ge=0, lt=1 << 31)]


class Completion(BaseModel):
    """The body of a request. What is null has its default; `model` may be left out where one text run is served."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str | None = None
    prompt: str | list[str] | list[_Symbol] | list[list[_Symbol]] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    logprobs: int | None = None
    echo: bool | None = None
    user: str | None = None
    best_of: int | None = None
    suffix: str | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None

    def stops(self) -> tuple[str, ...]:
        """Return the stop strings."""
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        if len(stops) > _MOST_STOPS or not all(0 < len(stop) <= _LONGEST_STOP for stop in stops):
            raise ValueError(f"stop: expected at most {_MOST_STOPS} strings of 1 to {_LONGEST_STOP} characters")
        return stops

    def samples(self, limits: Limits) -> int:
        """Return the number of samples of each prompt."""
        n = 1 if self.n is None else self.n
        if not 1 <= n <= limits.n:
            raise OptionError("n", f"expected 1 to {limits.n}, got {n}")
        for name, usual in {"best_of": n, "suffix": "", "presence_penalty": 0, "frequency_penalty": 0}.items():
            if getattr(self, name) not in (None, usual):
                raise ValueError(f"{name}: not served here: leave it out")
        if self.logit_bias:
            raise ValueError("logit_bias: not served here: leave it out")
        return n

    def prompts(self, engine: Engine) -> "list[_Prompt]":
        """Return the prompts."""
        prompt: Any = self.prompt or ""
        whole = isinstance(prompt, str) or isinstance(prompt[0], int)
        return [self._prompt(engine, part) for part in ([prompt] if whole else prompt)]

    def _prompt(self, engine: Engine, prompt: str | list[int]) -> "_Prompt":
        if isinstance(prompt, str) and not self.scored:
            beginning, text = engine.begin(prompt)
            return _Prompt(beginning, text, blank=not self.echo and prompt[-1:].isspace() and not text[-1:].isspace())
        prompt = prompt.removeprefix("\ufeff") if isinstance(prompt, str) else prompt
        symbols = engine.encode(prompt) if isinstance(prompt, str) else prompt
        whole = _Prompt(Beginning(np.array(symbols, np.int64)), engine.decode(symbols))
        if isinstance(prompt, str) and self.max_tokens != 0:
            beginning = engine.vocabulary.begin(prompt)
            return replace(whole, beginning=beginning, tail=symbols[len(beginning.ids) :])
        return whole

    @property
    def scored(self) -> bool:
        """True if the answer has the log-probabilities of the prompt's symbols."""
        return bool(self.echo and self.logprobs is not None)


@dataclass(frozen=True)
class _Prompt:
    """A prompt as it is read."""

    beginning: Beginning
    text: str  # as an echo shows it
    tail: Sequence[int] = ()  # tail, blank: see `Request`
    blank: bool = False


@dataclass
class _Choice:
    """A completion as it grows."""

    index: int
    engine: Engine
    logprobs: bool
    echoed: str
    offset: int = 0
    finish: str | None = None
    tokens: list[Token] = field(default_factory=list)

    def taken(self, tokens: Sequence[Token]) -> dict[str, Any]:
        """Return the text of further tokens as a choice of an answer."""
        text, self.echoed = self.echoed, ""
        self.offset += len(text)
        offsets = []
        for token in tokens:
            offsets.append(self.offset)
            self.offset += len(token.text)
        finish = tokens[-1].finish if tokens else None
        text += "".join(token.text for token in tokens)
        table = self._table(tokens, offsets) if self.logprobs else None
        return {"index": self.index, "text": text, "logprobs": table, "finish_reason": finish}

    def _table(self, tokens: Sequence[Token], offsets: list[int]) -> dict[str, Any]:
        return {
            "tokens": [self._name(token) for token in tokens],
            "token_logprobs": [max(token.log_prob, _LEAST) for token in tokens],
            "top_logprobs": list(map(self._likeliest, tokens)),
            "text_offset": offsets,
        }

    def _name(self, token: Token) -> str:
        return token.text or self.engine.token(token.symbol)

    def _likeliest(self, token: Token) -> dict[str, float]:
        """Return the log-probabilities of the likeliest symbols and the token, each named with the space before it."""
        own = self.engine.token(token.symbol)
        before = token.text.removesuffix(own) if token.text.endswith(own) else ""
        alternatives = {self._name(token): max(token.log_prob, _LEAST)}
        for symbol, log_prob in token.alternatives:
            if symbol != token.symbol:
                alternatives.setdefault(before + self.engine.token(symbol), max(log_prob, _LEAST))
        return alternatives


class _Events(StreamingResponse):
    """Server-sent events of streams, which are closed in any case."""

    def __init__(self, events: AsyncIterator[str], streams: list[Stream]):
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            _close(self._streams)


def openai_router(state: ServerState) -> APIRouter:
    """Return the routes below /v1."""
    router, began = APIRouter(prefix="/v1"), int(time())

    def model(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": began, "owned_by": "chainrule"}

    @router.get("/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": list(map(model, state.engines))}

    @router.get("/models/{name}")
    async def one_model(name: str) -> dict[str, Any]:
        state.engine(name)
        return model(name)

    @router.post("/completions", response_model=None)
    async def completions(body: Completion, request: Request) -> Response:
        name, engine = state.engine(body.model)
        n, prompts = body.samples(state.limits), body.prompts(engine)
        if n * len(prompts) > state.limits.waiting:
            raise ValueError(f"prompt: expected at most {state.limits.waiting // n} prompts of {n} samples each")
        streams = engine.submit([_request(body, prompt, index) for prompt in prompts for index in range(n)])
        logprobs, quiet = body.logprobs is not None, body.echo and body.logprobs is None
        echoed = [prompt.text if quiet else "" for prompt in prompts for _ in range(n)]
        choices = [_Choice(index, engine, logprobs, text) for index, text in enumerate(echoed)]
        head = {"id": f"cmpl-{uuid4().hex}", "object": "text_completion", "created": int(time()), "model": name}
        read = sum(len(prompt.beginning.ids) + len(prompt.tail) for prompt in prompts)
        if body.stream:
            counted = bool((body.stream_options or {}).get("include_usage"))
            events = _events(head, choices, streams, read, state, counted=counted)
            return _Events(events, streams)
        try:
            results = await while_wanted(request.receive, _all(streams), state.limits.seconds)
        finally:
            _close(streams)
        bodies = [choice.taken(tokens) for choice, tokens in zip(choices, results, strict=True)]
        drawn = sum(token.drawn for tokens in results for token in tokens)
        return JSONResponse({**head, "choices": bodies, "usage": _usage(read, drawn)})

    @router.api_route("/{rest:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"], include_in_schema=False)
    async def other(rest: str) -> None:
        hint = _INSTEAD.get(rest.rstrip("/"), "served here are completions (POST /v1/completions) and /v1/models")
        raise HTTPException(404, f"/v1/{rest:.80}: {hint}")

    return router


_INSTEAD = {
    "completions": "use POST",
    "chat/completions": "a run continues texts and knows no roles: use POST /v1/completions with a prompt",
    "embeddings": "use POST /runs/NAME/embed, NAME being a run that can embed",
}


def _request(body: Completion, prompt: _Prompt, index: int) -> stream.Request:
    """Return the request for one sample; each further sample takes the next seed."""
    return stream.Request(
        prompt.beginning.ids.tolist(),
        16 if body.max_tokens is None else body.max_tokens,
        prompt.beginning.rest,
        prompt.beginning.covers,
        prompt.tail,
        prompt.blank,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_k=body.top_k,
        top_p=body.top_p,
        seed=None if body.seed is None else body.seed + index,
        stop=body.stops(),
        alternatives=body.logprobs or 0,
        score_prompt=body.scored,
    )


async def _all(streams: list[Stream]) -> list[list[Token]]:
    return [[token async for token in stream] for stream in streams]


async def _events(
    head: dict[str, Any], choices: list[_Choice], streams: list[Stream], read: int, state: ServerState, *, counted: bool
) -> AsyncIterator[str]:
    """Yield the events of an answer, each with the tokens of one text that have come since the last."""
    drawn = 0
    try:
        async with asyncio.timeout(state.limits.seconds):
            async for index, tokens in _merged(streams):
                drawn += sum(token.drawn for token in tokens)
                yield _event({**head, "choices": [choices[index].taken(tokens)]})
        if counted:
            yield _event({**head, "choices": [], "usage": _usage(read, drawn)})
    except Exception as error:
        yield _event(final_error(error, state.paths))
    yield "data: [DONE]\n\n"


async def _merged(streams: list[Stream]) -> AsyncIterator[tuple[int, list[Token]]]:
    """Batches of tokens of several streams as they come, with the number of the stream."""
    if len(streams) == 1:
        while tokens := await streams[0].batch():
            yield 0, tokens
        return
    waiting = {asyncio.ensure_future(stream.batch()): index for index, stream in enumerate(streams)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                index = waiting.pop(task)
                if tokens := task.result():
                    waiting[asyncio.ensure_future(streams[index].batch())] = index
                    yield index, tokens
    finally:
        for task in waiting:
            task.cancel()


def _event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content)}\n\n"


def _usage(read: int, drawn: int) -> dict[str, int]:
    return {"prompt_tokens": read, "completion_tokens": drawn, "total_tokens": read + drawn}


def _close(streams: list[Stream]) -> None:
    for each in streams:
        each.close()


class Text(BaseModel):
    """A text to turn into symbols. `model` may be left out where one run is served; what else comes is ignored."""

    prompt: str
    model: str | None = None


class TokenIds(BaseModel):
    """Symbols to turn into a text."""

    tokens: list[_Symbol]
    model: str | None = None


def tokenizer_router(state: ServerState) -> APIRouter:
    """Return the routes by which lm-evaluation-harness reads the symbols of a run, as vLLM serves them."""
    router = APIRouter()

    @router.get("/tokenizer_info")
    async def info() -> dict[str, Any]:
        _, engine = state.engine(None)
        unknown = engine.vocabulary.unknown in engine.encode("\n")
        return {"bos_token": None, "eos_token": None if unknown else "\n"}

    @router.post("/tokenize")
    async def tokenize(body: Text) -> dict[str, Any]:
        tokens = state.engine(body.model)[1].encode(body.prompt)
        return {"tokens": tokens, "count": len(tokens)}

    @router.post("/detokenize")
    async def detokenize(body: TokenIds) -> dict[str, Any]:
        _, engine = state.engine(body.model)
        return {"prompt": engine.decode(engine.vocabulary.check_ids(body.tokens).tolist())}

    return router
