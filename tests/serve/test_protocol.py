"""What uvicorn lacks: answers in JSON, to half-closed clients, with many connections, and after two signals."""

import asyncio
import json
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from resource import RLIMIT_NOFILE, getrlimit
from threading import Event
from time import sleep

import pytest

from chainrule_app.run import Run
from chainrule_app.serve import protocol

BODY = {"prompt": "the", "max_tokens": 4, "seed": 1}


def request(path="/v1/completions", body=BODY, method="POST", **headers):
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(content)}"]
    lines += ["Content-Type: application/json", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + content


def received(connection):
    return b"".join(iter(lambda: connection.recv(65536), b""))


def ask_by_hand(port, data, *, half_close=False):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(data)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        answer = received(connection)
    while answer.startswith(protocol._STILL_HERE):  # where the answer took its time
        answer = answer.removeprefix(protocol._STILL_HERE)
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head, body


def test_the_end_of_an_answer_does_not_wait_for_an_acknowledgement(app, serving, monkeypatch):
    """Every request took 40 ms."""
    at_once, made = [], protocol.Protocol.connection_made

    def noted(self, transport):
        made(self, transport)
        at_once.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(protocol.Protocol, "connection_made", noted)
    with serving(app()) as port:
        assert ask_by_hand(port, request("/healthz", None, "GET", Connection="close"))[0] == 200
    assert all(at_once)
    assert at_once


def test_requests_that_are_no_http_are_told_so_in_json(app, serving):
    with serving(app()) as port:
        status, head, body = ask_by_hand(port, b"nonsense\r\n\r\n")
    assert (status, b"application/json" in head) == (400, True)
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_closed_its_side_gets_its_answer(stream, app, serving):
    with serving(app()) as port:
        status, _, body = ask_by_hand(port, request(body=BODY | {"stream": stream}), half_close=True)
    assert (status, b"finish_reason" in body) == (200, True)


def test_a_client_that_left_stops_its_call(app, serving, monkeypatch):
    """A check went on for a minute after its client had left, and held up all others."""
    ended, began = [], []

    def work(self, data, **options):
        try:
            began.append(1)
            for _ in range(60_000):
                sleep(0.001)
        finally:
            ended.append(1)

    served = app()
    monkeypatch.setattr(Run, "score", work)
    with serving(served) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(request("/runs/default/score", {"data": ["the"]}))
            for _ in range(2000):
                if began:
                    break
                sleep(0.01)
        for _ in range(2000):
            if ended and not served.state.server.waiting:
                break
            sleep(0.01)
        assert (ended, served.state.server.waiting) == ([1], 0)


def test_a_client_that_left_is_not_written_to(app, serving, caplog):
    """asyncio complained of each further write."""
    left, done, served = Event(), Event(), app()

    async def many(scope, receive, send):
        if scope["type"] == "lifespan":
            await served(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await asyncio.to_thread(left.wait, 20)
        await send({"type": "http.response.body", "body": b"more", "more_body": True})  # what the other side refuses
        await asyncio.sleep(0.05)
        for _ in range(100):  # without a pause, as what was ready before
            await send({"type": "http.response.body", "body": b"more", "more_body": True})
        done.set()

    many.state = served.state
    with serving(many) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(request("/healthz", None, "GET"))
            with connection.makefile("rb") as answer:  # unread bytes would end the connection at once
                while b"first" not in answer.readline():
                    pass
        left.set()
        assert done.wait(20)
    assert "socket.send()" not in caplog.text


def test_more_connections_than_the_limit_are_told_so_and_health_is_answered(app, serving):
    served = app(limits={"connections": 8})
    with serving(served) as port, ExitStack() as many:
        for _ in range(60):
            many.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: ask_by_hand(port, request(Connection="close")), range(8)))
        for status, _, body in answers:
            assert status == 503
            assert "connections" in json.loads(body)["error"]["message"]
        assert ask_by_hand(port, request("/healthz", None, "GET", Connection="close"))[0] == 200


def test_connections_stay_below_the_limit_of_file_descriptors(monkeypatch):
    open_now = protocol._open_descriptors()
    monkeypatch.setattr(protocol, "_open_descriptors", lambda: open_now)  # threads of other tests may close theirs
    for soft in (open_now + 40, open_now + 200, 1024, 65536):
        monkeypatch.setattr("resource.getrlimit", lambda _, soft=soft: (soft, soft))
        connections, backlog = protocol.within_descriptors(256)
        assert 1 <= connections <= 256
        assert connections + protocol._SPARE + 4 * backlog < soft - open_now
    monkeypatch.setattr("resource.getrlimit", lambda _: (open_now + 5, 1024))
    with pytest.raises(ValueError, match=r"5 file descriptors are left of .* raise the limit with ulimit -n"):
        protocol.within_descriptors(256)


@pytest.mark.slow
def test_a_flood_of_connections_is_survived_without_tracebacks(runs, server):
    with server(runs("default").path, descriptors=96) as (process, lines):
        port = int(lines[0].rsplit(":", 1)[1].partition("/")[0])
        assert getrlimit(RLIMIT_NOFILE)[0] > 400
        with ExitStack() as many:
            for _ in range(300):
                many.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            assert ask_by_hand(port, request("/healthz", None, "GET", Connection="close"))[0] == 200
        sleep(0.2)
        assert ask_by_hand(port, request(Connection="close"))[0] == 200
        process.terminate()
        assert process.communicate(timeout=120)[1] == "loading default …\n"


@pytest.mark.slow
@pytest.mark.parametrize("pause", [0, 0.3])
def test_two_signals_end_the_server_without_a_traceback(pause, runs, server):
    with server(runs("default").path) as (process, lines):
        port = int(lines[0].rsplit(":", 1)[1].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(request(body=BODY | {"stream": True, "max_tokens": 16_000}))
            connection.recv(100)
            for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
                process.send_signal(number)
                sleep(pause)
            assert process.communicate(timeout=120)[1] == "loading default …\n"
            assert process.returncode == 0


@pytest.mark.parametrize("origin", ["http://[x]", "http://[", "http://[::1", "http://]", "//", "http://"])
def test_origins_that_are_no_addresses_are_refused(origin, app, ask):
    answer = ask(app(token="secret"), "GET", "/runs", headers={"Origin": origin})
    assert (answer.status_code, answer.json()["error"]["message"][:7]) == (403, "Origin:")


@pytest.mark.parametrize("path", ["/", "/healthz", "/runs", "/runs/default", "/v1/models", "/metrics", "/app.js"])
def test_head_is_answered_as_get_without_a_body(path, app, ask):
    served = app()
    whole, head = ask(served, "GET", path), ask(served, "HEAD", path)
    assert (head.status_code, head.content) == (whole.status_code, b"")
    assert head.headers["content-type"] == whole.headers["content-type"]


@pytest.mark.parametrize("ranges", ["bytes=5-1", "bytes=99999999-", "lines=1-2", "bytes=0-5"])
def test_files_are_sent_whole(ranges, app, ask):
    served = app()
    assert ask(served, "GET", "/", headers={"Range": ranges}).content == ask(served, "GET", "/").content


@pytest.mark.parametrize(
    ("method", "path", "status", "hint"),
    [
        ("POST", "/v1/chat/completions", 404, "use POST /v1/completions"),
        ("POST", "/v1/embeddings", 404, "use POST /runs/NAME/embed"),
        ("GET", "/v1/completions", 404, "use POST"),
        ("POST", "/v1/audio/speech", 404, "served here are completions"),
        ("DELETE", "/runs", 405, ""),
        ("GET", "/nothing", 404, ""),
        ("POST", "/nothing", 405, ""),
        ("GET", "/runs/none", 404, "there are: default"),
        ("POST", "/runs/default/none", 404, "no such capability"),
    ],
)
def test_what_is_not_served_is_told_in_json_with_a_hint(method, path, status, hint, app, ask):
    answer = ask(app(), method, path, headers={"Content-Type": "application/json"}, content=b"{}")
    assert answer.status_code == status
    assert hint in answer.json()["error"]["message"]


def test_the_model_may_be_left_out_where_one_run_is_served(app, ask):
    answer = ask(app(), "POST", "/v1/completions", json=BODY)
    assert (answer.status_code, answer.json()["model"]) == (200, "default")
    several = ask(app("default", "words"), "POST", "/v1/completions", json=BODY)
    assert (several.status_code, "name a run of a text" in several.text) == (404, True)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "日本"}),
        ("/v1/completions", {"prompt": "日本", "stream": True}),
        ("/playground/text", {"run": "default", "prompt": "日本"}),
        ("/runs/default/sample", {"prompt": "日本"}),
        ("/runs/default/sample", {"temperature": -1}),
        ("/runs/default/score", {"data": ["日本"], "per": "line", "adapt_rate": 1}),
    ],
)
def test_errors_name_the_fields_of_a_request(path, body, app, ask):
    answer = ask(app(), "POST", path, json=body)
    assert answer.status_code == 400
    assert "--" not in answer.json()["error"]["message"]
