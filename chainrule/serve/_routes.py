"""Plain JSON routes: every capability of a run, its request made from the method's signature and its options.

Data come in the body. A method of `Run` would take a string for the path of a file; here no string reaches one as its
data: data are lists, and an option that names a file takes what the file would hold.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, get_args, get_type_hints

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, create_model

from chainrule._app.run import Run
from chainrule.serve._data import answered, bytes_of, data_of, item_of
from chainrule.serve._limits import Limits
from chainrule.serve._state import ServerState
from chainrule.serve._waiting import while_wanted

_STREAMED = "stream"  # which is what /v1/completions does
_HELD_OUT = ("evaluate", "inspect")  # which take held-out data where none are given
_ONE = ("first", "last")  # arguments that are one item of data


def runs_router(state: ServerState) -> APIRouter:
    """Return the routes below /runs."""
    router = APIRouter(prefix="/runs")
    bodies = {name: {verb: _body(run, verb) for verb in _verbs(run)} for name, run in state.runs.items()}

    def about(name: str) -> dict[str, Any]:
        run = state.runs[name]
        model = run.config["model"]
        return {"name": name, "task": run.task, "model": model["name"], "capabilities": list(bodies[name])}

    def known(name: str) -> Run:
        if name not in state.runs:
            raise HTTPException(404, f"no run is called {name!r:.80}; there are: {', '.join(state.runs) or 'none'}")
        return state.runs[name]

    @router.get("")
    async def runs() -> dict[str, Any]:
        limits = {item.name: getattr(state.limits, item.name) for item in fields(state.limits)}
        return {"runs": list(map(about, state.runs)), "limits": limits}

    @router.get("/{name}")
    async def one_run(name: str) -> dict[str, Any]:
        known(name)
        return about(name) | {"requests": {verb: body.model_json_schema() for verb, body in bodies[name].items()}}

    @router.post("/{name}/{capability}", response_model=None)
    async def call(name: str, capability: str, request: Request) -> JSONResponse:
        run = known(name)
        if capability not in bodies[name]:
            can = ", ".join(bodies[name])
            raise HTTPException(404, f"{capability!r:.80}: a run of the task {run.task} has no such capability: {can}")
        arguments = bodies[name][capability].model_validate(await _content(request))
        work = state.call(_answer, run, capability, arguments, state.limits)
        return JSONResponse(await while_wanted(request.receive, work, state.limits.seconds))

    return router


async def _content(request: Request) -> Any:
    """Return the body as JSON; none stands for no arguments."""
    if not await request.body():
        return {}
    try:
        return await request.json()
    except (ValueError, RecursionError) as error:
        raise ValueError(f"body: expected JSON in UTF-8: {error}") from None


def _verbs(run: Run) -> list[str]:
    return [name for name in run.capabilities if name != _STREAMED]


def _arguments(run: Run, verb: str) -> dict[str, Parameter]:
    """Return the arguments of a method by name; where to compute is the server's choice."""
    method: Callable[..., Any] = getattr(run, verb)
    parameters = signature(method).parameters
    return {
        name: argument
        for name, argument in parameters.items()
        if argument.kind is not Parameter.VAR_KEYWORD and name != "device"
    }


def _body(run: Run, verb: str) -> type[BaseModel]:
    """Return the model of a request: the arguments of a method, and the fields of its options."""
    definitions: dict[str, Any] = {}
    for name, argument in _arguments(run, verb).items():
        if argument.annotation is bytes:
            definitions[name] = (str, ...)
        elif argument.annotation is Any:
            kind = Any if name in _ONE else list[Any]
            definitions[name] = (kind | None, None) if verb in _HELD_OUT else (kind, ...)
        else:
            definitions[name] = (argument.annotation, argument.default)
    options = run.options_of(verb)
    if options is not None:
        hints = get_type_hints(options, include_extras=True)
        for item in fields(options):
            default = item.default if item.default is not MISSING else ...
            definitions[item.name] = (Any if _names_file(hints[item.name]) else hints[item.name], default)
    if verb == "evaluate" and run.task == "classify-images":
        definitions["labels"] = (list[str | int] | None, None)
    definitions = {name: field for name, field in definitions.items() if name != "self"}
    return create_model(verb.capitalize(), __config__=ConfigDict(extra="forbid", strict=True), **definitions)


def _names_file(hint: Any) -> bool:
    return hint is Path or any(map(_names_file, get_args(hint)))


def _answer(run: Run, verb: str, body: BaseModel, limits: Limits) -> Any:
    """Call a method of a run, and give what it returns as JSON takes it."""
    values = {name: getattr(body, name) for name in body.model_fields_set}
    options = run.options_of(verb)
    files = {name for name, hint in get_type_hints(options).items() if _names_file(hint)} if options else set()
    arguments = _arguments(run, verb)
    for name, value in values.items():
        if isinstance(value, int) and name != "seed" and value > limits.tokens:
            raise ValueError(f"{name}: expected at most {limits.tokens}, got {value}")
        if value is None:
            continue
        if name == "n" and value > limits.n:
            raise ValueError(f"n: expected at most {limits.n}, got {value}")
        if name in files or name in _ONE:
            values[name] = item_of(run.task, value, name)
        elif name in arguments and arguments[name].annotation is bytes:
            values[name] = bytes_of(value, name)
        elif name in arguments and arguments[name].annotation is Any:
            values[name] = data_of(run.task, value, name)
    return answered(getattr(run, verb)(**values))
