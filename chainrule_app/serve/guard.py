"""The checks before every route: who asks, by which name, with how much, and how long it takes to say it.

A page of another site can make a browser send requests here. It gets no answer to read (there are no CORS headers), its
own name in `Host` is refused (DNS rebinding), so is another `Origin`, and a body has to be called JSON, which such a
page cannot do. Sites that the server was told to trust are answered with CORS headers.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from secrets import compare_digest
from typing import Any, TypeVar
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chainrule.option_error import OptionError
from chainrule.printing import one_line
from chainrule_app.tasks.run_directory import ChangedRunError

_KINDS = {401: "authentication_error", 429: "rate_limit_error"}
_MOST = 500  # characters of a message, which may quote data of any size


class ClientGone(Exception):  # noqa: N818  an event, not a mistake
    """The client has closed its connection: nobody reads an answer."""


def error_body(status: int, message: str, field: str | None = None) -> dict[str, Any]:
    """Return the content of an answer that is an error, which may be of one field of the request."""
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": one_line(message)[:_MOST], "type": kind, "param": field, "code": None}}


def error_response(status: int, message: str, field: str | None = None) -> JSONResponse:
    """Return an answer that is an error; with status 429 it says when to try again."""
    headers = {"Retry-After": "1"} if status == 429 else {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse(error_body(status, message, field), status, headers)


def status_of(error: Exception, paths: Collection[Path]) -> tuple[int, str]:
    """Return the status and the message of the answer to an error; one that names a run's path is the server's."""
    match error:
        case Busy():
            return 429, str(error)
        case ChangedRunError():
            return 503, "this run was trained again or deleted since the server began: start the server again"
        case TimeoutError():
            return 504, "the limit of time has passed: ask for less"
        case HTTPException():
            return error.status_code, str(error.detail)
        case RequestValidationError() | ValidationError():
            return 400, _first_fault(error)
        case ValueError() if not any(_names(str(error), path) for path in paths):
            return 400, str(error)
    return 500, "the server made a mistake; its log says which"


def _field_of(error: Exception) -> str | None:
    """Return the field of a request that an error is about, if it is about one."""
    return error.name if isinstance(error, OptionError) else None


def _names(message: str, path: Path) -> bool:
    """Return whether a message has the path of a run; a bare name before a colon is a field that has the run's name."""
    ends = (os.sep, ":") if len(path.parts) > 1 else (os.sep,)
    return str(path.resolve()) in message or any(f" {path}{end}" in f" {message}" for end in ends)


def final_error(error: Exception, paths: Collection[Path]) -> dict[str, Any]:
    """Return the content of an error that ends a stream; the log gets a mistake of the server's."""
    status, message = status_of(error, paths)
    _log(status, error, "an answer ended early")
    return error_body(status, message, _field_of(error))


def _log(status: int, error: Exception, what: str) -> None:
    """Log what the clients are not told: a mistake of the server's, and which run has changed."""
    if status == 503:
        logging.getLogger(__name__).error("%s", error)
    if status == 500:
        logging.getLogger(__name__).error(what, exc_info=error)


def answer_errors(app: FastAPI, paths: Collection[Path]) -> None:
    """Let all errors be answered in one shape, and none name the paths of runs."""

    def answer(_: Request, error: Exception) -> JSONResponse:
        status, message = status_of(error, paths)
        if isinstance(error, ValueError):  # the server logs the others
            _log(status, error, "a run is damaged")
        return error_response(status, message, _field_of(error))

    def nothing(_: Request, __: Exception) -> JSONResponse:
        return JSONResponse({}, 499)  # nobody reads it

    handlers: dict[type[Exception], Callable[[Request, Exception], JSONResponse]] = {
        **dict.fromkeys((Exception, ValueError, RequestValidationError, HTTPException, Busy, TimeoutError), answer),
        ClientGone: nothing,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


def _first_fault(error: RequestValidationError | ValidationError) -> str:
    fault = error.errors()[0]
    if fault["type"] == "json_invalid":
        return "body: expected JSON in UTF-8"
    field = ".".join(str(part) for part in fault["loc"] if part != "body")
    return f"{field}: {fault['msg']}" if field else fault["msg"]


@dataclass(frozen=True)
class Limits:
    """Limits of requests. A request beyond one is refused; nothing is cut silently.

    Attributes:
        body: bytes of a request's body.
        body_seconds: until a request's head, and then its body, must have come.
        prompt: symbols of a prompt.
        n: samples of one prompt, and partial translations or captions that a search keeps.
        alternatives: likeliest symbols reported with each symbol.
        tokens: symbols to draw, and the largest integer that an option may be.
        sound_seconds: length of a sound or of a piece of music to draw.
        seconds: until a request must be answered, streams included.
        rows: texts drawn side by side.
        waiting: texts, or other requests, that wait for a worker; further ones get status 429.
        calls: other requests, such as scores, that are answered side by side.
        connections: open at a time; further ones get status 503, except for /healthz.
    """

    body: int = 4 << 20
    body_seconds: float = 20.0
    prompt: int = 1 << 16
    n: int = 64
    alternatives: int = 20
    tokens: int = 1 << 14
    sound_seconds: float = 60.0
    seconds: float = 300.0
    rows: int = 64
    waiting: int = 512
    calls: int = 4
    connections: int = 256


class Busy(RuntimeError):  # noqa: N818  a state, not a mistake
    """Too much waits already."""


class Guard:
    """An ASGI application that passes on the requests that another may answer, each with its whole body."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str],
        token: str | None,
        public: Collection[str],
        origins: Collection[str] = (),
        limits: Limits,
        draining: Callable[[], bool] = lambda: False,
    ):
        self.app, self.token, self.public, self.limits = app, token, frozenset(public), limits
        self.origins, self.draining = frozenset(origins), draining
        self.hosts = {"localhost", *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = Headers(scope=scope)
        if (origin := headers.get("origin")) in self.origins:
            send = _with_headers(send, {"Access-Control-Allow-Origin": origin, "Vary": "Origin"})
            if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                await Response(status_code=204, headers=_PREFLIGHT)(scope, receive, send)
                return
        refusal = self._refusal(scope, headers)
        if refusal is None and scope["method"] not in ("GET", "HEAD"):
            try:
                async with asyncio.timeout(self.limits.body_seconds):
                    body = await self._body(receive)
            except TimeoutError:
                refusal = (408, "the body of the request did not come in time")
            else:
                if body is None:
                    return
                refusal = (413, self._too_large) if len(body) > self.limits.body else None
                receive = _replayed(body, receive)
        if refusal is not None:
            response = error_response(*refusal)
            if refusal[0] == 503:
                response.headers["Retry-After"] = "1"
            response.headers["Connection"] = "close"  # a body that was not read is not taken for a request
            await response(scope, receive, send)
            return
        # No file here is so long that a part of it would be asked for.
        scope["headers"] = [(name, value) for name, value in scope["headers"] if name != b"range"]
        if scope["method"] == "HEAD":
            scope["method"], send = "GET", _without_body(send)
        await self.app(scope, receive, send)

    @property
    def _too_large(self) -> str:
        return f"a request may have {self.limits.body:,} bytes"

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """Return the status and the reason of a request that is refused."""
        names = headers.getlist("host")
        if len(names) != 1 or not self._is_own(names[0]):
            return 403, "Host: expected localhost, an address, or the name that the server was started with (--host)"
        origin = headers.get("origin")
        own = origin is None or origin in self.origins or origin.partition("://")[2].lower() == names[0].lower()
        if not own:
            return 403, "Origin: pages of other sites may not ask this server"
        if self.token is not None and scope["path"] not in self.public:
            header = headers.get("authorization", "").encode("latin-1", "replace")
            if not compare_digest(header, f"Bearer {self.token}".encode()):
                return 401, "Authorization: expected Bearer and the token that the server was started with"
        if scope["method"] in ("GET", "HEAD"):
            return None
        if self.draining():
            return 503, "the server stops: ask another one"
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return 415, "Content-Type: expected application/json"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > self.limits.body:
            return 413, self._too_large
        return None

    def _is_own(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in self.hosts or bool(ip_address(name))
        except ValueError:
            return False

    async def _body(self, receive: Receive) -> bytes | None:
        """Return the body, or a little more than the limit of it; None where the client has gone."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if not message.get("more_body", False) or len(body) > self.limits.body:
                return bytes(body)


_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "Authorization, Content-Type",
    "Access-Control-Max-Age": "600",
}


def _with_headers(send: Send, more: dict[str, str]) -> Send:
    """Return a function that sends what it is given, an answer's start with more headers."""

    async def headed(message: Message) -> None:
        if message["type"] == "http.response.start":
            pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in more.items()]
            message = {**message, "headers": [*message.get("headers", ()), *pairs]}
        await send(message)

    return headed


def _without_body(send: Send) -> Send:
    """Return a function that sends what it is given without the body: the answer to HEAD."""

    async def headed(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return headed


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a function that gives the body first, and then what comes after it."""
    delivered = False

    async def replay() -> Message:
        nonlocal delivered
        if delivered:
            return await receive()
        delivered = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


T = TypeVar("T")


async def while_wanted(receive: Receive, work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Return the result of some work, which is cancelled where the client goes, or the time is over.

    Raises:
        ClientGone: the client has closed its connection.
        TimeoutError: the time is over.
    """
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({working, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone if gone.done() else TimeoutError
    finally:
        for task in (working, gone):
            task.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
