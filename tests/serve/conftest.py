"""Small runs of texts, applications and engines of them, and a way to ask them in this process."""

import asyncio
import random
import resource
import socket
import subprocess
import sys
from contextlib import contextmanager
from threading import Thread

import httpx
import pytest
import uvicorn

import chainrule
from chainrule_app.serve import Limits, create_app
from chainrule_app.serve.engine import Engine
from chainrule_app.serve.server import _config

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "saw",
    "two",
    "dogs",
    "run",
    "far",
    "away",
    "from",
    "café",
    "number",
]
SMALL = {"steps": 1, "threads": 1, "precision": "float32"}
TRANSFORMER = {"model": "transformer", "model_size": 16, "num_layers": 2, "num_heads": 2}
KINDS = {
    "default": {"hidden_size": 8},  # a mean of a recurrence and counts
    "members": {"hidden_size": 8, "num_members": 2, "kneser_ney_order": 0},
    "rotary": {**TRANSFORMER, "context_length": 8},
    "alibi": {**TRANSFORMER, "position": "alibi", "context_length": 8},
    "sinusoidal": {**TRANSFORMER, "position": "sinusoidal", "kneser_ney_order": 0},
    "words": {"hidden_size": 8, "level": "word"},
    "bytes": {"hidden_size": 8, "level": "byte"},
    "bpe": {"hidden_size": 8, "level": "bpe", "vocabulary_size": 300},
    "lines": {"hidden_size": 8, "reading": "lines"},
}


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A function that gives a run of a text by its kind, hardly trained."""
    home, made = tmp_path_factory.mktemp("served"), {}
    draw = random.Random(0)
    file = home / "log.txt"
    file.write_text("".join(" ".join(draw.choices(WORDS, k=6)) + f" {number}\n" for number in range(200)), "utf-8")

    def run(kind="default"):
        if kind not in made:
            made[kind] = chainrule.fit(file, out=home / kind, **{**SMALL, **KINDS[kind]})
        return made[kind]

    return run


@pytest.fixture
def engines(runs):
    """A function that gives an engine of a run, which is closed after the test."""
    made = []

    def engine(kind="default", **limits):
        made.append(Engine(runs(kind), Limits(**limits)))
        return made[-1]

    yield engine
    for one in made:
        one.close()


@pytest.fixture
def app(runs):
    """A function that gives an application, whose workers end after the test."""
    made = []

    def create(*kinds, **options):
        limits = Limits(**options.pop("limits", {}))
        made.append(create_app({kind: runs(kind) for kind in kinds or ("default",)}, limits=limits, **options))
        return made[-1]

    yield create
    for one in made:
        one.state.server.close()


def client_of(app):
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost", timeout=60)


@pytest.fixture
def ask():
    """Send one request to an application in this process."""

    def call(app, method, path, **options):
        async def answer():
            async with client_of(app) as client:
                return await client.request(method, path, **options)

        return asyncio.run(answer())

    return call


@pytest.fixture
def serving():
    """A context in which an application listens on a socket; gives its port."""

    @contextmanager
    def context(app):
        listening = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(_config(app, app.state.server.limits))
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()
            listening.close()

    return context


@pytest.fixture
def server():
    """A context of a server in a process of its own; gives the process and the lines up to its start."""

    @contextmanager
    def context(*arguments, descriptors=None):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        command = [sys.executable, "-W", "error", "-m", "chainrule", "serve", *map(str, arguments), "--port", "0"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=descriptors and limit
        ) as process:
            try:
                lines = []
                while not lines or not lines[-1].startswith("Ctrl-C"):
                    lines.append(process.stdout.readline())
                    assert lines[-1], process.stderr.read()
                yield process, lines
            finally:
                process.kill()

    return context
