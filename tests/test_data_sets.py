"""Data sets of Hugging Face and PyTorch, their splits, chats, and answers beside data."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset as TorchStream

import chainrule
from chainrule_app.inputs import Inputs

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")

ONE = {"steps": 1, "threads": 1, "precision": "float32"}
CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
SPOKEN = "user: Hi\nassistant: Hello\n"
FILMS = {"text": ["good film", "bad film"] * 10, "label": [1, 0] * 10}
IMAGES = np.random.default_rng(0).integers(0, 256, (4, 5, 5), dtype=np.uint8)


def read(data, task="", y=None):
    """The task, and what a reader takes."""
    with Inputs(task, rate=8000) as inputs:
        source = inputs.source(data, y=y)
        return inputs.task, source, inputs.options


# Hugging Face.


@pytest.fixture(scope="module")
def hub():
    return pytest.importorskip("datasets", reason="datasets is not installed: pip install datasets")


@pytest.fixture(params=["whole", "streamed"])
def as_is(request):
    return lambda data: data if request.param == "whole" else data.to_iterable_dataset()


def test_texts_with_a_class_are_classified(hub, as_is):
    features = hub.Features({"text": hub.Value("string"), "label": hub.ClassLabel(names=["bad", "good"])})
    task, table, options = read(as_is(hub.Dataset.from_dict(FILMS, features)))
    assert (task, options) == ("classify", {"text_column": "text", "label_column": "label"})
    assert [cells for _, cells in table.rows()][:2] == [["good film", "good"], ["bad film", "bad"]]


def test_an_index_beside_a_text_and_its_class_is_left_out(hub, as_is):
    """SST-2 has one: it was read as a table, and refused for its identifiers."""
    features = {
        "idx": hub.Value("int32"),
        "sentence": hub.Value("string"),
        "label": hub.ClassLabel(names=["bad", "good"]),
    }
    films = {"idx": range(len(FILMS["text"])), "sentence": FILMS["text"], "label": FILMS["label"]}
    task, table, options = read(as_is(hub.Dataset.from_dict(films, hub.Features(features))))
    assert (task, options) == ("classify", {"text_column": "sentence", "label_column": "label"})
    assert table.names == ["sentence", "label"]


def test_tags_of_words_have_the_names_of_their_classes(hub, as_is):
    """They were refused, and with a task they were numbers."""
    tags = hub.Sequence(hub.ClassLabel(names=["O", "B-PER"]))
    features = hub.Features({"tokens": hub.Sequence(hub.Value("string")), "ner_tags": tags})
    data = hub.Dataset.from_dict({"tokens": [["Ada", "saw"]] * 2, "ner_tags": [[1, 0]] * 2}, features)
    task, held, options = read(as_is(data))
    assert (task, options) == ("tag", {"tag_key": "ner_tags"})
    assert [(own.words, own.tags) for own in held.sentences] == [(("Ada", "saw"), ("B-PER", "O"))] * 2


def test_translations_chats_and_texts_tell_their_task(hub, as_is):
    task, pairs, _ = read(as_is(hub.Dataset.from_dict({"translation": [{"de": "ja", "en": "yes"}] * 2})))
    assert (task, list(pairs.rows)) == ("translate", [["ja", "yes"]] * 2)
    for name in ("messages", "conversations"):
        task, text, _ = read(as_is(hub.Dataset.from_dict({name: [CHAT] * 2})))
        assert (task, text.open().read().decode()) == ("text", f"{SPOKEN}\n" * 2)
    task, text, _ = read(as_is(hub.Dataset.from_dict({"text": ["a b", "c"], "url": ["x", "y"]})))
    assert (task, text.open().read()) == ("text", b"a b\nc\n")
    task, table, _ = read(as_is(hub.Dataset.from_dict({"age": [1, 2], "name": ["a", "b"]})))
    assert (task, table.names) == ("table", ["age", "name"])


def test_images_of_a_data_set_have_their_labels(hub, as_is):
    features = hub.Features({"image": hub.Image(), "label": hub.ClassLabel(names=["cat", "dog"])})
    data = hub.Dataset.from_dict({"image": list(IMAGES), "label": [0, 1, 0, 1]}, features)
    task, held, _ = read(as_is(data))
    assert (task, held.labels.tolist()) == ("image", ["cat", "dog"] * 2)
    assert np.array_equal(np.stack([np.asarray(image) for image in held.images]), IMAGES)
    assert read(as_is(data), task="classify")[0] == "classify-images"


def test_a_stream_is_read_once(hub):
    passes = 0

    def rows():
        nonlocal passes
        passes += 1
        yield from ({"text": f"line {number}"} for number in range(20))

    run = chainrule.fit(hub.IterableDataset.from_generator(rows), hidden_size=4, **ONE)
    assert (run.task.name, passes) == ("text", 1)
    assert len(run.score(hub.IterableDataset.from_generator(rows))) == 20


def test_splits_are_used_as_splits(hub, capsys):
    features = hub.Features({"text": hub.Value("string"), "label": hub.ClassLabel(names=["bad", "good"])})
    whole = hub.Dataset.from_dict(FILMS, features)
    data = hub.DatasetDict(train=whole, validation=whole.select(range(6)), test=whole.select(range(4)))
    run = chainrule.fit(data, hidden_size=4, **ONE)
    assert (
        "trains on the split train and validates on the split validation; the split test is" in capsys.readouterr().err
    )
    assert (run.task.facts.train.rows, run.task.facts.valid.rows) == (20, 6)
    assert run.evaluate(data).summary["texts"] == 4
    assert set(run.classify(data).values) <= {"bad", "good"}


# Dictionaries of other data are splits too.


def test_a_dictionary_of_frames_has_splits(capsys):
    frame = polars.DataFrame({"a": [1, 2] * 20, "b": ["x", "y"] * 20})
    run = chainrule.fit({"train": frame, "dev": frame[:10]}, hidden_size=4, **ONE)
    assert vars(run.task.facts.rows) == {"train": 40, "valid": 10}
    assert len(run.score({"test": frame[:3]})) == 3
    with pytest.raises(ValueError, match=r"data: expected one data set, got 2 splits: pass data\['dev'\]"):
        run.score({"train": frame, "dev": frame})
    with pytest.raises(ValueError, match="data: expected a split called train, got test"):
        chainrule.fit({"test": frame}, **ONE)
    with pytest.raises(ValueError, match="data: a run of the task forecast takes no splits"):
        chainrule.fit({"train": frame, "test": frame}, task="forecast", horizon=2, **ONE)


# PyTorch.


class Pictures(TorchDataset):
    """As those of torchvision are: no iterator, but a length."""

    def __len__(self):
        return len(IMAGES)

    def __getitem__(self, index):
        return Image.fromarray(IMAGES[index]), index % 2


class Lines(TorchStream):
    def __iter__(self):
        return iter(["a b", "c d"])


def test_data_sets_of_pytorch_are_read():
    task, held, _ = read(Pictures())
    assert (task, held.labels.tolist(), len(held.images)) == ("classify-images", [0, 1, 0, 1], 4)
    assert read(Subset(Pictures(), [0, 2]))[1].labels.tolist() == [0, 0]
    unit = torch.from_numpy(IMAGES[:, None] / 255)  # as ToTensor makes them
    task, held, _ = read(TensorDataset(unit, torch.arange(4)))
    assert (task, held.labels.tolist()) == ("classify-images", [0, 1, 2, 3])
    assert np.array_equal(held.images[:, 0], IMAGES)
    task, table, options = read(TensorDataset(torch.arange(12.0).view(4, 3), torch.tensor([1, 0, 1, 0])))
    assert (task, table.names, options) == ("table", ["column1", "column2", "column3", "target"], {"target": "target"})
    assert read(TensorDataset(torch.zeros(4, 3)))[0] == "table"
    assert read(Lines())[:1] == ("text",)
    with pytest.raises(ValueError, match="expected images from 0 to 1, got -1 to 1: leave out the transform"):
        read(TensorDataset(unit * 0 - torch.tensor([1.0, -1, 0, 0]).view(4, 1, 1, 1), torch.arange(4)))
    with pytest.raises(ValueError, match="data: expected a data set, got a DataLoader"):
        read(DataLoader(Pictures()))


# Chats.


def test_chats_are_texts():
    for data, times in ((CHAT, 1), ([CHAT, CHAT], 2), (pandas.DataFrame({"messages": [CHAT] * 3}), 3)):
        task, text, options = read(data)
        assert (task, text.open().read().decode(), options) == ("text", f"{SPOKEN}\n" * times, {"reading": "stream"})


def test_a_chat_is_scored_and_answered():
    run = chainrule.fit([CHAT] * 20, hidden_size=4, **ONE)
    assert run.score([CHAT, CHAT[:1]])["nats"] == run.score([SPOKEN, "user: Hi\n"])["nats"]
    options = {"seed": 0, "length": 4}
    assert run.sample(1, prompt=CHAT[:1], **options) == run.sample(1, prompt="user: Hi\nassistant:", **options)


# Answers beside data.


def test_answers_beside_texts_words_and_sources_are_pairs():
    films, signs = ["good film", "bad film"], pandas.Series([1, 0])
    assert read(pandas.Series(films), y=signs)[1].rows == read(list(zip(films, signs, strict=True)))[1].rows
    task, held, _ = read([["Ada", "saw"]], y=[["N", "V"]])
    assert (task, held.sentences[0].tags) == ("tag", ("N", "V"))
    assert read(["ja"], task="translate", y=["yes"])[1].rows == [("ja", "yes")]
    assert read(IMAGES, y=[0, 1, 0, 1])[0] == "classify-images"


@pytest.mark.parametrize("kind", ["to_pandas", "to_arrow", "clone", "lazy", "to_numpy", "to_dicts"])
def test_a_target_beside_a_frame_is_its_last_column(kind):
    task, table, options = read(getattr(polars.DataFrame({"a": [1, 2]}), kind)(), y=pandas.Series(["x", "y"], name="b"))
    assert (task, table.names[-1], options) == ("table", "b", {"target": "b"})
    assert [cells[1] for _, cells in table.rows()] == ["x", "y"]


def test_answers_are_trained_on_and_evaluated():
    films, labels = np.array(["good film", "bad film"] * 10), np.array([3, 4] * 10)
    run = chainrule.fit(films, labels, **ONE)
    assert set(run.classify(films[:2])["label"]) <= {3, 4}
    assert run.evaluate(films[:4], labels[:4]).summary["texts"] == 4


@pytest.mark.parametrize(
    ("data", "y", "message"),
    [
        (["a"], [1, 2], "y: expected an answer for each of 1 rows, got 2"),
        (polars.DataFrame({"a": [1]}), [1, 2], "y: expected an answer for each of 1 rows, got 2"),
        (polars.DataFrame({"a": [1]}), pandas.Series([1], name="a"), "y: data has a column 'a' already"),
        ("rows.csv", [1], "y: expected data in memory as the first argument, got str"),
        (["a"], polars.DataFrame({"a": [1], "b": [2]}), "y: expected one column, got 2"),
        ([["Ada", "saw"]], [["N"]], r"y index 0: expected a tag for each of 2 words, got \['N'\]"),
        (IMAGES, [1], "y: expected an answer for each of 4 rows, got 1"),
    ],
)
def test_answers_that_do_not_fit_are_refused(data, y, message):
    with pytest.raises(ValueError, match=message):
        chainrule.fit(data, y, **ONE)
