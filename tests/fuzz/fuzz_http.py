"""Send valid and broken requests to a server of several runs and report what is not answered as it should be.

Usage: python tests/fuzz/fuzz_http.py [--cases 3000] [--seed 0] [--only NUMBER] [--kinds NAME...]

It trains a small run of each kind, starts `chainrule serve` on a free port of 127.0.0.1, talks to that server alone and
ends it. A request may be answered, or refused with a status from 400 to 499 and one line of JSON. Status 500, another
error that is not JSON, silence, a traceback in the log, or a server that is not well afterwards is a failure. What is
no HTTP may also end in a closed connection. At least a third of the requests is answered with 200. Each case depends on
its seed and number alone.
"""

import argparse
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from fuzz_mutations import NASTY, changed

CLIENTS = 4
SECONDS = 330  # for one answer, more than the limit of the server
LEAST_VALID = 1 / 3
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e]")
WORDS = ["red", "blue", "violets", "are", "roses", "green", "the sky"]
PIXELS = [[[(row * column) % 256 for column in range(8)] for row in range(8)] for _ in range(2)]
PAIRS = [("good fine film", "good"), ("bad dull film", "bad")]
SENTENCE = [("Ada", "B-PER"), ("saw", "O"), ("Paris", "B-LOC")]


def rows(count: int) -> list[dict[str, Any]]:
    return [{"a": number % 7, "b": "xyz"[number % 3], "c": number / 4} for number in range(count)]


def hours(count: int) -> list[dict[str, Any]]:
    days = [(number // 24 + 1, number % 24) for number in range(count)]
    return [{"time": f"2020-01-{day:02} {hour:02}:00", "load": hour + day / 9} for day, hour in days]


def kinds() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Data and options of a run of each kind."""
    random = np.random.default_rng(0)
    return {
        "text": (["roses are red", "violets are blue", "the sky is green"] * 20, {"hidden_size": 4}),
        "table": (rows(60), {"hidden_size": 4}),
        "image": (random.integers(0, 256, (20, 8, 8), dtype=np.uint8), {"channels": 6, "layers": 1}),
        "classify": (PAIRS * 20, {}),
        "tag": ([SENTENCE] * 20, {"hidden_size": 4}),
        "forecast": (hours(600), {"task": "forecast", "horizon": 4, "hidden_size": 4}),
    }


KINDS = ("text", "table", "image", "classify", "tag", "forecast")


@dataclass
class Request:
    """A request as it is sent."""

    method: str
    path: str
    body: Any = None  # JSON; bytes are sent as they are
    headers: dict[str, str] | None = None
    raw: bytes = b""  # in the place of all else

    def __str__(self) -> str:
        return f"{self.raw!r:.300}" if self.raw else f"{self.method} {self.path} {self.headers} {self.body!r:.600}"


def valid(random: Random, kind: str) -> Request:
    """Return a request that a run of a kind answers."""
    seed, n = random.randrange(1000), random.randint(1, 3)
    text = " ".join(random.choices(WORDS, k=random.randint(1, 5)))
    drawn = {"seed": seed, "temperature": random.choice((0, 0.5, 1, 2)), "max_tokens": random.randint(1, 20)}
    playground = {"run": kind, "seed": seed}

    def run(verb: str, **body: Any) -> Request:
        return Request("POST", f"/runs/{kind}/{verb}", body)

    common = [
        Request("GET", f"/runs/{kind}"),
        Request("GET", random.choice(("/", "/runs", "/healthz", "/metrics", "/playground/runs", "/app.js"))),
        Request("HEAD", random.choice(("/", "/runs", "/healthz"))),
    ]
    inspection = {} if random.random() < 0.9 else {"inspect": {}}
    own = {
        "text": [
            Request("POST", "/v1/completions", {"prompt": text, "n": n, "stream": random.random() < 0.3, **drawn}),
            Request("POST", "/v1/completions", {"prompt": [text, "red"], "logprobs": n, "echo": True, **drawn}),
            Request("GET", "/v1/models"),
            Request("POST", "/tokenize", {"prompt": text}),
            Request("POST", "/detokenize", {"tokens": [1, 2, 3]}),
            Request("POST", "/playground/text", {**playground, "prompt": text, "max_tokens": n}),
            Request("POST", "/playground/read", {"run": kind, "text": text}),
            run("score", data=[text, "red"]),
            run("sample", n=n, seed=seed, prompt=text, length=9),
            run("embed", data=[text]),
        ],
        "table": [
            run("score", data=rows(n)),
            run("sample", n=n, seed=seed),
            run("sample", n=n, seed=seed, where="b=x"),
            Request("POST", "/playground/complete-row", {**playground, "cells": {"a": "1"}, "n": 5}),
            Request("POST", "/playground/score-row", {"run": kind, "cells": {"a": "1", "b": "x", "c": "0.5"}}),
            Request("POST", "/playground/sample-row", playground),
        ],
        "image": [
            run("score", data=PIXELS[:n]),
            run("sample", n=n, seed=seed),
            Request("POST", "/playground/draw", {**playground, "n": n}),
            Request("POST", "/playground/image-example", {"run": kind, "number": 0}),
        ],
        "classify": [
            run("classify", data=[text, "good film"]),
            run("evaluate", data=PAIRS),
            Request("POST", "/playground/answer", {"run": kind, "text": text}),
        ],
        "tag": [
            run("tag", data=[text, "Ada saw"]),
            run("evaluate", data=[SENTENCE]),
            Request("POST", "/playground/answer", {"run": kind, "text": text}),
        ],
        "forecast": [
            run("forecast", data=hours(60), paths=n + 1, seed=seed),
            run("forecast", paths=n + 1, horizon=n, seed=seed),
            Request("POST", "/playground/forecast", {**playground, "paths": 5}),
        ],
    }[kind]
    return random.choice([*own, *own, *own, *common, *(run(verb, **body) for verb, body in inspection.items())])


def broken(random: Random, request: Request, kind: str) -> Request:
    """Return a request with something wrong, or merely odd."""
    headers, body = dict(request.headers or {}), request.body
    match random.randrange(8):
        case 0 | 1 | 2 if isinstance(body, dict):
            for _ in range(random.choice((1, 1, 2, 4))):
                body = changed(random, body)
            return Request(request.method, request.path, body, headers)
        case 3:
            content = bytearray(json.dumps(body).encode())
            place = random.randrange(len(content) + 1)
            content[place : place + random.choice((0, 1, 9))] = random.choice(NASTY)[:2000]
            return Request("POST", request.path, bytes(content), headers)
        case 4:
            name = random.choice(("Host", "Origin", "Content-Type", "Authorization", "Range", "Accept", "Cookie"))
            odd = ("http://[x]", "null", "", "*/*", "bytes=9-1", "a" * 9000, "text/plain", "localhost", "é\xff", "[::1")
            return Request(request.method, request.path, body, headers | {name: random.choice(odd)})
        case 5:
            place = random.choice(
                ("/v1/chat/completions", "/v1/embeddings", "/v1/x", "/runs/none", f"/runs/{kind}/none", "/runs//",
                 f"/runs/{kind}/../table", "/static/../_server.py", "/%00", "/%ff", "/playground/none", "//",
                 "/runs?" + "x" * 500, f"/runs/{kind}/save", f"/runs/{kind}/resume", f"/runs/{kind}/_answer",
                 "/" + "x" * 3000)
            )  # fmt: skip
            return Request(request.method, place, body, headers)
        case 6:
            method = random.choice(("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW", "GET", "HEAD", "POST"))
            return Request(method, request.path, body, headers)
        case 7:
            return Request("", "", raw=raw(random, request))
    return Request(request.method, request.path, random.choice(([], None, "x", 1, {}, {"run": "none"})), headers)


def raw(random: Random, request: Request) -> bytes:
    """Return bytes that are nearly a request."""
    content = json.dumps(request.body).encode()
    head = f"{request.method} {request.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    whole = f"{head}Connection: close\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content
    place = random.randrange(len(whole))
    return random.choice(
        (
            whole[:place] + random.choice(NASTY)[:500] + whole[place:],
            whole[: place // 2] + whole[place:],
            whole.replace(b"HTTP/1.1", random.choice((b"HTTP/1.0", b"HTTP/9", b"", b"http/1.1"))),
            whole.replace(b"Content-Length: ", random.choice((b"Content-Length: -", b"Expect: "))),
            whole.replace(b"\r\n", b"\n"),
            whole + whole,
            bytes(random.randrange(256) for _ in range(200)) + b"\r\n\r\n",
        )
    )  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A request, how it was answered, and what is wrong with that; None where nothing is."""

    number: int
    request: Request
    status: int | None
    problem: str | None


def case_of(port: int, number: int, seed: int, names: list[str]) -> Case:
    """Make the request of a number, send it, and judge."""
    random = Random(f"{seed}/{number}")
    kind = random.choice(names)
    request = valid(random, kind)
    is_valid = random.random() < 0.45
    if not is_valid:
        request = broken(random, request, kind)
    try:
        status, content = send_raw(port, request.raw) if request.raw else send(port, request)
    except (OSError, HTTPException) as error:
        return Case(number, request, None, f"no answer: {type(error).__name__}: {error}")
    return Case(number, request, status, problem(request, status, content, is_valid=is_valid))


def send(port: int, request: Request) -> tuple[int, bytes]:
    """Send a request; returns the status and the content of the answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        body = request.body if isinstance(request.body, bytes) else json.dumps(request.body).encode()
        body = b"" if request.body is None else body
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(request.headers or {})}
        connection.putrequest(request.method, request.path, skip_host="Host" in headers, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value.encode("latin-1"))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def send_raw(port: int, data: bytes) -> tuple[int, bytes]:
    """Send bytes and the end of them; returns status 0 where the connection is closed without an answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        except (ConnectionResetError, BrokenPipeError):
            return 0, b""
    while answer.startswith(b"HTTP/1.1 1"):  # of an answer that comes later
        answer = answer.partition(b"\r\n\r\n")[2]
    head, _, content = answer.partition(b"\r\n\r\n")
    return (int(head.split()[1]), content) if head.startswith(b"HTTP/1.1 ") else (0, content)


def problem(request: Request, status: int, content: bytes, *, is_valid: bool) -> str | None:
    """What is wrong with an answer; None where nothing is."""
    said = content.decode("utf-8", "replace")
    if b"Traceback" in content:
        return f"a traceback: {said:.500}"
    if status == 0 and request.raw:
        return None
    if is_valid and status != 200:
        return f"a valid request got status {status}: {said:.500}"
    if status < 400:
        return None if 200 <= status < 400 else f"status {status}"
    if status >= 500:
        return f"status {status}: {said:.500}"
    if request.method == "HEAD" or request.raw[:4] == b"HEAD":
        return None
    try:
        message = json.loads(content.partition(b"HTTP/1.1 ")[0])["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return f"status {status} without an error in JSON: {said:.500}"
    wrong = not isinstance(message, str) or not message or len(message) > 500 or CONTROL.search(message)
    return f"status {status} with an odd message: {message!r:.600}" if wrong else None


@contextmanager
def served(names: list[str]) -> Iterator[tuple[int, Path]]:
    """Train runs and serve them on a port of this machine alone; gives the port and the file of the log."""
    import chainrule

    with tempfile.TemporaryDirectory(prefix="chainrule-fuzz-") as home:
        for name in names:
            data, options = kinds()[name]
            chainrule.fit(data, out=Path(home) / name, steps=1, threads=1, precision="float32", **options)
        log = Path(home) / "log.txt"
        command = [
            sys.executable,
            "-m",
            "chainrule",
            "serve",
            *(str(Path(home) / name) for name in names),
            "--port",
            "0",
        ]
        with log.open("w") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
            try:
                assert process.stdout is not None
                first = process.stdout.readline()
                if not first:
                    raise RuntimeError(f"the server did not start: {log.read_text()}")
                yield int(first.rsplit(":", 1)[1].partition("/")[0]), log
            finally:
                process.terminate()
                process.communicate()


def unwell(port: int, log: Path) -> str | None:
    """What is wrong with a server after all requests; None where nothing is."""
    status, _ = send(port, Request("GET", "/healthz"))
    if status != 200:
        return f"/healthz has status {status}"
    _, content = send(port, Request("GET", "/metrics"))
    waiting = re.search(r"^chainrule_calls_waiting (\S+)", content.decode(), re.MULTILINE)
    if waiting is None or float(waiting[1]):
        return f"calls are still waiting: {waiting and waiting[1]}"
    written = log.read_text()
    return f"a traceback in the log: {written[-3000:]}" if "Traceback" in written else None


def run_cases(port: int, numbers: range, seed: int, names: list[str]) -> Iterator[Case]:
    """Send the requests of some numbers, several at a time."""
    with ThreadPoolExecutor(CLIENTS) as clients:
        yield from clients.map(lambda number: case_of(port, number, seed, names), numbers)


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the server.")
    parser.add_argument("--cases", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="send this request alone")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    asked = parser.parse_args()
    numbers = range(asked.cases) if asked.only is None else range(asked.only, asked.only + 1)
    statuses, failed = Counter[int | None](), 0
    with served(asked.kinds) as (port, log):
        for case in run_cases(port, numbers, asked.seed, asked.kinds):
            statuses[case.status] += 1
            if case.problem is not None or asked.only is not None:
                failed += case.problem is not None
                print(f"case {case.number}: {case.request}\n{case.status} {case.problem}\n", flush=True)
        ill = unwell(port, log)
        if ill is not None or asked.only is not None:
            print(ill or log.read_text())
        shutil.copyfile(log, Path(tempfile.gettempdir()) / "chainrule-fuzz-http.log")
    share = statuses[200] / len(numbers)
    told = ", ".join(f"{status}: {count}" for status, count in sorted(statuses.items(), key=str))
    print(f"{failed} of {len(numbers)} cases failed (seed {asked.seed}); {share:.0%} valid; statuses {told}")
    return int(failed > 0 or ill is not None or (asked.only is None and share < LEAST_VALID))


if __name__ == "__main__":
    sys.exit(main())
