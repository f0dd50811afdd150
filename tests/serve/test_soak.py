"""10,000 requests, many from clients that vanish, break off or send nonsense: memory stays flat, nothing is lost."""

import json
import random
import socket
import struct
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import pytest

REQUESTS, CLIENTS = 10_000, 8
BODY = {"model": "default", "prompt": "the cat", "max_tokens": 8, "seed": 1}
LONG = {**BODY, "max_tokens": 16_000}


def request(path, content, length=None):
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Connection: close"]
    lines += [f"Content-Length: {len(content) if length is None else length}", "", ""]
    return "\r\n".join(lines).encode() + content


def bytes_of(body):
    return json.dumps(body).encode()


WHOLE = request("/v1/completions", bytes_of(BODY))
# What a client sends, how much of the answer it waits for before it goes (None: all), and the status it gets if so.
CLIENT_KINDS = {
    "complete": (WHOLE, None, b"200"),
    "stream": (request("/v1/completions", bytes_of(BODY | {"stream": True, "n": 2})), None, b"200"),
    "vanish in mid-stream": (request("/v1/completions", bytes_of(LONG | {"stream": True})), 1, b""),
    "vanish from several streams": (request("/v1/completions", bytes_of(LONG | {"stream": True, "n": 3})), 400, b""),
    "vanish from the playground": (
        request("/playground/text", bytes_of({"run": "default", "max_tokens": 9999})),
        1,
        b"",
    ),
    "vanish before the answer": (request("/v1/completions", bytes_of(LONG)), 0, b""),
    "vanish from a call": (request("/runs/default/sample", bytes_of({"n": 4, "length": 50})), 0, b""),
    "half a head": (WHOLE[:50], 0, b""),
    "half a body": (WHOLE[:-9], 0, b""),
    "invalid UTF-8": (request("/v1/completions", b'{"model": "default", "prompt": "\xff\xfe"}'), None, b"400"),
    "no HTTP": (b"\x00\xff" * 50 + b"\r\n\r\n", None, b"400"),
    "an unknown capability": (request("/runs/default/none", b"{}"), None, b"404"),
}


def soak(port, number):
    """Be one client; returns its kind and the status it got."""
    draw = random.Random(number)
    kind = draw.choice(list(CLIENT_KINDS))
    sent, awaited, _ = CLIENT_KINDS[kind]
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        if draw.random() < 0.5:  # close with a reset
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(sent)
        answer = b""
        while (awaited is None or len(answer) < awaited) and (part := connection.recv(65536)):
            answer += part
    return kind, answer[9:12] if awaited is None else b""


def resident(process):
    """Resident memory of a process, kB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def get(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def settled(url):
    """Wait until no text is drawn and no call waits."""
    for _ in range(600):
        figures = get(f"{url}metrics")
        if 'chainrule_texts_active{run="default"} 0.0' in figures and "chainrule_calls_waiting 0.0" in figures:
            return True
        sleep(0.1)
    return False


@pytest.mark.slow
def test_a_soak_loses_nothing(runs, server):
    with server(runs("default").path) as (process, lines), ThreadPoolExecutor(CLIENTS) as clients:
        url = lines[0].split()[-1].partition("#")[0]
        port = int(url.split(":")[2].rstrip("/"))

        def completion():
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                connection.sendall(WHOLE)
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
            return json.loads(answer.partition(b"\r\n\r\n")[2])["choices"]

        first, memory, refused = completion(), list[int](), 0
        for start in range(0, REQUESTS, REQUESTS // 10):
            found = clients.map(lambda number: soak(port, number), range(start, start + REQUESTS // 10))
            for kind, status in found:
                assert status in (CLIENT_KINDS[kind][2], b"429"), kind
                refused += status == b"429"
            assert settled(url)
            memory.append(resident(process))
        print(
            f"{REQUESTS:,} requests, {refused} with 429; MB after each tenth: {[round(kB / 1e3, 1) for kB in memory]}"
        )
        assert json.loads(get(f"{url}healthz")) == {"status": "ok"}
        assert completion() == first
        assert abs(memory[-1] / memory[1] - 1) < 0.05  # the first two tenths fill caches and the pools of the threads
