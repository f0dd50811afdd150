"""HTTP/1.1 for clients that are slow, many, half-closed or wrong: each is answered in JSON, or closed in time."""

import asyncio
import json
import socket
from itertools import count
from pathlib import Path
from typing import Any

import h11
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from chainrule_app.serve.guard import error_body, error_response

_HEALTH = "/healthz"
_SPARE = 16  # connections beyond the limit, which are told so, or that all is well
_LEAST_DESCRIPTORS = 32
_QUIET, _PROBE = 0.3, 0.2  # seconds before the first probe of a half-closed connection, and between two
_numbers = count()  # of connections, in the order in which they are made
_STILL_HERE = b"HTTP/1.1 102 Processing\r\n\r\n"


def within_descriptors(connections: int) -> tuple[int, int]:
    """Return how many connections may be open, at most the given number, and how many asyncio may accept at once.

    It accepts so many some steps before a connection can be closed again, and fails for each of
    them where no file descriptor is left.
    """
    try:
        import resource
    except ImportError:  # on Windows, where only memory limits them
        return connections, 64
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return connections, 64
    free = soft - _open_descriptors()
    if free < _LEAST_DESCRIPTORS:
        raise ValueError(
            f"serve: {free} file descriptors are left of {soft}: raise the limit with ulimit -n {soft * 4}"
        )
    return max(1, min(connections, free // 2 - _SPARE)), max(1, min(64, free // 16))


def _open_descriptors() -> int:
    folders = [folder for folder in (Path("/proc/self/fd"), Path("/dev/fd")) if folder.is_dir()]
    return sum(1 for _ in folders[0].iterdir()) if folders else 64


class Protocol(H11Protocol):
    """HTTP/1.1 with limits that uvicorn lacks.

    - A connection on which the head of a request does not come in time is closed, so that half of one holds nothing.
    - With too many connections open, requests are answered with 503, and further connections close the idle ones.
    - A client that has closed its side after the request still gets its answer. One that has left looks the same until
      something is sent, so a line that HTTP lets clients ignore is sent now and then.
    """

    def __init__(self, *args: Any, connections: int, head_seconds: float, **options: Any):
        super().__init__(*args, **options)
        self._most, self._head_seconds = connections, head_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._half_closed, self.number = False, next(_numbers)
        self._served, self.app = self.app, self._limited

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self.connections) > self._most and scope.get("path") != _HEALTH:
            await error_response(503, "too many connections are open: try again in a moment")(scope, receive, send)
        else:
            await self._served(scope, receive, self._while_open(send))

    def _while_open(self, send: Send) -> Send:
        """Return a function that sends until a write fails.

        uvicorn hears of that in a later step of the loop. Until then asyncio would complain of each write.
        """

        async def sent(message: Message) -> None:
            if self.transport.is_closing():
                self.cycle.disconnected = True
            await send(message)

        return sent

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as H11Protocol narrows it
        super().connection_made(transport)
        # asyncio does that only for sockets that name the protocol TCP, as those of `socket.create_server` do not. The
        # end of an answer would wait 40 ms for the client's acknowledgement of its beginning.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        protocols = (other for other in self.connections if isinstance(other, Protocol))
        open_now = [other for other in protocols if not other.transport.is_closing()]
        if len(open_now) > self._most + _SPARE:
            idle = (other for other in open_now if other is not self and other.is_idle)
            min(idle, key=lambda other: other.number, default=self).transport.abort()  # the one that idles longest
        self._wait_for_head()

    @property
    def is_idle(self) -> bool:
        """True while no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_head()

    def eof_received(self) -> bool | None:  # type: ignore[override]  # True keeps the side for answers open
        if self.is_idle or self.cycle.more_body:
            return None
        self._half_closed = True
        self.loop.call_later(_QUIET, self._probe)
        return True

    def _probe(self) -> None:
        """Send what makes the connection fail if the client has left, until the answer does."""
        if self.is_idle or self.transport.is_closing():
            return
        if not self.cycle.response_started and self.scope["http_version"] == "1.1":
            self.transport.write(_STILL_HERE)
        self.loop.call_later(_PROBE, self._probe)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._half_closed and self.is_idle:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def send_400_response(self, msg: str) -> None:
        body = json.dumps(error_body(400, msg)).encode()
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        length = (b"content-length", str(len(body)).encode())
        for event in (h11.Response(status_code=400, headers=[*headers, length]), h11.Data(body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.close()

    def _wait_for_head(self) -> None:
        """Set the timer while no request is being answered: once, not again for every byte."""
        waiting = self.is_idle
        if waiting and self._timer is None:
            self._timer = self.loop.call_later(self._head_seconds, self.transport.close)
        elif not waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None
