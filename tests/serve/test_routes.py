"""Plain JSON routes: every capability of a run of every task, and no string of a request that names a file."""

import asyncio
import base64
import json
import sys

import httpx
import numpy as np
import pytest
import small_data

import chainrule
from chainrule_app.readers.images.source import png
from chainrule_app.results import Result
from chainrule_app.serve import create_app
from chainrule_app.serve.routes import _body, _verbs, answered
from chainrule_app.tasks import TASKS

GREY = np.random.default_rng(1).integers(0, 256, (2, 8, 8), dtype=np.uint8)
ROWS = [{"first": "a", "second": "x", "third": 1}, {"first": "b", "second": "z", "third": 0}]
HOURS = [{"time": f"2020-02-{day:02} {hour:02}:00", "load": hour + day / 9} for day in (1, 2, 3) for hour in range(24)]
SOUND = [float(value) for value in np.sin(np.arange(60)) / 2]
ROLL = [[0, 1] * 44, [1, 0] * 44]
# For each task its capabilities, each with the body of a request, and the arguments of the method that it stands for.
ASKED = {
    "text": {
        "sample": ({"n": 2, "seed": 1, "length": 20, "prompt": "1"}, None),
        "score": ({"data": ["1 is a number", "2"]}, None),
        "embed": ({"data": ["1 is a number"]}, None),
    },
    "table": {
        "sample": ({"n": 3, "seed": 1}, None),
        "score": ({"data": ROWS}, None),
        "predict": ({"data": ROWS, "columns": "third", "seed": 1}, None),
        "fill": ({"data": [{**ROWS[0], "second": None}, ROWS[1]], "seed": 1}, None),
    },
    "image": {
        "sample": ({"n": 2, "seed": 1}, None),
        "score": ({"data": GREY.tolist()}, {"data": GREY}),
    },
    "sound": {
        "sample": ({"n": 1, "seed": 1, "seconds": 0.01}, None),
        "score": ({"data": [SOUND]}, {"data": [np.array(SOUND, dtype=np.float32)]}),
    },
    "music": {
        "sample": (
            {"n": 2, "seed": 1, "seconds": 1, "prompt": ROLL},
            {"n": 2, "seed": 1, "seconds": 1, "prompt": np.array(ROLL)},
        ),
        "score": ({"data": [ROLL]}, {"data": [np.array(ROLL)]}),
    },
    "tag": {
        "tag": ({"data": ["the dog", "dog"]}, None),
        "predict": ({"data": [["the", "dog"], ["dog"]]}, None),
        "evaluate": ({"data": [[["the", "D"], ["dog", "N"]]]}, None),
    },
    "classify": {
        "classify": ({"data": ["a good text", "a bad one"]}, None),
        "evaluate": ({"data": [["a good text", "good"], ["a bad one", "bad"]]}, None),
    },
    "classify-images": {
        "predict": ({"data": GREY.tolist()}, {"data": GREY}),
        "evaluate": ({"data": GREY.tolist(), "labels": [0, 1]}, {"data": GREY, "labels": [0, 1]}),
    },
    "translate": {
        "translate": ({"data": ["a b", "c"]}, None),
        "evaluate": ({"data": [["a b", "x y"], ["c", "z"]], "beam": 1}, None),
    },
    "caption": {"caption": ({"data": GREY.tolist()}, {"data": list(GREY)})},
    "forecast": {"forecast": ({"data": HOURS, "paths": 4, "seed": 1}, None)},
}
SLOW = {"check", "compress", "decompress", "inspect"}  # of all tasks alike


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A function that gives a run of a task, hardly trained."""
    made = {}

    def run(task):
        if task not in made:
            data, *flags = small_data.WRITERS[task](tmp_path_factory.mktemp(task))
            options = {flag[2:].replace("-", "_"): value for flag, value in zip(flags[::2], flags[1::2], strict=True)}
            out = tmp_path_factory.mktemp("runs") / task
            made[task] = chainrule.fit(data, out=out, steps=1, threads=1, precision="float32", **options)
        return made[task]

    return run


@pytest.fixture
def post(runs):
    """Ask an application for a capability of a run; gives the status and the content of the answer."""
    apps = {}

    def call(task, capability, body, **options):
        if task not in apps:
            apps[task] = create_app({task: runs(task)})

        async def answer():
            transport = httpx.ASGITransport(apps[task])
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
                return await client.post(f"/runs/{task}/{capability}", json=body, **options)

        answer = asyncio.run(answer())
        return answer.status_code, answer.json()

    yield call
    for app in apps.values():
        app.state.server.close()


CASES = [(task, capability) for task, asked in ASKED.items() for capability in asked]


def test_all_tasks_are_asked():
    assert ASKED.keys() == TASKS.keys()


@pytest.mark.parametrize(("task", "capability"), CASES)
def test_answers_are_those_of_the_method(task, capability, runs, post):
    body, arguments = ASKED[task][capability]
    status, found = post(task, capability, body)
    assert status == 200, found
    expected = getattr(runs(task), capability)(**(body if arguments is None else arguments))
    rows = expected if isinstance(expected, list) else list(expected)
    assert len(found["rows"]) == len(rows)
    if isinstance(expected, Result):
        assert set(found) == {"rows", "summary", "about", "notes"}
        for row, own in zip(found["rows"], rows, strict=True):
            assert row.keys() == own.keys()
            numbers = {name: value for name, value in own.items() if isinstance(value, float) and value == value}
            assert {name: row[name] for name in numbers} == pytest.approx(numbers, rel=1e-5)
        summary = {name: value for name, value in expected.summary.items() if isinstance(value, float)}
        assert {name: found["summary"][name] for name in summary} == pytest.approx(summary, rel=1e-5)
    else:
        assert found["rows"] == [np.asarray(row).tolist() for row in rows]


def test_a_forecast_without_data_continues_the_series_of_training(runs, post):
    status, found = post("forecast", "forecast", {"paths": 4, "seed": 1})
    assert status == 200, found
    own = runs("forecast").forecast(paths=4, seed=1)["mean"]
    assert [row["mean"] for row in found["rows"]] == pytest.approx(list(own), rel=1e-5)


@pytest.mark.parametrize("task", ["table", "forecast", "tag", "classify"])
def test_answers_do_not_say_where_a_run_lies(task, runs, post):
    status, found = post(task, "inspect", {})
    assert status == 200, found
    assert found["findings"]
    assert str(runs(task).path.parent) not in str(found)


def test_bytes_are_base64(post):
    data = b"1 is a number\n" * 20
    status, packed = post("text", "compress", {"data": base64.b64encode(data).decode()})
    assert status == 200, packed
    status, back = post("text", "decompress", packed)
    assert (status, base64.b64decode(back["data"])) == (200, data)
    for bad in ("not base64!", "/etc/passwd", base64.b64encode(b"no archive").decode()):
        assert post("text", "decompress", {"data": bad})[0] == 400


def test_images_are_files_in_base64_too(runs, post):
    written = ["data:image/png;base64," + base64.b64encode(png(image)).decode() for image in GREY]
    assert post("image", "score", {"data": written}) == post("image", "score", {"data": GREY.tolist()})
    for bad in (
        written[0][:60],
        base64.b64encode(b"GIF89a").decode(),
        [[256, 0], [0, 0]],
        [[0.5]],
        [["a"]],
        [[1], [1, 2]],
    ):
        status, answer = post("image", "score", {"data": [bad]})
        assert (status, answer["error"]["type"]) == (400, "invalid_request_error")


def test_the_schema_of_a_request_is_told(runs):
    served = create_app({"text": runs("text")})

    async def get(path):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(served), base_url="http://localhost") as client:
            return (await client.get(path)).json()

    told = asyncio.run(get("/runs/text"))
    assert told["capabilities"] == [name for name in runs("text").capabilities if name != "stream"]
    assert told["requests"]["sample"]["properties"].keys() == {
        "n", "seed", "prompt", "length", "temperature", "top_k", "top_p",
    }  # fmt: skip
    assert told["requests"]["score"]["required"] == ["data"]
    listed = asyncio.run(get("/runs"))
    assert listed["runs"] == [{name: told[name] for name in ("name", "task", "model", "capabilities")}]
    assert listed["limits"]["n"] == 64
    served.state.server.close()


@pytest.mark.parametrize(
    ("capability", "body", "status", "message"),
    [
        ("sing", {}, 404, "no such capability: sample"),
        ("stream", {}, 404, "no such capability"),
        ("resume", {}, 404, "no such capability"),
        ("save", {"path": "/tmp/x"}, 404, "no such capability"),
        ("_answer", {}, 404, "no such capability"),
        ("sample", {"n": 65}, 400, "n: expected at most 64"),
        ("sample", {"n": 0}, 400, "n: expected"),
        ("sample", {"length": 1 << 20}, 400, "length: expected at most"),
        ("sample", {"temperature": -1}, 400, "temperature"),
        ("sample", {"seed": "1"}, 400, "seed"),
        ("sample", {"seed": 1 << 63}, 400, "seed: expected a whole number from 0 to 9223372036854775807"),
        ("sample", {"out": "/tmp/file"}, 400, "out"),
        ("sample", {"device": "cuda"}, 400, "device"),
        ("sample", [], 400, "dictionary"),
        ("score", {}, 400, "data"),
        ("score", {"data": []}, 400, "at least one"),
        ("score", {"data": [1]}, 400, "holds no data"),
        ("score", {"data": [["nested"]]}, 400, "takes no"),
        ("score", {"data": {"path": "x"}}, 400, "data"),
    ],
)
def test_invalid_requests_are_refused(capability, body, status, message, post):
    found, answer = post("text", capability, body)
    assert found == status
    assert message in answer["error"]["message"]


@pytest.mark.parametrize(
    ("task", "capability", "body", "message"),
    [
        ("sound", "sample", {"seconds": 60.1}, "seconds: expected at most 60, got 60.1"),
        ("music", "sample", {"seconds": 60.1}, "seconds: expected at most 60, got 60.1"),
        ("translate", "translate", {"data": ["a"], "beam": 65}, "beam: expected at most 64, got 65"),
        (
            "forecast",
            "forecast",
            {"data": HOURS, "paths": 1 << 14, "horizon": 1 << 14},
            "paths: expected at most 1048576 values of all paths: ask for fewer",
        ),
    ],
)
def test_work_beyond_the_limits_is_refused(task, capability, body, message, post):
    status, answer = post(task, capability, body)
    assert (status, answer["error"]["message"]) == (400, message)


def strings_at(value, place):
    """The body with a string in one place: as the whole of an argument, or as an item of its data."""
    for name in value:
        yield {**value, name: place}
        if isinstance(value[name], list):
            yield {**value, name: [place]}
            yield {**value, name: [[place]]}
            yield {**value, name: [{"path": place}]}


def all_bodies(told, task):
    """Bodies for a capability, of the arguments that its schema names, and of those that are asked above."""
    for capability, schema in told["requests"].items():
        if capability in SLOW - {"inspect"}:
            continue
        body, _ = ASKED[task].get(capability, ({}, None))
        yield capability, {**dict.fromkeys(schema["properties"]), **body}, body


@pytest.mark.parametrize("task", TASKS)
def test_no_string_of_a_request_is_the_path_of_a_file(task, runs, post, tmp_path, monkeypatch):
    """Each argument is given the path of a file with data that the run can read: it is opened never."""
    secret = tmp_path / "secret"
    secret.mkdir()
    data = small_data.WRITERS[task](secret)[0]
    touched = []
    names = {str(data), str(secret), *(str(path) for path in secret.rglob("*"))}

    def watch(event, arguments):
        if event in ("open", "os.listdir", "os.scandir", "shutil.copyfile") and str(arguments[0]) in names:
            touched.append((event, arguments[0]))

    watching = True
    sys.addaudithook(lambda event, arguments: watch(event, arguments) if watching else None)
    told = {"requests": {verb: _body(runs(task), verb).model_json_schema() for verb in _verbs(runs(task))}}
    count = 0
    for capability, full, body in all_bodies(told, task):
        for place in sorted(names)[:2]:
            for name in full:
                for bad in strings_at({name: full[name]} if full[name] is not None else {name: None}, place):
                    status, _ = post(task, capability, {**body, **bad})
                    count += 1
                    assert status in (200, 400)
    assert count >= 4
    assert touched == []
    list(secret.iterdir())
    assert touched  # had it been opened, this test would have seen it
    watching = False


def test_numbers_that_json_lacks_are_null():
    found = answered(np.array([1.0, np.nan, np.inf]))
    assert json.loads(json.dumps(found, allow_nan=False)) == {"rows": [1.0, None, None]}
