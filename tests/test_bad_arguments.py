"""Every method of a run refuses values of a wrong type in one clear line that names the argument."""

import numpy as np
import pytest

import chainrule

pandas = pytest.importorskip("pandas")

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (30, 6, 6), dtype=np.uint8)
ROWS = pandas.DataFrame({"a": RANDOM.integers(0, 9, 80), "b": RANDOM.choice(list("xyz"), 80)})
DATA = {
    "text": (["hello there", "good day"] * 40, {"hidden_size": 4}),
    "table": (ROWS, {"hidden_size": 4}),
    "images": (PIXELS, {"model": "vae", "hidden_size": 4}),
    "sound": ([np.sin(np.arange(120.0 + number)) for number in range(10)], {"rate": 8000, "channels": 4}),
    "music": ([np.eye(88)[:20]] * 8, {"task": "music", "hidden_size": 4}),
    "tag": ([[("Ada", "B-PER"), ("saw", "O")]] * 30, {"hidden_size": 4}),
    "classify": ([("good film", "pos"), ("bad film", "neg")] * 30, {"hidden_size": 4}),
    "translate": ([("das haus", "the house"), ("ein hund", "a dog")] * 30, {"task": "translate"}),
    "caption": (
        RANDOM.integers(0, 256, (24, 8, 8, 3), dtype=np.uint8),
        {"task": "caption", "captions": ["a red square", "a blue one"] * 12, "image_size": 8, "batch_size": 4},
    ),
    "forecast": (pandas.DataFrame({"load": RANDOM.normal(size=200)}), {"task": "forecast", "horizon": 3}),
}
WRONG = {
    "None": None,
    "whole": 7,
    "real": 1.5,
    "bytes": b"abc",
    "numbers": [1, 2],
    "objects": [object()],
    "nothing": [None],
    "lists": [[[]]],
    "mixed": ["a", 1],
    "empty": [],
    "no name": "",
    "dictionary": {},
    "function": print,
    "frame": pandas.DataFrame(),
    "no rows": pandas.DataFrame({"a": []}),
    "no items": np.zeros((0, 3)),
}
READING = ("score", "tag", "classify", "translate", "caption", "forecast", "embed", "reconstruct", "compress",
           "decompress", "evaluate", "inspect")  # fmt: skip


@pytest.fixture(scope="module")
def runs():
    return {name: chainrule.fit(data, steps=1, threads=1, **options) for name, (data, options) in DATA.items()}


def refused(ask, name):
    with pytest.raises(ValueError) as caught:
        ask()
    message = str(caught.value)
    assert message.startswith(name), message
    assert "\n" not in message
    assert ": " in message


@pytest.mark.parametrize("task", sorted(DATA))
@pytest.mark.parametrize("kind", WRONG)
def test_data_of_a_wrong_type_are_refused(runs, task, kind):
    run, value = runs[task], WRONG[kind]
    for name in READING:
        default = (value is None and name in ("evaluate", "inspect", "forecast")) or (
            kind == "bytes" and name == "compress"
        )
        fits = (task, kind) in (("sound", "numbers"), ("caption", "mixed"))  # one sound; a list of paths
        if name in run.capabilities and not default and not fits and not (task == "images" and name == "inspect"):
            refused(lambda name=name: getattr(run, name)(value), ("data", "target: data"))


@pytest.mark.parametrize("kind", ["whole", "real", "bytes", "numbers", "nothing", "empty", "function", "frame"])
def test_arguments_of_a_wrong_type_are_refused(runs, tmp_path, kind):
    value, table, text = WRONG[kind], runs["table"], runs["text"]
    asked = {
        "prompt": lambda: text.sample(prompt=value),
        "temperature": lambda: text.sample(temperature=[value]),
        "where": lambda: table.sample(where=value),
        "first": lambda: runs["images"].interpolate(value, PIXELS[0]),
        "last": lambda: runs["images"].interpolate(PIXELS[0], value),
        "quantiles": lambda: runs["forecast"].forecast(DATA["forecast"][0], quantiles=value),
        "labels": lambda: runs["classify"].evaluate(DATA["classify"][0], labels=value),
        "types": lambda: chainrule.fit(ROWS, types=value, steps=1),
        "text": lambda: chainrule.fit(text=value, steps=1),
        "task": lambda: chainrule.fit(ROWS, task=value, steps=1),
        "model": lambda: chainrule.fit(ROWS, model=value, steps=1),
        "init": lambda: chainrule.fit(ROWS, init=value, steps=1),
        "callbacks": lambda: table.resume(steps=2, callbacks=[value]),
        "to": lambda: text.export(value, tmp_path / "out"),
        "out": lambda: text.export("hub", value),
        "path": lambda: table.save(value),
    }
    for name, ask in asked.items():
        refused(ask, (name, "--" + name))
    refused(lambda: text.score(["hello"], device=value), "device")
    refused(lambda: runs["images"].reconstruct(PIXELS[:2], device=value), "device")
    refused(lambda: runs["forecast"].forecast(DATA["forecast"][0], device=value), "device")
    if kind != "whole":
        refused(lambda: text.sample(value), "n:")
        refused(lambda: next(text.stream(seed=value)), "seed")
        refused(lambda: table.resume(steps=value), "steps")
        refused(lambda: table.check(seed=value), "seed")
    if kind not in ("whole", "real"):
        refused(lambda: table.resume(budget=value), ("budget", "--budget"))


def test_errors_of_bytes_have_remedies_that_exist_in_python(runs):
    """A frame was to be passed as bytes(...)."""
    damaged = bytearray(runs["text"].compress(b"hello, hello"))
    damaged[-1] ^= 1
    with pytest.raises(ValueError, match=r"damaged: restore the file from a copy"):
        runs["text"].decompress(bytes(damaged))
    with pytest.raises(ValueError, match=r"expected bytes, got DataFrame: pass Path\(...\)\.read_bytes\(\) of a file"):
        runs["text"].compress(ROWS)


def test_numbers_of_numpy_are_numbers(runs):
    text = runs["text"].sample(np.int64(1), seed=np.int32(0), length=np.uint8(5), temperature=np.float32(0.5))
    assert text == runs["text"].sample(1, seed=0, length=5, temperature=0.5)


def test_errors_name_the_item_in_memory(runs, tmp_path):
    """They named the line of a file that the user never saw."""
    rows = pandas.DataFrame({"a": ["1", "2", "3"], "b": ["x", "two\nlines", "y"]})
    for number in range(3):
        wrong = rows.copy()
        wrong.loc[number, "a"] = "many"
        with pytest.raises(ValueError, match=f"^data index {number}, column 'a': expected "):
            runs["table"].score(wrong)
    with pytest.raises(ValueError, match=r"^data index 2: the label is empty"):
        runs["classify"].evaluate([("good film", "pos"), ("bad\nfilm", "neg"), ("bad film", "")])
    with pytest.raises(ValueError, match=r"^data index 1: "):
        runs["tag"].evaluate([[("Ada", "B-PER"), ("saw", "O")], [("Ada", "B-ORG")]])
    with pytest.raises(ValueError, match=r"^data index 1: contains no samples"):
        runs["sound"].score([DATA["sound"][0][0], np.zeros(0)])
    with pytest.raises(ValueError, match=r"^data index 1: contains no notes"):
        runs["music"].score([DATA["music"][0][0], np.zeros((0, 88))])
    values = DATA["forecast"][0].copy()
    values["load"] = values["load"].astype(str)
    values.loc[7, "load"] = "many"
    with pytest.raises(ValueError, match=r"^data index 7, column 'load': expected a finite number"):
        runs["forecast"].forecast(values)
    np.savetxt(tmp_path / "rows.csv", RANDOM.integers(0, 9, (60, 2)), delimiter=",", fmt="%d")
    run = chainrule.fit(tmp_path / "rows.csv", steps=1, hidden_size=4, threads=1)
    with pytest.raises(ValueError, match=r"^data index 0, "):
        run.score(np.array([[1.5, 2], [1, 2]]))
    (tmp_path / "rows.csv").write_text("1,2\n1.5,2\n")
    with pytest.raises(ValueError, match=r"rows.csv line 2, "):
        list(run.score(tmp_path / "rows.csv"))


def test_captions_of_images_in_memory_have_their_index(runs):
    images = DATA["caption"][0][:3]
    assert runs["caption"].caption(images)["index"] == [0, 1, 2]
    assert runs["caption"].caption(list(images), n_best=2, beam=2)["index"] == [0, 0, 1, 1, 2, 2]
