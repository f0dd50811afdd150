"""A run in training: its progress as JSON, the request to stop, and the run itself once the training has ended."""

import asyncio
import json
import shutil
from threading import Thread
from time import sleep

import httpx
import pytest

import chainrule
from chainrule_app.serve import create_app
from chainrule_app.serve.playground_training import Watched
from chainrule_app.tasks.run_directory import is_locked, lock_run

PROGRESS = "/playground/training/live"
STOP = "/playground/stop-training"


@pytest.fixture
def path(runs, tmp_path):
    """A run directory without metrics, as one that is trained again."""
    shutil.copytree(runs("default").path, tmp_path / "live")
    for name in ("metrics.jsonl", "timings.jsonl", "samples.jsonl"):
        (tmp_path / "live" / name).unlink(missing_ok=True)
    return tmp_path / "live"


def steps(*numbers):
    return "".join(
        json.dumps({"event": "step", "step": step, "elements": 10 * step, "nats_per_element": 1 / step}) + "\n"
        for step in numbers
    )


VALIDATION = json.dumps({"event": "validation", "step": 3, "nats_per_element": 0.5, "best": True}) + "\n"


def test_a_run_in_training_is_shown_and_served_once_it_has_ended(path, ask):
    with lock_run(path):
        app = create_app({"live": chainrule.load(path)})
        (entry,) = ask(app, "GET", "/playground/runs").json()["runs"]
        assert (entry["name"], entry["view"]) == ("live", "training")
        answer = ask(app, "POST", "/runs/live/sample", json={})
        assert (answer.status_code, "in training" in answer.text) == (503, True)
        assert ask(app, "GET", PROGRESS).json()["training"] is True
    (entry,) = ask(app, "GET", "/playground/runs").json()["runs"]
    assert (entry["name"], entry["view"]) == ("live", "text")
    assert ask(app, "POST", "/runs/live/sample", json={"length": 3}).status_code == 200
    found = ask(app, "GET", PROGRESS).json()
    assert (found["training"], found["trained"], found["left"]) == (False, True, None)
    answer = ask(app, "POST", STOP, json={"run": "live"})
    assert (answer.status_code, "has ended" in answer.text) == (400, True)
    assert ask(app, "GET", "/playground/training/other").status_code == 404
    app.state.server.close()


def test_progress_is_read_line_by_line_and_anew_where_the_run_is_resumed(path):
    watched, metrics = Watched(chainrule.load(path).task), path / "metrics.jsonl"
    assert watched.progress()["curve"] == []
    lines = steps(1, 2, 4)
    metrics.write_text(lines[:-5])  # the last one is being written
    assert watched.progress()["curve"] == [(1, 1.0), (2, 0.5)]
    with metrics.open("a") as file:
        file.write(lines[-5:] + VALIDATION)
    found = watched.progress()
    assert found["curve"] == [(1, 1.0), (2, 0.5), (4, 0.25)]
    assert (found["step"], found["elements"]) == (4, 40)
    assert found["validations"] == [[3, 0.5, True]]
    fresh = path / "fresh"
    fresh.write_text(steps(*range(1, 9)))  # longer than what was read
    fresh.replace(metrics)
    assert [step for step, _ in watched.progress()["curve"]] == [*range(1, 9)]
    assert watched.progress()["validations"] == []


def test_time_left_follows_from_the_part_that_is_done(path):
    watched = Watched(chainrule.load(path).task)
    timing = {"step": 3, "progress": 0.25, "elapsed": 40.0, "training_seconds": 30.0}
    with lock_run(path):
        assert watched.progress()["left"] is None
        (path / "timings.jsonl").write_text(json.dumps(timing) + "\n")
        found = watched.progress()
        assert found["seconds"] + found["left"] == pytest.approx(40 + 3 * 30)  # as one goes on, the other goes down
    assert watched.progress()["left"] is None


@pytest.mark.parametrize(("token", "status"), [(None, 403), ("sesame", 200)])
def test_another_machine_stops_a_training_only_with_a_token(path, token, status):
    async def answer(app):
        transport = httpx.ASGITransport(app, client=("192.0.2.7", 9))
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            allowed = (await client.get(PROGRESS)).json()["may_stop"]
            return allowed, await client.post(STOP, json={"run": "live"})

    with lock_run(path):
        app = create_app({"live": chainrule.load(path)}, token=token)
        allowed, response = asyncio.run(answer(app))
        assert (allowed, response.status_code) == (status == 200, status)
        assert (path / "stop").exists() is allowed
    app.state.server.close()


def test_a_training_that_is_asked_to_stop_saves_and_ends(tmp_path, ask, capsys):
    out, text = tmp_path / "live", "the cat sat on the mat. " * 200
    options = {"text": text, "out": out, "steps": 10**6, "threads": 1, "precision": "float32", "hidden_size": 8}
    options["validate_every"] = 20
    trainer = Thread(target=chainrule.fit, kwargs=options)
    trainer.start()
    while not (out / "model.safetensors").is_file():
        assert trainer.is_alive()
        sleep(0.05)
    app = create_app({"live": chainrule.load(out)})
    while ask(app, "GET", PROGRESS).json()["step"] < 2:
        assert trainer.is_alive()
    assert ask(app, "POST", STOP, json={"run": "live"}).json() == {"stopping": True}
    trainer.join()
    assert "is saved; run.resume() continues" in capsys.readouterr().err
    assert not is_locked(out)
    assert not (out / "stop").exists()
    assert chainrule.runs(out)["state"] == ["interrupted"]
    (entry,) = ask(app, "GET", "/playground/runs").json()["runs"]
    assert entry["view"] == "text"
    app.state.server.close()
