"""Requests that are answered together, other sites, and an end that loses nothing."""

import asyncio
import os
import signal
import subprocess
import sys
from threading import Thread
from time import monotonic, sleep

import httpx
import polars
import pytest

import chainrule
from chainrule_app.cli.main import main
from chainrule_app.serve import create_app
from chainrule_app.serve.routes import _scores
from chainrule_app.serve.together import Together


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rows = polars.DataFrame({"size": [n % 7 + 0.5 for n in range(80)], "kind": ["a", "b"] * 40})
    options = {"steps": 2, "threads": 1, "precision": "float32", "hidden_size": 8}
    return chainrule.fit(rows, out=tmp_path_factory.mktemp("served") / "table", **options)


@pytest.fixture
def served(table):
    app = create_app({"table": table}, token="sesame", origins=("https://example.org",))
    yield app
    app.state.server.close()


AUTHORISED = {"Authorization": "Bearer sesame"}


def asked(app, method, path, **options):
    async def answer():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return await client.request(method, path, **options)

    return asyncio.run(answer())


def test_requests_that_wait_are_answered_by_one_call():
    calls = []

    async def answer(requests):
        calls.append(len(requests))
        await asyncio.sleep(0.02)
        return [sum(items) for items in requests]

    async def ask():
        together = Together(pause=0.005, most=6)
        return await asyncio.gather(*(together.call("sums", [number, 1], answer) for number in range(8)))

    assert asyncio.run(ask()) == [number + 1 for number in range(8)]
    assert calls == [3, 3, 2]


def test_clients_that_ask_again_are_answered_by_one_call_and_do_not_take_turns():
    calls = []

    async def answer(requests):
        calls.append(len(requests))
        await asyncio.sleep(0.02)
        return [None] * len(requests)

    async def client(together, late):
        await asyncio.sleep(late)
        for _ in range(4):
            await together.call("sums", [1], answer)

    async def ask():
        together = Together(pause=0.001)
        await asyncio.gather(*(client(together, 0.01 * (number % 2)) for number in range(6)))

    asyncio.run(ask())
    assert calls[0] == 3
    assert 6 in calls  # the second group waits for the first, and both for each other from then on


def test_a_request_that_fails_fails_alone():
    async def answer(requests):
        if any("bad" in items for items in requests):
            raise ValueError(f"bad among {len(requests)}")
        return [len(items) for items in requests]

    async def ask():
        together = Together()
        calls = (together.call("kind", items, answer) for items in (["a"], ["bad"], ["b", "c"]))
        return await asyncio.gather(*calls, return_exceptions=True)

    first, second, third = asyncio.run(ask())
    assert (first, third) == (1, 2)
    assert str(second) == "bad among 1"


def test_rows_scored_together_have_the_answers_of_each_request_alone(served):
    requests = [
        [{"size": 0.5, "kind": "a"}], [{"size": 9.5, "kind": "b"}, {"size": 1.5, "kind": "a"}],
        [{"size": "x", "kind": "a"}], [{"size": 3.5, "kind": "b"}],
    ]  # fmt: skip

    async def answers(*bodies):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(served), base_url="http://localhost") as client:
            posts = (client.post("/runs/table/score", json={"data": rows}, headers=AUTHORISED) for rows in bodies)
            return [(answer.status_code, answer.json()) for answer in await asyncio.gather(*posts)]

    together = asyncio.run(answers(*requests))
    alone = [asyncio.run(answers(rows))[0] for rows in requests]
    assert [status for status, _ in together] == [200, 200, 400, 200]
    for (status, found), (expected_status, expected) in zip(together, alone, strict=True):
        assert (status, found) == (expected_status, expected)


def test_a_row_is_scored_alone_where_its_place_in_a_call_matters(table, monkeypatch):
    rows = [[{"size": 0.5, "kind": "a"}], [{"size": 9.5, "kind": "b"}]]
    sizes, score = [], table.score
    monkeypatch.setattr(table, "score", lambda rows, device: sizes.append(len(rows)) or score(rows), raising=False)
    monkeypatch.setitem(table.task.computed, "places are alike", False)
    assert [len(found["rows"]) for found in _scores(table, rows, "cpu")] == [1, 1]
    assert sizes == [1, 1]
    monkeypatch.delitem(table.task.computed, "places are alike")
    assert [len(found["rows"]) for found in _scores(table, rows, "cpu")] == [1, 1]
    assert sizes[2:] == [16, 16]


def test_sites_that_are_trusted_may_ask(served):
    trusted, other = ({"Origin": origin} for origin in ("https://example.org", "https://example.com"))
    answer = asked(served, "GET", "/runs", headers=AUTHORISED | trusted)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "https://example.org")
    answer = asked(served, "GET", "/runs", headers=AUTHORISED | other)
    assert (answer.status_code, "access-control-allow-origin" in answer.headers) == (403, False)
    asking = {"Access-Control-Request-Method": "POST"}
    preflight = asked(served, "OPTIONS", "/runs/table/score", headers=trusted | asking)
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-headers"] == "Authorization, Content-Type"
    assert asked(served, "OPTIONS", "/runs/table/score", headers=other | asking).status_code == 403


def test_a_server_that_drains_is_alive_but_not_ready(served):
    assert asked(served, "GET", "/readyz").json() == {"status": "ok"}
    served.state.server.draining = True
    assert asked(served, "GET", "/healthz").status_code == 200
    answer = asked(served, "GET", "/readyz")
    assert (answer.status_code, answer.json()) == (503, {"status": "stopping"})
    answer = asked(served, "POST", "/runs/table/score", json={"data": [{"size": 1}]}, headers=AUTHORISED)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_sigterm_finishes_what_is_under_way(runs, monkeypatch):
    monkeypatch.setenv("CHAINRULE_TOKEN", "sesame")
    command = [sys.executable, "-m", "chainrule", "serve", str(runs("default").path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        url = server.stdout.readline().partition("): ")[2].partition("#")[0]
        assert httpx.get(f"{url}runs").status_code == 401
        body, texts = {"model": "default", "prompt": "the", "max_tokens": 400, "seed": 1}, []

        def ask():
            answer = httpx.post(f"{url}v1/completions", json=body, headers=AUTHORISED, timeout=60)
            texts.append(answer.json()["usage"]["completion_tokens"])

        asking = Thread(target=ask)
        asking.start()
        end = monotonic() + 30
        while 'texts_active{run="default"} 1.0' not in httpx.get(f"{url}metrics", headers=AUTHORISED).text:
            if not asking.is_alive() or monotonic() > end:
                break
            sleep(0.002)
        server.send_signal(signal.SIGTERM)
        asking.join()
        assert server.wait(30) == 0
    assert texts == [400]


@pytest.mark.slow
def test_a_process_that_is_killed_is_replaced(table):
    command = [sys.executable, "-m", "chainrule", "serve", str(table.path), "--port", "0", "--workers", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        url = server.stdout.readline().partition("): ")[2].partition("#")[0]
        body = {"data": [{"size": 0.5, "kind": "a"}]}
        answer = httpx.post(f"{url}runs/table/score", json=body, timeout=60).json()
        name = 'chainrule_process{pid="'
        killed = int(httpx.get(f"{url}metrics").text.partition(name)[2].partition('"')[0])
        os.kill(killed, signal.SIGKILL)
        assert server.stderr.readline() == "loading table …\n"
        assert server.stderr.readline() == f"process {killed} ended with status -9: another takes its place\n"
        assert httpx.post(f"{url}runs/table/score", json=body, timeout=60).json() == answer
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        assert server.stdout.read().endswith("Stopped.\n")


def test_origins_are_checked(runs, capsys):
    assert main(["serve", str(runs("default").path), "--cors", "example.org"]) == 2
    assert "--cors: expected sites such as https://example.org, got 'example.org'" in capsys.readouterr().err
