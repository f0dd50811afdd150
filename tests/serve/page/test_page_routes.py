"""The routes of the playground, without a browser: exact figures, limits, and refusals."""

import asyncio
import json
import tempfile
import time
from base64 import b64decode, b64encode
from io import BytesIO
from math import exp, log
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import chainrule
from chainrule_app.cli.exchange import DEMO
from chainrule_app.serve.playground_answers import about_table, complete_row, forecast_own, score_row
from chainrule_app.tasks.music.task import frame_surprise

httpx = pytest.importorskip("httpx", reason="httpx is not installed: pip install httpx")


def lines(client: Any, path: str, **body: Any) -> list[dict[str, Any]]:
    answer = client.post(f"/playground/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.mark.parametrize("path", ["text", "read"])
def test_a_client_that_leaves_frees_its_row(client: Any, app: Any, path: str) -> None:
    engine = app.state.server.engines["lstm"]
    before = engine.drawn + engine.read
    body = {"prompt": "", "max_tokens": 10_000} if path == "text" else {"text": "the cat " * 8_000}
    with client.stream("POST", f"/playground/{path}", json={"run": "lstm", **body}) as answer:
        taken = answer.iter_lines()
        next(taken), next(taken)
        assert engine.active == 1
    until = time.monotonic() + 30
    while engine.active and time.monotonic() < until:
        time.sleep(0.01)
    assert engine.active == 0
    assert engine.drawn + engine.read - before < (10_000 if path == "text" else 60_000)


@pytest.mark.parametrize("path", ["text", "sound"])
def test_a_stream_ends_after_the_limit_of_seconds(runs: dict[str, Any], path: str) -> None:
    from chainrule_app.serve import Limits, create_app

    body = {"text": {"run": "lstm", "max_tokens": 10_000}, "sound": {"run": "tones", "seconds": 20, "label": 0}}[path]
    short = {"max_tokens": 1} if path == "text" else {"seconds": 0.01}

    async def asked(app: Any, body: dict[str, Any]) -> Any:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return await client.post(f"/playground/{path}", json=body)

    # The first request of a process may compile for longer than the limit.
    for limits, request in ((Limits(), body | short), (Limits(seconds=0.5), body)):
        app = create_app({body["run"]: runs[body["run"]]}, limits=limits)
        *records, last = map(json.loads, asyncio.run(asked(app, request)).text.splitlines())
        app.state.server.close()
    assert records
    assert last == {"error": "the limit of time has passed: ask for less"}


def test_an_error_in_a_stream_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    from chainrule_app.serve import Limits
    from chainrule_app.serve.state import ServerState
    from chainrule_app.serve.views import Views

    state = ServerState({}, Limits())

    async def records() -> Any:
        yield {"a": 1}
        raise RuntimeError("a secret of the machine")

    async def answered() -> list[Any]:
        return [json.loads(line) async for line in Views(state).lines(records()).body_iterator]

    first, last = asyncio.run(answered())
    state.close()
    assert first == {"a": 1}
    assert "its log says which" in last["error"]
    assert "a secret of the machine" in caplog.text


def test_a_drawing_is_what_the_run_samples(client: Any, runs: dict[str, Any]) -> None:
    *records, _ = lines(client, "draw", run="images", n=1, seed=3, label=1)
    values = b"".join(b64decode(record["values"]) for record in records)
    assert records[0]["from"] == 0
    sampled = runs["images"].sample(1, seed=3, label="1")
    assert np.array_equal(np.frombuffer(values, np.uint8).reshape(8, 8), sampled[0])


def test_known_pixels_come_back_as_they_are(client: Any) -> None:
    image = np.random.default_rng(1).integers(0, 2, (1, 8, 8), dtype=np.uint8) * 255
    known = np.ones((8, 8), np.uint8)
    known[3, 2:6] = 0
    sent = {"pixels": b64encode(image.tobytes()).decode(), "known": b64encode(known.tobytes()).decode()}
    *records, _ = lines(client, "draw", run="images", n=3, label=0, **sent)
    rows = [np.frombuffer(b64decode(record["values"]), np.uint8).reshape(3, -1) for record in records]
    drawn = np.concatenate(rows, 1).reshape(3, 8, 8)
    assert all((one[known == 1] == image[0][known == 1]).all() for one in drawn)
    assert set(drawn[:, known == 0].flatten()) <= {0, 255}


def test_the_probability_of_a_row_is_that_of_score(client: Any, runs: dict[str, Any]) -> None:
    row = {"colour": "red", "count": "1", "size": "0.25"}
    found = client.post("/playground/score-row", json={"run": "table", "cells": row}).json()
    rows = torch.tensor([runs["table"].task.schema.encode(["red", "1", "0.25"])], dtype=torch.float64)
    expected = -float(runs["table"].model.log_prob(rows).detach())
    assert abs(found["nats"] - expected) < 1e-5
    assert abs(sum(column["nats"] for column in found["columns"]) - found["nats"]) < 1e-9


def test_completions_follow_the_conditional_distribution(client: Any, runs: dict[str, Any]) -> None:
    """The shares of a column's completions are its probabilities by Bayes' rule over whole rows."""
    schema, given = runs["table"].task.schema, {"count": "1", "size": "0.25"}
    found = client.post("/playground/complete-row", json={"run": "table", "cells": given, "n": 1000}).json()
    [column] = found["columns"]
    names = [category for category in schema.kept[0].categories if category not in ("", "<other>")]
    rows = torch.tensor([schema.encode([name, *given.values()]) for name in names], dtype=torch.float64)
    probabilities = runs["table"].model.log_prob(rows).detach().double().softmax(0).tolist()
    shares = dict(column["shares"])
    for name, probability in zip(names, probabilities, strict=True):
        assert abs(shares.get(name, 0) - probability) < 5 * (probability * (1 - probability) / 1000) ** 0.5 + 0.01
    assert {row["count"] for row in found["rows"]} == {"1"}


def test_answers_are_those_of_the_run(client: Any, runs: dict[str, Any]) -> None:
    tagged = client.post("/playground/answer", json={"run": "tags", "text": "Ada saw Paris"}).json()
    assert tagged["sentences"][0]["tags"] == runs["tags"].tag(["Ada saw Paris"])[0]["tags"]
    labelled = client.post("/playground/answer", json={"run": "labels", "text": "a good film"}).json()
    assert labelled["labels"][0][0] == runs["labels"].classify(["a good film"])["label"][0]
    assert abs(sum(share for _, share in labelled["labels"]) - 1) < 1e-6
    translated = client.post("/playground/answer", json={"run": "pairs", "text": "das haus", "beam": 2}).json()
    assert translated["sentences"][0]["translation"] == runs["pairs"].translate(["das haus"], beam=2)["translation"][0]


def test_a_forecast_has_the_future_that_came(client: Any, runs: dict[str, Any]) -> None:
    found = client.post("/playground/forecast", json={"run": "series", "back": 5, "paths": 20}).json()["series"][0]
    values = runs["series"].task.series().values[:, 0]
    assert found["came"] == values[-17:-5].tolist()
    assert found["past"][-1] == values[-18]
    low, middle, high = found["quantiles"]
    assert all(a <= b <= c for a, b, c in zip(low, middle, high, strict=True))


def test_a_forecast_of_held_out_rows_has_their_dates() -> None:
    run = chainrule.load(DEMO / "visitors")
    file = run.task.schema.open(str(run.task.own_file))
    origin = len(file.values) - run.task.data.horizon - 3
    (found,) = forecast_own(run, back=3, paths=4, seed=0)["series"]
    assert found["times"] == [file.date_text(date) for date in file.dates[origin:-3]]
    (found,) = forecast_own(run, back=200, paths=4, seed=0)["series"]  # begins among the rows of training
    assert found["times"] == []


def test_a_pasted_series_is_forecast_and_an_error_names_its_line(
    client: Any, runs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text became a temporary file, whose name was replaced in the messages."""
    monkeypatch.setattr(tempfile, "mkdtemp", None)
    rows = ["value", *(f"{np.sin(number / 5):.3f}" for number in range(60))]
    answer = client.post("/playground/forecast", json={"run": "series", "text": "\n".join(rows), "paths": 4})
    assert len(answer.json()["series"][0]["mean"]) == 12, answer.text
    rows[-2] = "NaN"
    answer = client.post("/playground/forecast", json={"run": "series", "text": "\n".join(rows), "paths": 4})
    assert answer.json()["series"][0]["past"][-3:] == [float(rows[-3]), None, float(rows[-1])]
    rows[3] = "x"
    answer = client.post("/playground/forecast", json={"run": "series", "text": "\n".join(rows), "paths": 4})
    assert 400 <= answer.status_code < 500
    assert "series line 4, column 'value': expected" in answer.text


def test_a_code_is_decoded_and_encoded(client: Any, runs: dict[str, Any]) -> None:
    found = client.post("/playground/encode-example", json={"run": "codes", "number": 1}).json()
    task, model = runs["codes"].task, runs["codes"].model
    with torch.no_grad():
        codes = model.codes(task.held_out_batch(2).x)[1]
    assert torch.allclose(torch.tensor(found["code"]), codes.float(), atol=1e-5)
    image = client.post("/playground/decode", json={"run": "codes", "code": found["code"]}).json()["pixels"]
    assert len(b64decode(image)) == 64


def joined(records: list[dict[str, Any]], name: str, kind: str) -> Any:
    return np.concatenate([np.frombuffer(b64decode(record[name]), kind) for record in records])


def test_a_sound_is_what_the_run_samples_and_costs_what_score_says(client: Any, runs: dict[str, Any]) -> None:
    sent = {"seconds": 0.03, "label": 1, "temperature": 0.8, "top_p": 0.9, "seed": 3}
    *records, last = lines(client, "sound", run="tones", **sent)
    assert last == {"finish": "stop"}
    drawn = joined(records, "samples", "<i2")
    expected = runs["tones"].sample(1, seconds=0.03, label="low", temperature=0.8, top_p=0.9, seed=3)[0]
    assert np.array_equal(drawn, (expected * 32768).round())
    *records, _ = lines(client, "sound", run="tones", seconds=0, label=1, prompt=b64encode(drawn.tobytes()).decode())
    assert [record["drawn"] for record in records] == [False]
    assert joined(records, "nats", "<f4").sum() == pytest.approx(
        runs["tones"].score([drawn / 32768], label="low")["nats"][0], rel=1e-5
    )


def test_a_clip_is_completed_as_sample_completes_it(client: Any, runs: dict[str, Any]) -> None:
    clip = client.post("/playground/sound-example", json={"run": "tones", "number": 0}).json()
    samples = np.frombuffer(b64decode(clip["samples"]), "<i2")[:100]
    prompt = b64encode(samples.tobytes()).decode()
    *records, _ = lines(client, "sound", run="tones", seconds=0.01, label=clip["label"], prompt=prompt, seed=5)
    label = runs["tones"].task.labels[clip["label"]]
    expected = runs["tones"].sample(1, seconds=0.035, label=label, prompt=samples / 32768, seed=5)[0]
    assert np.array_equal(joined(records, "samples", "<i2"), (expected * 32768).round())


def test_uploads_are_decoded_by_the_readers_of_images(runs: dict[str, Any]) -> None:
    from chainrule_app.serve.playground_pictures import read_upload

    file = BytesIO()
    Image.new("RGB", (30, 20), "red").save(file, "PNG")
    assert read_upload(runs["images"], file.getvalue()).shape == (1, 8, 8)
    with pytest.raises(ValueError, match="not one of the formats PNG, JPEG"):
        read_upload(runs["images"], b"%!PS-Adobe-3.0 EPSF-3.0\n")


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("text", {"run": "none"}, "no run is called"),
        ("text", {"run": "images"}, "cannot do this"),
        ("text", {"run": "lstm", "prompt": "日"}, "never saw"),
        ("text", {"run": "lstm", "symbols": [10**6]}, "symbols"),
        ("text", {"run": "lstm", "symbols": [10**30]}, "symbols"),
        ("inside", {"run": "lstm", "symbols": [10**30]}, "symbols"),
        ("classify-image", {"run": "images", "image": "!"}, "cannot do this"),
        ("text", {"run": "lstm", "temperature": -1}, "temperature"),
        ("inside", {"run": "lstm", "symbols": [1], "unit": 99}, "unit: expected"),
        ("inside", {"run": "lstm", "symbols": [1] * 500}, "symbols"),
        ("draw", {"run": "images", "n": 99}, "n:"),
        ("decode", {"run": "codes", "code": [1.0]}, "expected 3 numbers"),
        ("encode-example", {"run": "codes", "number": 10**6}, "number: expected"),
        ("sound", {"run": "tones", "seconds": -1}, "seconds"),
        ("sound-example", {"run": "tones", "number": 10**6}, "number: expected"),
        ("score-row", {"run": "table", "cells": {"count": "many"}}, "count"),
        ("complete-row", {"run": "table", "cells": {"weight": "1"}}, "there is no column 'weight'"),
        ("image-example", {"run": "images", "number": 10**6}, "number: expected"),
        ("forecast", {"run": "series", "back": 10**6}, "back: expected"),
        ("answer", {"run": "tags", "text": "/etc/passwd", "path": "/etc/passwd"}, "path"),
    ],
)
def test_a_wrong_request_is_refused(client: Any, path: str, body: dict[str, Any], message: str) -> None:
    answer = client.post(f"/playground/{path}", json=body)
    assert 400 <= answer.status_code < 500
    assert message in answer.json()["error"]["message"]


def test_a_wrong_drawing_is_refused_in_the_stream(client: Any) -> None:
    assert "label: expected" in lines(client, "draw", run="images", label=7)[-1]["error"]
    assert "base64" in lines(client, "draw", run="images", label=1, pixels="AAAA", known="AAAA")[-1]["error"]
    for wrong in (
        {"seconds": 31, "label": 0},
        {"seconds": 1, "label": 2},
        {"seconds": 1, "label": 0, "prompt": "A"},
    ):
        assert "expected" in lines(client, "sound", run="tones", **wrong)[-1]["error"]


def test_a_text_that_names_a_file_is_a_text(client: Any) -> None:
    found = client.post("/playground/answer", json={"run": "tags", "text": "/etc/passwd"}).json()
    assert found["sentences"][0]["words"] == ["/etc/passwd"]


def test_the_page_has_a_strict_policy_and_loads_nothing_else(client: Any) -> None:
    from chainrule_app.serve.playground import STATIC

    answer = client.get("/")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert "http" not in answer.text.replace("http-equiv", "")
    for file in STATIC.glob("*.*s"):
        source = client.get(f"/{file.name}")
        assert source.status_code == 200
        assert "innerHTML" not in source.text
        assert "https://" not in source.text


def test_surprise_and_share_agree(client: Any) -> None:
    _, *tokens, _ = lines(client, "text", run="lstm", max_tokens=20, temperature=0)
    for token in tokens:  # the likeliest symbol is always taken
        assert token["id"] == token["top"][0][0]
        assert abs(exp(-token["nats"]) - token["top"][0][2]) < 1e-6
        assert token["nats"] <= log(1 / token["top"][1][2]) + 1e-9


def test_dates_are_shown_and_given_as_texts(tmp_path) -> None:
    days = np.datetime64("2024-01-01") + np.arange(100) * 17 % 97
    path = tmp_path / "rows.csv"
    path.write_text("day,size\n" + "".join(f"{day},{number % 7}\n" for number, day in enumerate(days)))
    run = chainrule.fit(path, steps=1, hidden_size=8)
    day, _ = about_table(run)["columns"]
    assert (day["kind"], day["low"]) == ("date", "2024-01-01")
    [found] = complete_row(run, {"size": "3"}, 50, 0)["columns"]
    shown = [found["edges"][0], *found["quantiles"], found["edges"][-1]]
    assert shown == sorted(shown)
    assert all(day["low"] <= text <= day["high"] for text in shown)
    assert abs(sum(found["bins"]) - 1) < 1e-9
    assert score_row(run, {"size": "3", "day": "2024-02-01"})["nats"] > 0


def test_every_run_has_held_out_examples(client: Any, runs: dict[str, Any], hostile: str) -> None:
    listed = {run["name"]: run for run in client.get("/playground/runs").json()["runs"]}
    assert listed.keys() == runs.keys()
    held_out = {name: run["examples"] for name, run in listed.items()}
    corpus = f"{hostile} the cat sat on the mat.\nA dog & <b>a</b> bird.\n" * 60
    for name in ("lstm", "heads", "pieces"):
        assert all(text in corpus for text in held_out[name])
        assert all(
            client.post("/playground/read", json={"run": name, "text": text}).is_success for text in held_out[name]
        )
    assert set(held_out["lines"]) <= {line + "\n" for line in corpus.splitlines()}
    assert set(held_out["tags"]) == {"Ada Lovelace saw Paris"}
    assert set(held_out["labels"]) <= {f"{hostile} good film", "a bad film"}
    assert set(held_out["pairs"]) <= {"das haus ist klein", "ein kleines haus"}
    for row in held_out["table"]:
        assert row.keys() == {"colour", "count", "size"}
        assert client.post("/playground/score-row", json={"run": "table", "cells": row}).is_success
    images = [Image.open(BytesIO(b64decode(url.removeprefix("data:image/png;base64,")))) for url in held_out["kinds"]]
    assert {image.size for image in images} == {(8, 8)}
    task = runs["kinds"].task
    assert np.abs(np.asarray(images[0]) - np.array(task.images().valid[0, 0]) * (255 / 15)).max() < 1


def test_an_image_is_read_at_the_levels_and_on_the_ground_of_the_held_out_images(
    client: Any, runs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runs["kinds"]
    images = run.task.images()
    dark = type("Held", (), {"valid": np.zeros((4, 1, 8, 8), np.uint8)})()  # light figures on a dark ground
    monkeypatch.setattr(type(run.task), "images", lambda _: dark)
    levels = np.array(images.valid[0, 0]) * np.pad(np.ones((6, 6)), 1)
    bright = (levels * (255 / 15)).round().astype(np.uint8)

    def answer(pixels: np.ndarray) -> Any:
        file = BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        image = b64encode(file.getvalue()).decode()
        return client.post("/playground/classify-image", json={"run": "kinds", "image": image}).json()

    expected = run.classify(levels.astype(np.uint8)[None]).records()
    probabilities = next(iter(expected))["probabilities"]
    for pixels, inverted in ((bright, False), (255 - bright, True)):
        told = answer(pixels)
        assert told["inverted"] is inverted
        assert dict(told["labels"]) == pytest.approx(probabilities)


def test_words_that_were_never_seen_are_named(client: Any) -> None:
    body = {"run": "pairs", "text": "das schloss ist klein\ndas haus"}
    first, second = client.post("/playground/answer", json=body).json()["sentences"]
    assert (first["unknown"], second["unknown"]) == (["schloss"], [])


def test_music_is_drawn_and_read_with_its_surprise(client: Any, runs: dict[str, Any]) -> None:
    told = client.post("/playground/music-example", json={"run": "tunes", "number": 0}).json()
    roll = runs["tunes"].task.music["valid"].roll(0)
    shown = np.zeros_like(roll)
    nats = frame_surprise(runs["tunes"].model, torch.from_numpy(roll), by_key=True)
    for start, stop, key, surprise in told["notes"]:
        shown[start:stop, key - 21] = 1
        assert surprise == pytest.approx(nats[start, key - 21], abs=1e-3)
    assert (shown == roll).all()
    scored = next(iter(runs["tunes"].score([np.array(roll)]).records()))
    assert sum(told["nats"]) == pytest.approx(scored["nats"], abs=1e-3 * len(roll))
    body = {"run": "tunes", "seconds": 6, "after": 0, "seed": 1}
    drawn = client.post("/playground/music", json=body).json()
    assert drawn == client.post("/playground/music", json=body).json()
    assert drawn["given"] == min(len(roll), round(3 / drawn["frame"]))
    assert len(drawn["nats"]) * drawn["frame"] == pytest.approx(6)
    assert client.post("/playground/music", json={"run": "tunes", "after": 99}).status_code == 400


def test_candidates_of_a_caption_are_those_of_the_run(client: Any, runs: dict[str, Any]) -> None:
    run, file = runs["captions"], BytesIO()
    pixels = np.random.default_rng(5).integers(0, 256, (20, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    image = b64encode(file.getvalue()).decode()
    told = client.post("/playground/caption-image", json={"run": "captions", "image": image, "beam": 3}).json()
    found = run.caption([pixels], beam=3, n_best=3)
    assert [candidate["caption"] for candidate in told["candidates"]] == list(found["caption"])
    assert [candidate["nats"] for candidate in told["candidates"]] == pytest.approx(list(found["nats"]), abs=1e-4)
    for candidate in told["candidates"]:
        assert sum(candidate["surprise"]) == pytest.approx(candidate["nats"])
        assert np.array(candidate["attention"]).shape == (len(candidate["words"]), 4)  # places of 16 pixels a side
        assert np.sum(candidate["attention"], 1) == pytest.approx(1, abs=1e-3)
    seen = np.array(Image.open(BytesIO(b64decode(told["image"].partition(",")[2]))))
    assert np.array_equal(seen, pixels[2:18])  # what the model sees of a high image


def test_what_a_classifier_read_can_be_classified_again(client: Any) -> None:
    file = BytesIO()
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (50, 30, 3), dtype=np.uint8)).save(file, "PNG")
    body = {"run": "kinds", "image": b64encode(file.getvalue()).decode()}
    told = client.post("/playground/classify-image", json=body).json()
    again = body | {"image": told["image"].partition(",")[2]}
    assert client.post("/playground/classify-image", json=again).json() == told
