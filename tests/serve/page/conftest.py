"""Small runs of every task that the playground shows, a server of them, and a browser."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import chainrule
from chainrule_app.readers.sounds.sound_file import write_wav

HOSTILE = "<script>document.title = 'broken'</script>"


@pytest.fixture(scope="session")
def hostile() -> str:
    """Markup that is in the data of every run."""
    return HOSTILE


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Runs of a few steps, by name."""
    folder = tmp_path_factory.mktemp("runs")
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 256, (60, 8, 8), dtype=np.uint8), np.arange(60) % 2
    sentences = [[("Ada", "B-PER"), ("Lovelace", "I-PER"), ("saw", "O"), ("Paris", "B-LOC")]] * 20
    pairs = [("das haus ist klein", "the house is small"), ("ein kleines haus", "a small house")] * 20
    labelled = [(f"{HOSTILE} good film", "good"), ("a bad film", "bad")] * 20
    table = folder / "table.csv"
    rows = (
        f"{HOSTILE},{place % 5},{0.5 * (place % 7)}" if place % 3 else f"red,{place % 4},0.25" for place in range(90)
    )
    table.write_text("\n".join(["colour,count,size", *rows]) + "\n", encoding="utf-8")
    (folder / "clips").mkdir()
    for place in range(12):
        tone = np.sin(np.arange(400) * (0.1 + 0.2 * (place % 2)))
        write_wav(folder / "clips" / f"{'low' if place % 2 else 'high'}_{place}.wav", tone / 2, 4000)
    corpus = f"{HOSTILE} the cat sat on the mat.\nA dog & <b>a</b> bird.\n" * 60

    def fit(name: str, data: Any, **options: Any) -> Any:
        return chainrule.fit(data, steps=3, out=folder / name, **options)

    pieces = [np.zeros((64, 88)) for _ in range(6)]
    for place, roll in enumerate(pieces):
        roll[np.arange(64), 40 + (place + np.arange(64) // 4) % 7] = 1

    return {
        "lstm": chainrule.fit(
            text=corpus, steps=5, out=folder / "lstm", hidden_size=16, embedding_size=8, num_layers=2
        ),
        "heads": chainrule.fit(
            text=corpus, steps=5, out=folder / "heads", model="transformer", model_size=16, num_layers=2, num_heads=2
        ),
        "lines": chainrule.fit(
            text=corpus, steps=5, out=folder / "lines", reading="lines", level="word", hidden_size=16
        ),
        "pieces": chainrule.fit(
            text=corpus, steps=5, out=folder / "pieces", level="bpe", vocabulary_size=300, hidden_size=16
        ),
        "images": fit("images", images, labels=labels, bits=1, channels=8, layers=1),
        "kinds": fit("kinds", images // 16, labels=labels, task="classify"),
        "tunes": fit("tunes", pieces, task="music", hidden_size=16),
        "codes": fit("codes", images, model="vae", latent_size=3, hidden_size=8, bits=1),
        "tones": fit("tones", folder / "clips", label_pattern="{label}_*", rate=4000, channels=4, blocks=1),
        "table": fit("table", table, hidden_size=16, num_layers=1),
        "tags": fit("tags", sentences, task="tag"),
        "labels": fit("labels", labelled, task="classify", pooling="attention"),
        "pairs": fit("pairs", pairs, task="translate", model_size=16),
        "captions": fit(
            "captions", random.integers(0, 256, (24, 16, 16, 3), dtype=np.uint8), task="caption", image_size=16,
            captions=["a red one", "a blue one"] * 12, batch_size=4, hidden_size=8,
        ),
        "series": fit("series", np.sin(np.arange(300) / 5) + random.normal(0, 0.05, 300), horizon=12, hidden_size=8),
    }  # fmt: skip


@pytest.fixture(scope="session")
def app(runs: dict[str, Any]) -> Any:
    """A server of the runs."""
    pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'chainrule[serve]'")
    from chainrule_app.serve import create_app

    return create_app(runs)


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """The address at which an application answers."""
    uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'chainrule[serve]'")
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none", lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join()


@pytest.fixture
def serve() -> Any:
    """A context in which an application answers; gives its address."""
    return listening


@pytest.fixture(scope="session")
def address(app: Any) -> Iterator[str]:
    """The address of the server."""
    with listening(app) as address:
        yield address


@pytest.fixture
def client(address: str) -> Iterator[Any]:
    """A client of the server, without a browser."""
    httpx = pytest.importorskip("httpx", reason="httpx is not installed: pip install httpx")
    with httpx.Client(base_url=address, timeout=60) as client:
        yield client


@pytest.fixture
def guarded_address(runs: dict[str, Any]) -> Iterator[str]:
    """The address of a server that asks for the token `sesame`."""
    from chainrule_app.serve import create_app

    with listening(create_app({"labels": runs["labels"]}, token="sesame")) as address:
        yield address


@contextmanager
def watched_page(chromium: Any, address: str, width: int, scheme: str = "light") -> Iterator[Any]:
    """A page at the server's address; complaints, foreign requests and what sticks out at the side fail the test."""
    context = chromium.new_context(viewport={"width": width, "height": 800}, base_url=address, color_scheme=scheme)
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("request", lambda asked: complaints.append(asked.url))
    yield page
    wide, room = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    context.close()
    own = (address, "data:", "blob:")
    refused = "Failed to load resource: the server responded with a status of 400"  # a browser's line of a refusal
    assert [line for line in complaints if not line.startswith((*own, refused))] == []
    assert wide <= room


@pytest.fixture(params=[pytest.param(1280, id="desktop"), pytest.param(360, id="phone", marks=pytest.mark.slow)])
def page(request: pytest.FixtureRequest, chromium: Any, address: str) -> Iterator[Any]:
    """A page of the browser, wide or narrow."""
    with watched_page(chromium, address, request.param) as page:
        yield page


@pytest.fixture(params=[1280, 390])
def dressed_page(request: pytest.FixtureRequest, chromium: Any, address: str, scheme: str) -> Iterator[Any]:
    """A page of the browser, wide or narrow, in the colours of the parameter `scheme`."""
    with watched_page(chromium, address, request.param, scheme) as page:
        yield page
