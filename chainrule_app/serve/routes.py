"""Plain JSON routes: every capability of a run, its request made from the method's signature and its options.

Data come in the body. A method of `Run` would take a string for the path of a file; here no string reaches one as its
data: data are lists, and an option that names a file takes what the file would hold.
"""

import base64
import binascii
import io
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass, replace
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, create_model

from chainrule_app import frames
from chainrule_app.printing import plain_value
from chainrule_app.results import Report, Result
from chainrule_app.run import Run
from chainrule_app.serve.guard import Limits, while_wanted
from chainrule_app.serve.state import ServerState
from chainrule_app.tasks import TASK_VERBS

_IMAGES = ("image", "classify-images", "caption")  # tasks whose items are images
_ARRAYS = {"sound": 1, "music": 2}  # tasks whose items are arrays, and their dimensions
_MOST_PIXELS = 1 << 22
_TOGETHER = 16  # rows of a call that answers several requests: a product of other sizes rounds differently


def data_of(task: str, value: Any, name: str) -> list[Any]:
    """Convert a list of a request to data of a task."""
    if not isinstance(value, list) or not value:
        raise ValueError(f"{name}: expected a list of at least one item, got {value!r:.80}")
    if task in _IMAGES:
        return [image_of(item, name) for item in value]
    if task in _ARRAYS:
        return [_numbers(item, name, _ARRAYS[task]) for item in value]
    return value


def item_of(task: str, value: Any, name: str) -> Any:
    """Return the content of a file argument, sent in a request: an image, a sound, a piano roll, or a list of rows."""
    if task in ("image", "classify-images"):
        return image_of(value, name)
    if task in _ARRAYS:
        return _numbers(value, name, _ARRAYS[task])
    if not isinstance(value, list) or not value:
        raise ValueError(f"{name}: expected a list of rows, not the path of a file, got {value!r:.80}")
    return value


def bytes_of(value: str, name: str) -> bytes:
    """Decode base64."""
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{name}: expected bytes in base64") from None


def image_of(value: Any, name: str) -> Any:
    """Return an image (H, W) or (H, W, 3) of 8 bits: lists of numbers, or a PNG or JPEG file in base64."""
    if not isinstance(value, str):
        array = _numbers(value, name, 2, 3)
        if array.size and not (array.min() >= 0 and array.max() <= 255 and (array == np.floor(array)).all()):
            raise ValueError(f"{name}: expected whole numbers from 0 to 255 in images")
        return array.astype(np.uint8)
    from PIL import Image

    try:
        with Image.open(io.BytesIO(bytes_of(value.rpartition("base64,")[2], name)), formats=("PNG", "JPEG")) as image:
            if image.width * image.height > _MOST_PIXELS:
                raise ValueError(f"{name}: expected images of at most {_MOST_PIXELS:,} pixels")
            return np.asarray(image.convert("L" if image.mode in ("1", "L", "I;16") else "RGB"))
    except (OSError, SyntaxError, Image.DecompressionBombError):
        raise ValueError(f"{name}: expected images as lists of numbers, or PNG or JPEG files in base64") from None


def _numbers(value: Any, name: str, *dimensions: int) -> Any:
    """Nested lists of numbers as an array."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.empty(())
    if isinstance(value, str) or array.ndim not in dimensions or not np.isfinite(array).all():
        raise ValueError(f"{name}: expected lists of numbers, each item of one shape, got {value!r:.80}")
    return array.astype(np.float32) if dimensions == (1,) else array


def answered(value: Any) -> Any:
    """Return the result of a method of a run as JSON; NaN and infinite numbers become null."""
    match value:
        case Result():
            return finite(_table(value))
        case Report():
            return finite({"findings": value.findings, "lines": list(value.lines)})
        case bytes():
            return {"data": base64.b64encode(value).decode()}
        case list():
            return {"rows": [finite(plain_value(item, item)) for item in value]}
    if hasattr(value, "tolist"):
        return {"rows": finite(value.tolist())}
    if frames.is_frame(value):
        frame = frames.as_frame(value)
        return {"rows": [finite(dict(zip(frame.columns, row, strict=True))) for row in frame.rows()]}
    return finite(asdict(value) if is_dataclass(value) and not isinstance(value, type) else {"text": str(value)})


def _table(result: Result) -> dict[str, Any]:
    """Convert a result: a record for each row, figures of all rows, facts, and notes."""

    def plain(facts: Mapping[str, Any]) -> dict[str, Any]:
        return {name: plain_value(value, value) for name, value in facts.items()}

    rows = [
        {column.name: plain_value(column.value(cell), cell) for column, cell in zip(result.columns, row, strict=True)}
        for row in result.rows()
    ]
    return {"rows": rows, "summary": plain(result.summary), "about": plain(result.about), "notes": [*result.notes()]}


def finite(value: Any) -> Any:
    """Convert a value for JSON, which has no NaN, no infinity and no dates."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if hasattr(value, "tolist"):
        return finite(value.tolist())
    return list(map(finite, value)) if isinstance(value, Iterable) else str(value)


_STREAMED = "stream"  # which is what /v1/completions does
_ONE = ("first", "last")  # arguments that are one item of data


def runs_router(state: ServerState) -> APIRouter:
    """Return the routes below /runs."""
    router = APIRouter(prefix="/runs")

    @cache
    def bodies(name: str) -> dict[str, type[BaseModel]]:
        run = state.runs[name]
        return {verb: _body(run, verb) for verb in _verbs(run)}

    for name in state.runs:  # those in training have no model yet
        bodies(name)

    def about(name: str) -> dict[str, Any]:
        run = state.runs[name]
        model = run.config["model"]
        return {"name": name, "task": run.task.name, "model": model["name"], "capabilities": list(bodies(name))}

    @router.get("")
    async def runs() -> dict[str, Any]:
        limits = {item.name: getattr(state.limits, item.name) for item in fields(state.limits)}
        return {"runs": list(map(about, state.runs)), "limits": limits}

    @router.get("/{name}")
    async def one_run(name: str) -> dict[str, Any]:
        state.run(name)
        return about(name) | {"requests": {verb: body.model_json_schema() for verb, body in bodies(name).items()}}

    @router.post("/{name}/{capability}", response_model=None)
    async def call(name: str, capability: str, request: Request) -> JSONResponse:
        run = state.run(name)
        if capability not in bodies(name):
            can = ", ".join(bodies(name))
            raise HTTPException(
                404, f"{capability!r:.80}: a run of the task {run.task.name} has no such capability: {can}"
            )
        arguments = bodies(name)[capability].model_validate(await _content(request))
        given = {field: getattr(arguments, field) for field in arguments.model_fields_set}
        if capability == "score" and run.task.name == "table" and given.keys() == {"data"}:
            work = _scored(state, name, run, data_of("table", given["data"], "data"))
        else:
            work = state.call(_answer, run, capability, arguments, state.limits, state.device)
        return JSONResponse(await while_wanted(request.receive, work, state.limits.seconds))

    return router


async def _content(request: Request) -> Any:
    """Return the body as JSON; none stands for no arguments."""
    if not await request.body():
        return {}
    try:
        return await request.json()
    except (ValueError, RecursionError):
        raise ValueError("body: expected JSON in UTF-8") from None


async def _scored(state: ServerState, name: str, run: Run, rows: list[Any]) -> Any:
    """Score rows of a table together with those of other requests."""

    async def answer(requests: list[list[Any]]) -> list[Any]:
        return await state.call(_scores, run, requests, state.device)

    return await state.together.call(("score", name), rows, answer)


def _scores(run: Run, requests: list[list[Any]], device: str) -> list[Any]:
    """Return the scores of the rows of several requests, or of one with more rows: bit for bit those of each alone."""
    from chainrule_app.tasks.table.task import TableTask
    from chainrule_app.tasks.table.verbs import divided_scores
    from chainrule_app.tasks.text.sampling import one_thread

    task, rows = run.task, [row for rows in requests for row in rows]
    assert isinstance(task, TableTask)
    if len(rows) <= _TOGETHER:
        with one_thread(task.device(device)):
            if _places_are_alike(run, rows[-1], device):
                result = run.score([*rows, *rows[-1:] * (_TOGETHER - len(rows))], device=device)
                return list(map(answered, divided_scores(task, result, list(map(len, requests)))))
    return [answered(run.score(rows, device=device)) for rows in requests]


def _places_are_alike(run: Run, row: Any, device: str) -> bool:
    """Return whether a row gets the same bits in each place of a call; tried once.

    Products of matrices of one size sum a row's terms in an order of their own, whatever the other rows are. On most
    processors it is the same order for all rows.
    """
    computed = run.task.computed
    if "places are alike" not in computed:
        cells = run.score([row] * _TOGETHER, device=device)["columns"]
        computed["places are alike"] = all(own == cells[0] for own in cells)
    return bool(computed["places are alike"])


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
            definitions[name] = (kind | None, None) if argument.default is None else (kind, ...)
        else:
            definitions[name] = (argument.annotation, argument.default)
    options = run.options_of(verb)
    if options is not None:
        hints = get_type_hints(options, include_extras=True)
        for item in fields(options):
            default = item.default if item.default is not MISSING else ...
            definitions[item.name] = (Any if _names_file(hints[item.name]) else hints[item.name], default)
    if verb == "evaluate" and run.task.name == "classify-images":
        definitions["labels"] = (list[str | int] | None, None)
    definitions = {name: field for name, field in definitions.items() if name != "self"}
    return create_model(verb.capitalize(), __config__=ConfigDict(extra="forbid", strict=True), **definitions)


def _names_file(hint: Any) -> bool:
    return hint is Path or any(map(_names_file, get_args(hint)))


def _answer(run: Run, verb: str, body: BaseModel, limits: Limits, device: str) -> Any:
    """Call a method of a run, and give what it returns as JSON takes it."""
    values = {name: getattr(body, name) for name in body.model_fields_set}
    options = run.options_of(verb)
    files = {name for name, hint in get_type_hints(options).items() if _names_file(hint)} if options else set()
    arguments = _arguments(run, verb)
    if verb == "forecast" and (values.get("paths") or 1) * (values.get("horizon") or 1) > limits.n * limits.tokens:
        raise ValueError(f"paths: expected at most {limits.n * limits.tokens} values of all paths: ask for fewer")
    for name, value in values.items():
        if isinstance(value, int) and name != "seed" and value > limits.tokens:
            raise ValueError(f"{name}: expected at most {limits.tokens}, got {value}")
        if value is None:
            continue
        if name in ("n", "beam") and value > limits.n:
            raise ValueError(f"{name}: expected at most {limits.n}, got {value}")
        if name == "seconds" and value > limits.sound_seconds:
            raise ValueError(f"seconds: expected at most {limits.sound_seconds:g}, got {value:g}")
        if name in files or name in _ONE:
            values[name] = item_of(run.task.name, value, name)
        elif name in arguments and arguments[name].annotation is bytes:
            values[name] = bytes_of(value, name)
        elif name in arguments and arguments[name].annotation is Any:
            values[name] = data_of(run.task.name, value, name)
    method = getattr(run, verb)
    if device != "auto" and (verb in TASK_VERBS or "device" in signature(method).parameters):
        values["device"] = device
    answer, place = method(**values), str(run.path)
    if isinstance(answer, Report):  # which names the run by where it lies
        findings = {name: run.path.name if value == place else value for name, value in answer.findings.items()}
        lines = tuple(line.replace(place, run.path.name) for line in answer.lines)
        answer = replace(answer, findings=findings, lines=lines)
    return answered(answer)
