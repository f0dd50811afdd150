"""Runs that are damaged while they are served: no answer says where they lie on the server."""

import asyncio
import os
import shutil

import httpx
import pytest

import chainrule
from chainrule_app.serve import create_app

ROWS = [{"a": number % 7, "b": "xyz"[number % 3]} for number in range(60)]
DAMAGES = {"missing": os.remove, "empty": lambda file: open(file, "wb").close()}
ASKED = {
    "text": [
        ("/runs/it/sample", {"n": 1, "length": 3}),
        ("/runs/it/score", {"data": ["the cat"]}),
        ("/v1/completions", {"model": "it", "prompt": "the", "max_tokens": 2}),
        ("/v1/completions", {"model": "it", "prompt": "the", "max_tokens": 2, "stream": True}),
        ("/tokenize", {"prompt": "the"}),
        ("/playground/text", {"run": "it", "prompt": "the", "max_tokens": 2}),
        ("/playground/read", {"run": "it", "text": "the"}),
        ("/playground/inside", {"run": "it", "symbols": [1, 2]}),
    ],
    "table": [
        ("/runs/it/sample", {"n": 1}),
        ("/runs/it/score", {"data": ROWS[:2]}),
        ("/playground/complete-row", {"run": "it", "cells": {"a": "1"}}),
        ("/playground/score-row", {"run": "it", "cells": {"a": "1", "b": "x"}}),
        ("/playground/sample-row", {"run": "it"}),
    ],
}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return chainrule.fit(ROWS, out=tmp_path_factory.mktemp("runs") / "table", steps=1, hidden_size=4, threads=1)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("task", ASKED)
@pytest.mark.parametrize("relative", [False, True])
def test_no_answer_says_where_a_damaged_run_lies(task, damage, relative, runs, table, tmp_path, monkeypatch, caplog):
    """The readers of files name them, and clients read that."""
    monkeypatch.chdir(tmp_path)
    source = runs("default").path if task == "text" else table.path
    folder = shutil.copytree(source, tmp_path / "secret" / "it")
    app = create_app({"it": chainrule.load("secret/it" if relative else folder)})
    for file in folder.rglob("*"):
        if file.is_file():
            DAMAGES[damage](file)

    async def answers():
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            got = [await client.get(path) for path in ("/runs", "/runs/it", "/playground/runs", "/v1/models")]
            return got + [await client.post(path, json=body) for path, body in ASKED[task]]

    answers = asyncio.run(answers())
    app.state.server.close()
    assert any("its log says which" in answer.text for answer in answers)
    assert not [answer.text for answer in answers if "secret" in answer.text]
    assert damage == "missing" or "secret" in caplog.text  # OSError is logged by what runs the application
