"""The checks before every route: who asks, by which name, with how much, and how long it takes to say it.

A page of another site can make a browser send requests here. It gets no answer to read (there are no CORS headers), its
own name in `Host` is refused (DNS rebinding), so is another `Origin`, and a body has to be called JSON, which such a
page cannot do.
"""

import asyncio
from collections.abc import Collection
from ipaddress import ip_address
from secrets import compare_digest
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chainrule.serve._errors import error_response
from chainrule.serve._limits import Limits


class Guard:
    """An ASGI application that passes on the requests that another may answer, each with its whole body.

    Args:
        app: the other.
        hosts: names that a request may call this server by, besides localhost and addresses.
        token: that every request has to bear; None lets everybody in.
        public: paths that need no token.
        limits: of requests.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Collection[str], token: str | None, public: Collection[str], limits: Limits
    ):
        self.app, self.token, self.public, self.limits = app, token, frozenset(public), limits
        self.hosts = {"localhost", *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = Headers(scope=scope)
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
            response.headers["Connection"] = "close"  # a body that was not read is not taken for a request
            await response(scope, receive, send)
            return
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
        if origin is not None and urlsplit(origin).netloc.lower() != names[0].lower():
            return 403, "Origin: pages of other sites may not ask this server"
        if self.token is not None and scope["path"] not in self.public:
            header = headers.get("authorization", "").encode("latin-1", "replace")
            if not compare_digest(header, f"Bearer {self.token}".encode()):
                return 401, "Authorization: expected Bearer and the token that the server was started with"
        if scope["method"] in ("GET", "HEAD"):
            return None
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
