"""The device of a server: every call that computes is told of it.

`tests/pretend/test_serving.py` draws texts with a model on another device.
"""

import pytest
import torch

import chainrule
from chainrule_app.serve import create_app

META = torch.device("meta")


@pytest.fixture
def devices(monkeypatch):
    """The devices that tasks were asked for."""
    from chainrule_app.tasks.task import Task

    asked, resolve = [], Task.device.__func__

    def noted(cls, name):
        asked.append(str(name))
        return resolve(cls, "cpu")

    monkeypatch.setattr(Task, "device", classmethod(noted))
    return asked


@pytest.mark.parametrize(("device", "expected"), [("auto", {"auto", "cpu"}), ("cuda:1", {"cuda:1"})])
def test_calls_compute_on_the_device_of_the_server(runs, ask, devices, device, expected):
    app = create_app({"default": runs()}, device=device)
    try:
        devices.clear()
        for verb, body in (("score", {"data": ["the cat"]}), ("sample", {"n": 1, "length": 3, "seed": 0})):
            assert ask(app, "POST", f"/runs/default/{verb}", json=body).status_code == 200
        assert set(devices) == expected
    finally:
        app.state.server.close()


@pytest.mark.slow
def test_rows_of_a_table_are_scored_on_the_device_of_the_server(ask, devices):
    rows = [{"a": number % 5, "b": number % 3} for number in range(60)]
    run = chainrule.fit(rows, steps=1, hidden_size=4, plain=True, threads=1)
    app = create_app({"table": run}, device="cuda:1")
    try:
        devices.clear()
        assert ask(app, "POST", "/runs/table/score", json={"data": rows[:2]}).status_code == 200
        assert ask(app, "POST", "/runs/table/predict", json={"data": rows[:2], "columns": "b"}).status_code == 200
        assert set(devices) == {"cuda:1"}
    finally:
        app.state.server.close()


def test_a_device_has_one_copy_of_the_model(runs):
    task = runs().task
    assert runs().model is task.fixed_model("cpu")
    there = task.fixed_model(META)
    assert there is task.fixed_model(META)
    assert next(there.parameters()).device == META
    assert next(runs().model.parameters()).device.type == "cpu"
