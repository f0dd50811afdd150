"""Requests that are answered together, other sites, and an end that loses nothing."""

import asyncio
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
        assert status == expected_status
        if status == 400:
            assert found == expected
            continue
        assert found.keys() == expected.keys()
        for row, own in zip(found["rows"], expected["rows"], strict=True):
            assert row.pop("nats") == pytest.approx(own.pop("nats"), rel=1e-5)
            assert row.pop("cell_nats") == pytest.approx(own.pop("cell_nats"), rel=1e-5)
            assert row.pop("columns") == pytest.approx(own.pop("columns"), rel=1e-5)
            assert row == own
        assert found["summary"] == pytest.approx(expected["summary"], rel=1e-5)
        assert found["about"] == expected["about"]


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


def test_origins_are_checked(runs, capsys):
    assert main(["serve", str(runs("default").path), "--cors", "example.org"]) == 2
    assert "--cors: expected sites such as https://example.org, got 'example.org'" in capsys.readouterr().err
