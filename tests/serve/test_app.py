"""Metrics, health, and the work that waits."""

import asyncio
import importlib
import time
from threading import Barrier, Event

import pytest
import torch

from chainrule_app.serve.guard import Busy, ClientGone, Limits, while_wanted
from chainrule_app.serve.state import ServerState
from chainrule_app.serve.stream import Held


def test_metrics_count_requests_and_symbols(app, ask):
    served = app("default", "words")
    body = {"model": "default", "prompt": "the cat", "max_tokens": 5}
    assert ask(served, "POST", "/v1/completions", json=body).status_code == 200
    assert ask(served, "POST", "/runs/default/score", json={"data": "path"}).status_code == 400
    for place in range(3):
        assert ask(served, "GET", f"/unknown/{place}").status_code == 404
    lines = ask(served, "GET", "/metrics").text.splitlines()
    for line in (
        'chainrule_requests_total{method="POST",route="/v1/completions",status="200"} 1.0',
        'chainrule_requests_total{method="POST",route="/runs/{name}/{capability}",status="400"} 1.0',
        'chainrule_symbols_drawn_total{run="default"} 5.0',
        'chainrule_symbols_read_total{run="default"} 7.0',
        'chainrule_symbols_drawn_total{run="words"} 0.0',
        'chainrule_texts_active{run="default"} 0.0',
        "chainrule_calls_waiting 0.0",
    ):
        assert line in lines
    assert not [line for line in lines if "unknown" in line]


def test_two_applications_count_for_themselves(app, ask):
    one, other = app(), app()
    ask(one, "GET", "/runs")
    assert '"/runs"' in ask(one, "GET", "/metrics").text
    assert '"/runs"' not in ask(other, "GET", "/metrics").text


def test_health_is_that_of_the_workers(app, ask):
    served = app()
    assert ask(served, "GET", "/healthz").status_code == 200
    served.state.server.engines["default"].close()
    assert ask(served, "GET", "/healthz").status_code == 503


def test_calls_are_made_side_by_side():
    """A check of a run held up all other requests for a minute."""
    state, met = ServerState({}, Limits(calls=2)), Barrier(2, timeout=20)

    async def calls():
        await asyncio.gather(state.call(met.wait), state.call(met.wait))

    asyncio.run(calls())
    state.close()


@pytest.mark.parametrize("why", ["time", "client"])
def test_calls_are_stopped_when_nobody_waits_for_them(why):
    state, began, ended = ServerState({}, Limits(calls=1, seconds=0.2 if why == "time" else 60)), Event(), []

    def work():
        try:
            began.set()
            for _ in range(60_000):
                time.sleep(0.001)
        finally:
            ended.append(torch.is_grad_enabled())

    async def calls():
        work_task = asyncio.ensure_future(state.call(work))
        while not began.is_set():
            await asyncio.sleep(0.001)
        if why == "client":
            work_task.cancel()
        with pytest.raises((TimeoutError, asyncio.CancelledError)):
            await work_task
        return await state.call(lambda: "the thread is free")

    started = time.monotonic()
    assert asyncio.run(calls()) == "the thread is free"
    assert time.monotonic() - started < 30  # of a minute
    assert ended == [True]
    assert state.alive
    state.close()


def test_a_call_that_imports_is_stopped_after_the_import(tmp_path, monkeypatch):
    """Half of a module would be missing for all later calls."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "slow_module_of_a_call.py").write_text(
        "import time\nfor _ in range(300): time.sleep(0.001)\nwhole = True\n"
    )
    state, after = ServerState({}, Limits(calls=1)), []

    def work():
        module = importlib.import_module("slow_module_of_a_call")
        after.append(module.whole)
        for _ in range(60_000):
            time.sleep(0.001)

    async def calls():
        task = asyncio.ensure_future(state.call(work))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await state.call(int)

    asyncio.run(calls())
    assert after == [True]
    state.close()


@pytest.fixture
def state():
    made = ServerState({}, Limits(waiting=2, seconds=0.2, calls=1))
    yield made
    made.close()


def test_calls_that_wait_are_made_later(state):
    async def calls():
        return await asyncio.gather(state.call(lambda: 1 + 1), state.call(int, "7"))

    assert asyncio.run(calls()) == [2, 7]
    assert state.waiting == 0


def test_errors_of_calls_reach_the_caller(state):
    with pytest.raises(ValueError, match="invalid literal"):
        asyncio.run(state.call(int, "x"))
    assert state.alive


def test_calls_that_take_too_long_are_given_up(state):
    async def late():
        with pytest.raises(TimeoutError):
            await state.call(time.sleep, 0.5)
        made = []
        waiting = asyncio.ensure_future(state.call(made.append, 1))  # behind it
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await state.call(int)
        waiting.cancel()
        await asyncio.sleep(0.6)
        return made

    assert asyncio.run(late()) == []  # what was given up before it began is not done
    assert state.waiting == 0


def test_nothing_is_done_for_a_client_that_has_gone():
    done = []

    async def gone():
        async def receive():
            await asyncio.sleep(0.05)
            return {"type": "http.disconnect"}

        async def work():
            await asyncio.sleep(5)
            done.append(1)

        await while_wanted(receive, work(), 10)

    with pytest.raises(ClientGone):
        asyncio.run(gone())
    assert done == []


class Letters:
    """A decoder of symbols that are the numbers of letters."""

    def add(self, symbol):
        return chr(symbol)

    def rest(self):
        return ""


@pytest.mark.parametrize(
    ("stop", "delivered"),
    [
        ((), ["a", "b", "a", "b", "c", "d"]),
        (("abc",), ["", "", "ab", "", "", None]),
        (("x", "bab"), ["a", "", "", "", None, None]),
        (("cde",), ["a", "b", "a", "b", "", "cd"]),
    ],
)
def test_tokens_are_held_back_only_where_they_may_begin_a_stop_string(stop, delivered):
    held, found = Held(Letters(), stop), []
    for place, letter in enumerate("ababcd"):
        tokens = held.add(ord(letter), "length" if place == 5 else None, 0.0)
        found.append("".join(token.text for token in tokens))
        if tokens and tokens[-1].finish == "stop":
            break
    found += [None] * (6 - len(found))
    assert found == delivered
