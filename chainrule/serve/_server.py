"""The server: its routes and measurements, a socket, uvicorn, and an end that leaves nobody waiting."""

import asyncio
import os
import socket
import webbrowser
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import ip_address
from threading import Thread
from time import perf_counter
from types import FrameType
from typing import Any
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from chainrule._app.run import Run
from chainrule.serve._guard import Guard, Limits, answer_errors
from chainrule.serve._openai import openai_router, tokenizer_router
from chainrule.serve._playground import STATIC, playground_router
from chainrule.serve._routes import runs_router
from chainrule.serve._state import ServerState


class Metrics:
    """An ASGI application that counts the requests that another answers, and the symbols of its engines."""

    def __init__(self, app: ASGIApp, state: ServerState, registry: CollectorRegistry):
        self.app, self.state = app, state
        labels = ("method", "route", "status")
        self.requests = Counter("chainrule_requests", "Requests answered.", labels, registry=registry)
        self.seconds = Histogram("chainrule_request_seconds", "Seconds until the end.", labels[:2], registry=registry)
        registry.register(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = perf_counter(), 499  # the client has gone

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noting)
        finally:
            # Of known routes only: the paths that strangers ask for have no end.
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "other"
            self.requests.labels(method, route, status).inc()
            self.seconds.labels(method, route).observe(perf_counter() - began)

    def collect(self) -> Iterator[Any]:
        """Yield the figures of the engines, read when they are asked for."""
        drawn = CounterMetricFamily("chainrule_symbols_drawn", "Symbols drawn.", labels=["run"])
        read = CounterMetricFamily("chainrule_symbols_read", "Symbols of prompts read.", labels=["run"])
        active = GaugeMetricFamily("chainrule_texts_active", "Texts being drawn or waiting.", labels=["run"])
        for name, engine in self.state.engines.items():
            drawn.add_metric([name], engine.drawn)
            read.add_metric([name], engine.read)
            active.add_metric([name], engine.active)
        yield from (drawn, read, active)
        yield GaugeMetricFamily("chainrule_calls_waiting", "Other requests waiting.", value=self.state.waiting)


def create_app(
    runs: Mapping[str, Run], *, token: str | None = None, hosts: tuple[str, ...] = (), limits: Limits | None = None
) -> FastAPI:
    """Make an application that serves runs, for uvicorn or another ASGI server.

    Its workers begin with it, and end with the server.

    Args:
        runs: by the names under which they are served.
        token: that every request has to bear; none is needed if not given.
        hosts: names that a request may call this server by, besides localhost and addresses.
        limits: of requests.
    """
    state, registry = ServerState(runs, limits or Limits()), CollectorRegistry()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        state.close()

    # No pages of documentation: they load scripts from other servers.
    app = FastAPI(title="chainrule", docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.server = state
    answer_errors(app, state.paths)

    @app.get("/healthz")
    async def healthz() -> JSONResponse:
        return JSONResponse({"status": "ok" if state.alive else "a worker has died"}, 200 if state.alive else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    app.include_router(runs_router(state))
    app.include_router(openai_router(state))
    app.include_router(tokenizer_router(state))
    app.include_router(playground_router(state))
    files = [f"/{path.relative_to(STATIC).as_posix()}" for path in STATIC.rglob("*") if path.is_file()]
    app.mount("/", StaticFiles(directory=STATIC, html=True), name="page")
    app.add_middleware(Guard, hosts=hosts, token=token, public=("/", "/healthz", *files), limits=state.limits)
    app.add_middleware(Metrics, state=state, registry=registry)
    return app


_CLOSING = 5  # seconds for answers that are being written when the server ends


def serve_runs(runs: Mapping[str, Run], *, host: str, port: int, token: str | None, open_page: bool) -> None:
    """Serve runs until Ctrl-C or SIGTERM."""
    limits, listening = Limits(), _listen(host, port)
    with listening:
        display_host = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
        address = f"http://{f'[{display_host}]' if ':' in display_host else display_host}:{listening.getsockname()[1]}/"
        app = create_app(runs, token=token, hosts=(host, socket.gethostname()), limits=limits)
        server = _Server(_config(app, limits))
        for name, run in runs.items():
            print(f"{name} ({run.task.name}, {run.config['model']['name']}): {address}#{quote(name)}", flush=True)
        page = address if token is None else f"{address}#token={quote(token)}"
        if token is not None:
            print(f"The page asks for the token; with it: {page}")
        elif not _is_local(host):
            print("Every machine that reaches this one can use the server: --token SECRET keeps others out.")
        print("Ctrl-C stops the server.", flush=True)
        if open_page:
            webbrowser.open(page)
        server.run(sockets=[listening])
    print("Stopped.")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        code = error.errno or 0  # a negative one is of a name that is not found
        reason = (os.strerror(code) if code > 0 else str(error.strerror)).lower()
        remedy = "take another --port, 0 for a free one" if port else "take another --host"
        raise ValueError(f"{host}:{port}: {reason}: {remedy}") from None


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _config(app: Any, limits: Limits) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=partial(_Protocol, head_seconds=limits.body_seconds),  # type: ignore[arg-type]  # called like a class
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_level="error",  # what clients do wrong is in the metrics
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=limits.connections,
        timeout_graceful_shutdown=_CLOSING,
    )


class _Server(uvicorn.Server):
    """A server that ends its streams when it is told to end, and then returns."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit, self.should_exit = self.should_exit, True
        Thread(target=self.config.app.state.server.close).start()  # type: ignore[union-attr]  # app: never a string here


class _Protocol(H11Protocol):
    """HTTP/1.1 that closes a connection on which the head of a request does not come in time.

    uvicorn waits for it without end, so that a client that sends half of one would hold a connection for ever.
    """

    def __init__(self, *args: Any, head_seconds: float, **options: Any):
        super().__init__(*args, **options)
        self._head_seconds = head_seconds
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as H11Protocol narrows it
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def _wait_for_head(self) -> None:
        """Set the timer while no request is being answered: once, not again for every byte."""
        waiting = self.cycle is None or self.cycle.response_complete
        if waiting and self._timer is None:
            self._timer = self.loop.call_later(self._head_seconds, self.transport.close)
        elif not waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None
