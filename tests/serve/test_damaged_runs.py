"""Runs that change while they are served: no answer mixes two runs, hides another run, or says where one lies."""

import asyncio
import os
import shutil
from pathlib import Path

import httpx
import pytest

import chainrule
from chainrule_app.serve import create_app
from chainrule_app.serve.guard import status_of

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
    assert {answer.status_code for answer in answers[4:]} == {503}
    assert "start the server again" in answers[2].text  # the page
    assert not [answer.text for answer in answers if "secret" in answer.text]
    assert "secret" in caplog.text
    assert "Traceback" not in caplog.text


def test_damaged_data_are_a_mistake_of_the_server(table, tmp_path, caplog):
    folder = shutil.copytree(table.path, tmp_path / "secret" / "it")
    app = create_app({"it": chainrule.load(folder)})
    (folder / "data" / "schema.json").write_text("{")
    answer = client(app, lambda ask: ask.post("/runs/it/score", json={"data": ROWS[:2]}))
    app.state.server.close()
    assert (answer.status_code, "its log says which" in answer.text) == (500, True)
    assert "secret" not in answer.text
    assert "secret" in caplog.text


@pytest.mark.parametrize(
    ("path", "message", "status"),
    [
        ("series", "series: expected at least two rows, got 1", 400),  # of what a client sent
        ("series", "series/data/schema.json: expected JSON", 500),
        ("secret/it", "secret/it: not a run", 500),
        ("/secret/it", "/secret/it: not a run", 500),
    ],
)
def test_a_run_may_have_the_name_of_a_field(path, message, status):
    assert status_of(ValueError(message), [Path(path)])[0] == status


def client(app, *requests):
    async def answers():
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as ask:
            return [await request(ask) for request in requests]

    found = asyncio.run(answers())
    return found if len(found) > 1 else found[0]


def test_a_run_that_is_trained_again_is_refused_with_the_reason(runs, tmp_path, caplog):
    """Schema and weights were read at different times: vocabulary of one run, weights of another."""
    folder = shutil.copytree(runs("words").path, tmp_path / "it")
    app = create_app({"it": chainrule.load(folder)})
    chainrule.fit(text="der Hund bellt\n" * 50, out=folder, overwrite=True, steps=1, hidden_size=8, threads=1)
    asked = [lambda ask, path=path, body=body: ask.post(path, json=body) for path, body in ASKED["text"]]
    for answer in client(app, *asked):
        assert answer.status_code == 503
        assert "trained again" in answer.json()["error"]["message"]
    app.state.server.close()
    assert str(folder) in caplog.text


def test_a_deleted_run_hides_no_other(runs, table, tmp_path):
    folder = shutil.copytree(table.path, tmp_path / "gone")
    app = create_app({"gone": chainrule.load(folder), "here": runs("default")})
    shutil.rmtree(folder)
    page, other, health = client(
        app,
        lambda ask: ask.get("/playground/runs"),
        lambda ask: ask.post("/runs/here/score", json={"data": ["the cat"]}),
        lambda ask: ask.get("/healthz"),
    )
    app.state.server.close()
    assert [page.status_code, other.status_code, health.status_code] == [200, 200, 200]
    gone, here = page.json()["runs"]
    assert (gone["name"], gone["view"], "deleted" in gone["problem"]) == ("gone", "", True)
    assert (here["name"], here["view"], "problem" in here) == ("here", "text", False)
