"""A run in training in the browser: its curve, its samples, Stop, and the run itself once the training has ended."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
from playwright.sync_api import expect

import chainrule
from chainrule_app.tasks.run_directory import lock_run

expect.set_options(timeout=30_000)


@pytest.mark.parametrize("width", [1280, 390])
def test_a_training_is_watched_and_stopped(
    chromium: Any, runs: dict[str, Any], serve: Any, tmp_path: Path, width: int
) -> None:
    from chainrule_app.serve import create_app

    path = tmp_path / "live"
    chainrule.fit(text="the cat sat on the mat. " * 100, steps=5, out=path, hidden_size=8)
    complaints: list[str] = []
    page = chromium.new_page(viewport={"width": width, "height": 800})
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    with lock_run(path):
        app = create_app({"live": chainrule.load(path)})
        with serve(app) as address:
            page.goto(address)
            expect(page.locator("svg.chart circle.held").first).to_be_visible()
            expect(page.get_by_text("best held out")).to_be_visible()
            expect(page.locator("pre").first).to_be_visible()
            with (path / "metrics.jsonl").open("a") as file:
                step = {"event": "step", "step": 6000, "elements": 9, "nats_per_element": 1.5}
                file.write(json.dumps(step) + "\n")
            expect(page.get_by_text("6,000", exact=True)).to_be_visible()
            page.get_by_role("button", name="Stop training").click()
            expect(page.get_by_text("was asked to stop")).to_be_visible()
            assert (path / "stop").is_file()
            wide, room = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert wide <= room
            (path / "stop").unlink()
            (path / ".lock").unlink()  # as the end of a training does
            expect(page.get_by_text("--resume --out runs/live")).to_be_visible()
            page.get_by_role("button", name="Open the run").click()
            expect(page.locator(".page .token").first).to_be_visible()
    page.close()
    assert complaints == []
