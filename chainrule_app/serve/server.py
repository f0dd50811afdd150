"""The server: its routes and measurements, a socket, uvicorn, and an end that leaves nobody waiting."""

import os
import signal
import socket
import webbrowser
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from threading import Thread
from time import monotonic, perf_counter, sleep
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

from chainrule_app.run import Run
from chainrule_app.serve.guard import Guard, Limits, answer_errors
from chainrule_app.serve.listening import is_local
from chainrule_app.serve.openai import openai_router, tokenizer_router
from chainrule_app.serve.playground import STATIC, playground_router
from chainrule_app.serve.protocol import Protocol, within_descriptors
from chainrule_app.serve.routes import runs_router
from chainrule_app.serve.state import ServerState


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
        method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "other"

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
        process = GaugeMetricFamily("chainrule_process", "The process that answers this request.", labels=["pid"])
        process.add_metric([str(os.getpid())], 1)
        yield process
        yield GaugeMetricFamily("chainrule_calls_waiting", "Other requests waiting.", value=self.state.waiting)


def create_app(
    runs: Mapping[str, Run],
    *,
    token: str | None = None,
    hosts: tuple[str, ...] = (),
    origins: tuple[str, ...] = (),
    limits: Limits | None = None,
    device: str = "auto",
) -> FastAPI:
    """Make an application that serves runs, for uvicorn or another ASGI server.

    Its workers begin with it, and end with the server.

    Args:
        runs: by the names under which they are served. Of one in training the page shows its progress.
        token: that every request has to bear; none is needed if not given.
        hosts: names that a request may call this server by, besides localhost and addresses.
        origins: sites whose pages may ask this server (CORS), such as https://example.org.
        limits: of requests.
        device: where runs compute: auto, cpu, cuda or mps; with auto texts are drawn on the processor.
    """
    state = ServerState(runs, limits or Limits(), device, asks_token=token is not None)
    registry = CollectorRegistry()

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

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        status = "stopping" if state.draining else "ok" if state.alive else "a worker has died"
        return JSONResponse({"status": status}, 200 if status == "ok" else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    app.include_router(runs_router(state))
    app.include_router(openai_router(state))
    app.include_router(tokenizer_router(state))
    app.include_router(playground_router(state))
    files = [f"/{path.relative_to(STATIC).as_posix()}" for path in STATIC.rglob("*") if path.is_file()]
    app.mount("/", StaticFiles(directory=STATIC, html=True), name="page")
    app.add_middleware(
        Guard,
        hosts=hosts,
        token=token,
        public=("/", "/healthz", "/readyz", *files),
        origins=origins,
        limits=state.limits,
        draining=lambda: state.draining,
    )
    app.add_middleware(Metrics, state=state, registry=registry)
    return app


_WAITING = 128  # connections
_LOOK = 0.05  # seconds between two looks at what is under way
_CLOSING = 5  # seconds for answers that are being written when the server ends


def serve_runs(
    runs: Mapping[str, Run],
    listening: socket.socket,
    *,
    host: str,
    open_page: bool,
    token: str | None = None,
    origins: tuple[str, ...] = (),
    drain: float = 0.0,
    device: str = "auto",
    announce: bool | None = None,
) -> None:
    """Serve runs until Ctrl-C, or SIGTERM and at most `drain` seconds more for the requests under way.

    `announce`, of one process among several, tells if it prints the addresses.
    """
    display_host = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
    address = f"http://{f'[{display_host}]' if ':' in display_host else display_host}:{listening.getsockname()[1]}/"
    app = create_app(runs, token=token, hosts=(host, socket.gethostname()), origins=origins, device=device)
    server = _Server(_config(app, app.state.server.limits))
    server.drain = drain
    with server.capture_signals():  # who reads the announcement may end the server at once
        pass
    if announce is not False:
        _announce(runs, address, host, token, open_page=open_page)
    server.run(sockets=[listening])
    if announce is None:
        print("Stopped.", flush=True)
    if server.told and app.state.server.loading:
        os._exit(0)  # Python would wait until they are compiled, longer than managers of containers do


def _announce(runs: Mapping[str, Run], address: str, host: str, token: str | None, *, open_page: bool) -> None:
    for name, run in runs.items():
        print(f"{name} ({run.task.name}, {run.config['model']['name']}): {address}#{quote(name)}", flush=True)
    page = address if token is None else f"{address}#token={quote(token)}"
    if token is not None:
        print(f"The page asks for the token; with it: {page}")
    elif not is_local(host):
        print("Every machine that reaches this one can use the server: --token SECRET keeps others out.")
    print("Ctrl-C stops the server.", flush=True)
    if open_page:
        webbrowser.open(page)


def _config(app: Any, limits: Limits) -> uvicorn.Config:
    connections, backlog = within_descriptors(limits.connections)
    return uvicorn.Config(
        app,
        http=partial(Protocol, connections=connections, head_seconds=limits.body_seconds),  # type: ignore[arg-type]  # called like a class
        backlog=backlog,
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_level="error",  # what clients do wrong is in the metrics
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_CLOSING,
    )


class _Server(uvicorn.Server):
    """A server that ends its streams when it is told to end, and then returns; told twice, it ends at once.

    At SIGTERM, which managers of containers send, it refuses new requests and finishes those under way.
    """

    drain = 0.0  # seconds for requests that are under way at SIGTERM
    told = False  # to end, by a signal

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Let more connections wait in the system than asyncio accepts at once."""
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(_WAITING)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals from here to the end of the process: a second one may come at any time."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        state: ServerState = self.config.app.state.server  # type: ignore[union-attr]  # app: never a string here
        if self.should_exit or state.draining:
            os._exit(0)  # nothing is written to a file, and tasks that are cancelled would each log that
        self.told, state.draining = True, sig == signal.SIGTERM
        self.should_exit = not state.draining  # before the thread, which may set it at once
        Thread(target=self._end, args=(state, self.drain if state.draining else 0.0)).start()

    def _end(self, state: ServerState, seconds: float) -> None:
        """End after some seconds, or as soon as nothing is under way."""
        end = monotonic() + seconds
        while not state.idle and monotonic() < end:
            sleep(_LOOK)
        self.should_exit = True
        state.close()
