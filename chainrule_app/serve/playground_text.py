"""Texts of the playground: symbols with their surprise and alternatives, branches from kept states, and activations."""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from math import exp
from secrets import token_urlsafe
from typing import Annotated, Any, cast

import torch
from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import StreamingResponse
from pydantic import Field

from chainrule.data import Beginning, Vocabulary
from chainrule.layers import CausalAttention
from chainrule.state import State, leaves
from chainrule_app.run import Run
from chainrule_app.serve.engine import Engine
from chainrule_app.serve.stream import Request as TextRequest
from chainrule_app.serve.stream import Token
from chainrule_app.serve.views import Body, Count, Seed, Temperature, Text, TextBody, TopP, Views
from chainrule_app.tasks.text.inspection import first_network
from chainrule_app.tasks.text.scoring import ended_lines
from chainrule_app.tasks.text.task import TextTask

ALTERNATIVES = 10
_STATE_BYTES = 256 << 20  # of all sessions
_SESSIONS = 256
LONGEST_INSPECTED = 400  # symbols of a text whose gates or attention are shown
_SUGGESTED = 8  # units
_WINDOW = 8  # symbols that are decoded together to tell what the last of them adds


class DrawBody(Body):
    """A text to draw: after a prompt, or after symbols whose last may differ from the drawn one."""

    prompt: Text = ""
    symbols: Annotated[list[Count], Field(max_length=1 << 16)] | None = None
    session: str | None = None
    max_tokens: Annotated[int, Field(ge=1, lt=1 << 31)] = 200
    temperature: Temperature = 1.0
    top_k: Annotated[int, Field(ge=1)] | None = None
    top_p: TopP = None
    seed: Seed = 0


class InsideBody(Body):
    """A unit or a head to look into."""

    symbols: Annotated[list[Count], Field(min_length=1, max_length=LONGEST_INSPECTED)]
    layer: Count = 0
    unit: Count = 0


def text_router(views: Views) -> APIRouter:
    """Return the routes of runs of texts."""
    router, engines = APIRouter(), views.state.engines
    sessions = {name: Sessions() for name in engines}

    @router.post("/text")
    async def text(body: DrawBody) -> StreamingResponse:
        views.run(body, "text")
        engine = engines[body.run]
        anew = body.symbols is None
        given = engine.begin(body.prompt)[0] if anew else Beginning(engine.vocabulary.check_ids(body.symbols or ()))
        request = TextRequest(
            given.ids.tolist(),
            body.max_tokens,
            rest=given.rest,
            covers=given.covers,
            temperature=body.temperature,
            top_k=body.top_k,
            top_p=body.top_p,
            seed=body.seed,
            alternatives=ALTERNATIVES,
            score_prompt=anew,
            keep_states=True,
        )
        return views.lines(stream_text(engine, sessions[body.run], request, body.session))

    @router.post("/read")
    async def read(body: TextBody) -> StreamingResponse:
        views.run(body, "text")
        return views.lines(read_text(engines[body.run], body.text))

    @router.post("/inside")
    async def inside(body: InsideBody, request: Request) -> Any:
        run = views.run(body, "text")
        kind = insides(run).get("kind")
        if kind is None:
            raise HTTPException(400, f"a {run.task.config.model} has no gates or heads that can be shown")
        look = gates_of if kind == "units" else attention_of
        return await views.answer(request, look, run, body.symbols, body.layer, body.unit)

    return router


@dataclass
class Session:
    """The symbols of one text and the states from which they were drawn."""

    symbols: list[int]  # read or drawn
    # by the place of the symbol that was drawn from it; of some places only
    states: dict[int, State] = field(default_factory=dict)
    storages: set[int] = field(default_factory=set)  # addresses of the memory of the states, which may share some
    size: int = 0  # bytes of that memory

    def add(self, symbol: int, state: State) -> None:
        """Add the next symbol."""
        if state is not None:
            self.states[len(self.symbols)] = state
            for block in (leaf.untyped_storage() for leaf in leaves(state)):
                if block.data_ptr() not in self.storages:
                    self.storages.add(block.data_ptr())
                    self.size += block.nbytes()
        self.symbols.append(symbol)

    def clear(self) -> None:
        """Forget the states."""
        self.states.clear()
        self.storages.clear()
        self.size = 0


class Sessions:
    """Texts whose states are kept, by an opaque identifier; those used longest ago are forgotten first.

    A forgotten session costs its user one parallel pass over the text, nothing else.
    """

    def __init__(self, most_bytes: int = _STATE_BYTES, most: int = _SESSIONS):
        self._most_bytes, self._most = most_bytes, most
        self._kept: OrderedDict[str, Session] = OrderedDict()

    def start(self, symbols: Sequence[int]) -> str:
        """Begin a session of a text, and return its identifier."""
        name = token_urlsafe(18)
        self._kept[name] = Session(list(symbols))
        self._trim()
        return name

    def fork(self, name: str | None, symbols: Sequence[int]) -> State:
        """Return the state that has read all of `symbols` but the last, if a session has it; else None."""
        session = None if name is None else self._kept.get(name)
        last = len(symbols) - 1
        if name is None or session is None or last < 0 or session.symbols[:last] != list(symbols[:last]):
            return None
        self._kept.move_to_end(name)
        return session.states.get(last)

    def add(self, name: str, symbol: int, state: State) -> None:
        """Add the next symbol to a session, unless it is forgotten; see `_trim`."""
        if (session := self._kept.get(name)) is not None:
            session.add(symbol, state)
            self._kept.move_to_end(name)
            self._trim()

    def _trim(self) -> None:
        """Forget sessions until the others fit; of the last one, the states."""
        while len(self._kept) > self._most or sum(one.size for one in self._kept.values()) > self._most_bytes:
            if len(self._kept) > 1:
                self._kept.popitem(last=False)
            else:
                next(iter(self._kept.values())).clear()


async def stream_text(
    engine: Engine, sessions: Sessions, request: TextRequest, session: str | None
) -> AsyncGenerator[Any, None]:
    """Yield a text as it is drawn: a record for each symbol, and {"finish"} at the end.

    The first record is {"session", "forked", "text"}: whether a kept state was forked, and what the last symbol of the
    request adds to the text.

    Args:
        engine: of the run.
        sessions: of the run.
        request: with the symbols so far; the last may differ from the session's symbol at this position.
        session: whose state is forked, where it is still kept.
    """
    symbols = list(request.prompt)
    start = sessions.fork(session, symbols)
    name = sessions.start([] if request.score_prompt else symbols)
    if start is not None:
        request = TextRequest(**{**vars(request), "start": start, "prompt": symbols[-1:]})
    window = symbols[-_WINDOW:]
    added = engine.decode(window)[len(engine.decode(window[:-1])) :] if window else ""
    yield {"session": name, "forked": start is not None, "text": added}
    finish = "length"
    async with aclosing(engine.generate(request)) as stream:
        async for token in stream:
            yield token_record(engine, token)
            sessions.add(name, token.symbol, token.state)
            finish = token.finish or finish
    yield {"finish": finish}


async def read_text(engine: Engine, text: str) -> AsyncGenerator[dict[str, Any], None]:
    """Records of the symbols of a text as the model reads it; of a run on lines, each line from its own beginning."""
    parts = ended_lines(text) if engine.run.task.data.reading == "lines" else [text]
    for part in parts:
        request = TextRequest(engine.encode(part), 0, alternatives=ALTERNATIVES, score_prompt=True)
        async with aclosing(engine.generate(request)) as stream:
            async for token in stream:
                yield token_record(engine, token)
    yield {"finish": "stop"}


def token_record(engine: Engine, token: Token) -> dict[str, Any]:
    """Return a symbol for JSON: its number, the text it adds, its label, its surprisal and its likeliest rivals."""
    label = vocabulary_of(engine.run).token
    return {
        "id": token.symbol,
        "text": token.text,
        "label": label(token.symbol),
        "nats": 0.0 - token.log_prob,
        "top": [[symbol, label(symbol), exp(log_prob)] for symbol, log_prob in token.alternatives],
        "drawn": token.drawn,
    }


def vocabulary_of(run: Run) -> Vocabulary:
    """Return the vocabulary of a run of texts."""
    return cast("TextTask", run.task).vocabulary


def about_text(run: Run) -> dict[str, Any]:
    """Facts about a run of texts that the page needs."""
    data = run.task.data
    return {"level": data.level, "reading": data.reading, "symbols": len(vocabulary_of(run)), "inside": insides(run)}


def insides(run: Run) -> dict[str, Any]:
    """Return the parts of a model of texts whose activations can be shown: gates of units, or heads of attention."""
    from chainrule.models import RecurrentLM, TransformerLM

    model = first_network(run.model)
    if isinstance(model, RecurrentLM):
        return {"kind": "units", "layers": model.recurrent.num_layers, "units": model.recurrent.hidden_size}
    if isinstance(model, TransformerLM):
        mixers = [block.mixer for block in model.stack.layers]
        if all(isinstance(mixer, CausalAttention) for mixer in mixers):
            return {"kind": "heads", "layers": len(mixers), "units": mixers[0].num_heads}
    return {}


def gates_of(run: Run, symbols: Sequence[int], layer: int, unit: int) -> dict[str, Any]:
    """Return one unit's activity after each symbol: its gates, its cell and its output.

    Returns:
        `values`: lists over the symbols, by name; `suggested`: the units whose output varies most over this text.
    """
    from chainrule.diagnostics import gate_values

    parts = insides(run)
    _check(layer, parts["layers"], "layer")
    _check(unit, parts["units"], "unit")
    # A step reads the symbol before the one that it predicts: one more shows what the last one did.
    x = torch.tensor([[*symbols, symbols[-1]]])
    signals = gate_values(run.model, x)[layer]
    hidden = signals.pop("hidden")
    values = {name: _rounded(value[0, 1:, unit]) for name, value in (signals | {"output h": hidden}).items()}
    suggested = hidden[0, 1:].std(0, correction=0).topk(min(_SUGGESTED, parts["units"])).indices.tolist()
    return {"values": values, "suggested": suggested}


def attention_of(run: Run, symbols: Sequence[int], layer: int, head: int) -> dict[str, Any]:
    """Attention of one head over a text.

    Returns:
        `weights`: for each symbol, how much its prediction attended to the start and to each symbol before it.
    """
    from chainrule.diagnostics import mixer_views

    parts = insides(run)
    _check(layer, parts["layers"], "layer")
    _check(head, parts["units"], "head")
    model = first_network(run.task.model())  # a copy, because hooks record in it
    seen, _ = mixer_views(model, torch.tensor([list(symbols)]))  # type: ignore[arg-type]  # `insides` checked its kind
    weights = seen[layer].weights
    assert weights is not None
    return {"weights": [_rounded(row[: index + 1]) for index, row in enumerate(weights[head])]}


def _check(value: int, count: int, name: str) -> None:
    if not 0 <= value < count:
        raise ValueError(f"{name}: expected a whole number from 0 to {count - 1}, got {value}")


def _rounded(values: torch.Tensor) -> list[float]:
    return [round(value, 4) for value in values.double().tolist()]
