"""The checks before every route, and clients that are slow, broken or hostile."""

import asyncio
import json
import socket
from time import sleep

import httpx
import pytest

from chainrule_app.serve.guard import Guard, Limits

BODY = {"model": "default", "prompt": "the", "max_tokens": 4, "seed": 1}
URL = "/v1/completions"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("192.168.0.7", 200),
        ("my-machine:8000", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost@evil.example", 403),
        ("", 403),
        ("[::1", 403),
        ("a" * 10_000, 403),
    ],
)
def test_the_server_answers_to_its_own_names_alone(host, status, app, ask):
    served = app(hosts=("my-machine",))
    assert ask(served, "GET", "/runs", headers={"Host": host}).status_code == status
    assert ask(served, "POST", URL, headers={"Host": host}, json=BODY).status_code == status


def test_pages_of_other_sites_get_nothing(app, ask):
    served = app()
    for origin in ("http://evil.example", "null", "http://localhost:9999", "http://localhost.evil.example"):
        answer = ask(served, "POST", URL, headers={"Origin": origin}, json=BODY)
        assert answer.status_code == 403
        assert not [name for name in answer.headers if name.startswith("access-control")]
    own = ask(served, "POST", URL, headers={"Origin": "http://localhost"}, json=BODY)
    assert own.status_code == 200
    assert not [name for name in own.headers if name.startswith("access-control")]
    preflight = ask(served, "OPTIONS", URL, headers={"Origin": "http://evil.example"})
    assert preflight.status_code == 403
    # What a form of another site can send is no JSON by its name.
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        answer = ask(served, "POST", URL, headers={"Content-Type": kind}, content=json.dumps(BODY))
        assert answer.status_code == 415
    assert served.state.server.engines["default"].drawn == 4


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Basic sécret".encode("latin-1")}, 401),
        ({"Authorization": "secret"}, 401),
        ({"Authorization": "Bearer secret"}, 200),
    ],
)
def test_the_token_is_needed_for_everything_but_the_page(header, status, app, ask):
    served = app(token="secret")
    for path in ("/runs", "/runs/default", "/metrics", "/v1/models", "/openapi.json"):
        assert ask(served, "GET", path, headers=header).status_code == status
    answer = ask(served, "POST", URL, headers=header, json=BODY)
    assert answer.status_code == status
    assert status == 200 or answer.json()["error"]["type"] == "authentication_error"
    assert ask(served, "GET", "/healthz", headers=header).json() == {"status": "ok"}
    assert ask(served, "GET", "/", headers=header).status_code in (200, 404)
    assert "default" not in ask(served, "GET", "//runs", headers=header).text or status == 200


def test_bodies_have_a_limit(app, ask):
    served = app(limits={"body": 1000})

    async def pieces():
        for _ in range(100):
            yield b" " * 100

    assert ask(served, "POST", URL, json=BODY | {"prompt": "x" * 1000}).status_code == 413
    chunked = ask(served, "POST", URL, content=pieces(), headers={"Content-Type": "application/json"})
    assert chunked.status_code == 413
    lie = ask(
        served, "POST", URL, content=pieces(), headers={"Content-Type": "application/json", "Content-Length": "9"}
    )
    assert lie.status_code in (400, 413)
    odd = {"Content-Type": "application/json", "Content-Length": b"+3"}
    assert ask(served, "POST", URL, content=b"{}", headers=odd).status_code == 413
    assert ask(served, "POST", URL, json=BODY).status_code == 200


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe\x00",
        b'{"model": "default", "prompt": "\xff"}',
        b'{"model": "default", "prompt": "\\ud800"}',
        b'{"model": "default", "prompt": "the", "temperature": NaN}',
        b'{"model": "default", "prompt": "the", "temperature": 1e999}',
        b'{"model": "default", "prompt": "the", "seed": ' + b"9" * 5000 + b"}",
        b'{"model": "default", "prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"model": "default", "prompt": "the", "stop": "\\ud800"}',
    ],
)
def test_broken_bodies_are_refused_and_nothing_breaks(content, app, ask):
    served = app()
    for path in (URL, "/runs/default/sample", "/runs/default/score"):
        answer = ask(served, "POST", path, content=content, headers={"Content-Type": "application/json"})
        if path == "/runs/default/sample" and content == b"":
            assert answer.status_code == 200  # no arguments are needed
            continue
        if b"stop" in content and path == URL:
            assert answer.status_code == 200  # it stops nowhere
            continue
        assert answer.status_code == 400, (path, answer.text)
        message = answer.json()["error"]["message"]
        assert message
        assert "codec" not in message
    assert ask(served, "GET", "/healthz").json() == {"status": "ok"}


def test_other_protocols_are_closed():
    sent = []

    async def run():
        async def send(message):
            sent.append(message)

        guard = Guard(None, hosts=(), token=None, public=(), limits=Limits())
        await guard({"type": "websocket", "path": "/", "headers": []}, None, send)

    asyncio.run(run())
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_the_limit_of_time_ends_completions_and_streams(app, ask):
    served = app(limits={"seconds": 0.3})
    long = BODY | {"max_tokens": 16_000}
    answer = ask(served, "POST", URL, json=long)
    assert (answer.status_code, answer.json()["error"]["type"]) == (504, "server_error")
    events = [line for line in ask(served, "POST", URL, json=long | {"stream": True}).text.split("\n\n") if line]
    assert json.loads(events[-2].removeprefix("data: "))["error"]["message"].startswith("the limit of time")
    assert events[-1] == "data: [DONE]"
    assert idle(served)


def test_calls_that_wait_have_a_limit(app):
    served = app(limits={"waiting": 2})

    async def crowd():
        transport = httpx.ASGITransport(served)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            body = {"n": 8, "length": 400}
            return await asyncio.gather(*(client.post("/runs/default/sample", json=body) for _ in range(6)))

    found = sorted(answer.status_code for answer in asyncio.run(crowd()))
    assert found == [200, 200, 429, 429, 429, 429]
    assert served.state.server.waiting == 0


# What follows is sent over a socket by hand.


def idle(served):
    """Whether no text is being drawn after a moment."""
    engine = served.state.server.engines["default"]
    for _ in range(300):
        if engine.active == 0 and not engine._rows:
            return True
        sleep(0.01)
    return False


def sent(port, data, *, wait=True):
    """Send bytes, and read the answer up to the end of the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        try:
            connection.sendall(data)
            return b"".join(iter(lambda: connection.recv(65536), b"")) if wait else b""
        except (ConnectionResetError, BrokenPipeError):
            return b""


def trickle(port, data):
    """Send a byte now and then."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as slow:
        for byte in data:
            slow.sendall(bytes([byte]))
            sleep(0.02)


def request(body, *headers, length=None):
    content = json.dumps(body).encode()
    head = ["POST /v1/completions HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Connection: close"]
    lines = [*head, f"Content-Length: {len(content) if length is None else length}", *headers, "", ""]
    return "\r\n".join(lines).encode() + content


def test_disconnected_clients_free_their_rows(app, serving):
    served = app()
    long = BODY | {"max_tokens": 16_000}
    with serving(served) as port:
        for body in (long | {"stream": True}, long, long | {"stream": True, "n": 5}):
            for _ in range(3):
                with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
                    connection.sendall(request(body))
                    if body.get("stream"):
                        assert connection.recv(100).startswith(b"HTTP/1.1 200")
                    else:
                        sleep(0.05)
            assert idle(served)
        assert b"HTTP/1.1 200" in sent(port, request(BODY))


def test_half_requests_are_closed_in_time(app, serving):
    served = app(limits={"body_seconds": 0.3})
    whole = request(BODY)
    with serving(served) as port:
        for half in (b"", b"POST /v1", whole[:60], b"GET / HTTP/1.1\r\n"):
            assert sent(port, half) == b""
        assert b"HTTP/1.1 408" in sent(port, whole[:-5])
        with pytest.raises(OSError):
            trickle(port, whole)
        assert b"HTTP/1.1 200" in sent(port, whole)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:  # connections that are kept are not cut
            for _ in range(3):
                assert client.post(URL, json=BODY).status_code == 200
                sleep(0.05)
        assert idle(served)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 1000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"a" * 200_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /..%5c..%5cetc/passwd%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"BREW /runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n",
        request(BODY, length=-1),
        request(BODY, length=10**30),
        request(BODY, "Transfer-Encoding: chunked"),
        request(BODY, "Expect: 100-continue", length=10**6),
    ],
)
def test_hostile_requests_are_refused(data, app, serving):
    served = app(limits={"body_seconds": 0.5})
    with serving(served) as port:
        answer = sent(port, data)
        assert answer == b"" or answer.split()[1] in (b"400", b"403", b"404", b"405", b"408", b"413", b"100"), answer
        assert b"root:" not in answer
        assert b"HTTP/1.1 200" in sent(port, request(BODY))


def test_many_connections_are_refused_without_harm(app, serving):
    served = app(limits={"connections": 20, "body_seconds": 1.0})
    with serving(served) as port:
        many = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(60)]
        assert b"HTTP/1.1 503" in sent(port, request(BODY))
        for connection in many:
            connection.close()
        sleep(0.2)
        assert b"HTTP/1.1 200" in sent(port, request(BODY))
