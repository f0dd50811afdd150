"""The server: a socket, uvicorn, lines that say where it is, and an end that leaves nobody waiting."""

import asyncio
import os
import socket
import webbrowser
from collections.abc import Mapping
from functools import partial
from ipaddress import ip_address
from threading import Thread
from types import FrameType
from typing import Any
from urllib.parse import quote

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from chainrule._app.run import Run
from chainrule.serve._app import create_app
from chainrule.serve._limits import Limits

_CLOSING = 5  # seconds for answers that are being written when the server ends


def serve_runs(
    runs: Mapping[str, Run], *, host: str, port: int, token: str | None, open_page: bool, limits: Limits | None = None
) -> None:
    """Serve runs until Ctrl-C or SIGTERM.

    Args:
        runs: by the names under which they are served.
        host, port: to listen on; port 0 is a free one.
        token: that every request has to bear, if given.
        open_page: whether to open a browser.
        limits: of requests.

    Raises:
        ValueError: the address cannot be listened on.
    """
    limits = limits or Limits()
    listening = _listen(host, port)
    with listening:
        display_host = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
        address = f"http://{f'[{display_host}]' if ':' in display_host else display_host}:{listening.getsockname()[1]}/"
        app = create_app(runs, token=token, hosts=(host, socket.gethostname()), limits=limits)
        server = _Server(_config(app, limits))
        for name, run in runs.items():
            print(f"{name} ({run.task}, {run.config['model']['name']}): {address}#{quote(name)}", flush=True)
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
