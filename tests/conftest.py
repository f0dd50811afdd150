"""Trainings in tests draw short texts; a browser for tests of pages."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

BROWSER = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip


BY_DAY = {"text", "table", "image"}  # of a test of every task
LONG_PAGES = {"tutorial.md", "handed_over.md"}  # which train until something is learnt, or many times
OWN_MODELS = ("tests/models/", "tests/layers/")  # whose contract tests/test_contract.py checks by day


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """By day, do not import what files of the night need."""
    if collection_path.suffix != ".py" or "not (slow" not in (config.getoption("markexpr") or ""):
        return None
    return "\npytestmark = pytest.mark.slow\n" in collection_path.read_text("utf-8") or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to the night: tests of every task but three, variants of models, and examples of long pages."""
    tasks: dict[object, list[tuple[pytest.Item, object]]] = {}
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.path.name in LONG_PAGES:
            item.add_marker("slow")
        own = item.nodeid.startswith(OWN_MODELS) and "keeps_contract" in getattr(item, "fixturenames", ())
        if own:
            item.add_marker("slow")
        if task := getattr(item, "callspec", None) and item.callspec.params.get("task"):
            tasks.setdefault((item.path, item.originalname), []).append((item, task))
    for every in tasks.values():
        if BY_DAY & {task for _, task in every}:
            for item, task in every:
                if task not in BY_DAY:
                    item.add_marker("slow")


@pytest.fixture(scope="session", autouse=True)
def short_trainings() -> Iterator[None]:
    """At a validation, draw 5 symbols, a pixel of a larger image, 3 frames of music or 0.02 s of sound.

    Whole previews took most of a small training. Of a budget of an hour, ten seconds are taken to measure speed.
    """
    from chainrule.training import _speed as speed
    from chainrule_app.tasks.image.verbs import Sampler

    measure, sketches = speed.steps_per_second, Sampler.sketches

    def measured(model, optimiser, batch, way, seconds, device):
        return measure(model, optimiser, batch, way, min(seconds, 0.05), device)

    def sketched(sampler, n, labels, seed, seconds):
        return sketches(sampler, n, labels, seed, seconds if sampler.model.sequence_length <= 64 else 0.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speed, "steps_per_second", measured)
        patch.setattr(Sampler, "sketches", sketched)
        lengths = dict.fromkeys(("char", "byte", "word", "bpe"), 5)
        patch.setattr("chainrule_app.tasks.text.task._SAMPLE_LENGTH", lengths)
        patch.setattr("chainrule_app.tasks.music.task._PREVIEW_FRAMES", 3)
        patch.setattr("chainrule_app.tasks.sound.task._PREVIEW_SECONDS", 0.02)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_width() -> Iterator[None]:
    """Importing readline sets COLUMNS for the processes that pytest starts, and tables then fold."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        yield


@pytest.fixture
def keeps_contract(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Assert that a model passes `check_model`, and return the report.

    Where slow tests are left out, the check draws fewer samples. Tests of wrong samplers and latent models in
    tests/testing hold what it finds all the same.
    """
    from chainrule.testing import check_model

    thorough = "slow" not in request.config.option.markexpr

    def keeps(model, x, context=None, lengths=None):
        report = check_model(model, x, context, lengths, thorough=thorough)
        assert report.ok, f"\n{report}"
        return report

    return keeps


@pytest.fixture
def float64() -> Iterator[None]:
    """Make new tensors in float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser; it leaves a running event loop behind until it closes, so that other tests cannot begin theirs."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    if BROWSER is None:
        pytest.skip("no chromium or google-chrome is installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield browser
        browser.close()
