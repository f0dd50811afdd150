import json
import os
import re
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule import open_run
from chainrule.data import CharVocabulary
from chainrule.training import TrainingOptions, save_weights
from chainrule.typed_json import read_value
from chainrule_app.tasks.config import FORMAT, Duration, Fingerprint, RunConfig, Settled
from chainrule_app.tasks.run_directory import CONFIG, DATA, VOCABULARY, WEIGHTS
from chainrule_app.tasks.task import Task
from chainrule_app.tasks.text.options import TextData, TextTraining
from chainrule_app.tasks.text.run import TextRun
from chainrule_app.tasks.text.task import TextCounts, TextFacts

FACTS = TextFacts(
    source=Fingerprint("a.txt", 7, "0" * 64),
    validation=None,
    train=TextCounts(elements=5, lines=0, unknown=0, characters=5, bytes=5),
    valid=TextCounts(elements=2, lines=0, unknown=0, characters=5, bytes=5),
)
OPTIONS = TextRun.MODELS["gru"].options
SETTLED = OPTIONS(
    hidden_size=4,
    num_layers=1,
    embedding_size=3,
    ngram_order=2,
    num_members=1,
    ngram_dropout=0.0,
    dropout=0.0,
    embedding_dropout=0.0,
    tie_weights=False,
    adaptive_softmax=False,
)
ASKED = RunConfig(
    sources={"source": "a.txt", "validation": None, "tokenizer": None},
    data=TextData(reading="stream", validation_fraction=0.1),
    model="gru",
    options=SETTLED,
    duration=Duration(steps=3),
    training=TextTraining(batch_size=32, optimiser="adamw", learning_rate=6e-3, weight_decay=0.1, kneser_ney_order=0),
    facts=FACTS,
    settled=Settled(["num_layers"], 2.5),
)


@pytest.fixture
def run(tmp_path: Path) -> TextRun:
    run = TextRun.create(tmp_path / "run", ASKED)
    CharVocabulary("abc").save(run.path / VOCABULARY)
    save_weights(run.path / WEIGHTS, run.new_model(seed=0), {})
    return run


def change(run: Task, **changes: object) -> None:
    """Change config.json by dotted keys written with two underscores."""
    path = run.path / CONFIG
    content = json.loads(path.read_text())
    for name, value in changes.items():
        *parents, last = name.split("__")
        branch = content
        for parent in parents:
            branch = branch[parent]
        branch[last] = value
    path.write_text(json.dumps(content))


def test_a_run_opens_as_it_was_created(run):
    again = open_run(run.path)
    assert again.config == ASKED
    assert again.vocabulary.to_json() == CharVocabulary("abc").to_json()
    x = torch.tensor([[1, 2, 3, 0]])
    model = again.model()
    assert not model.training
    assert torch.equal(model.log_prob(x), run.new_model(seed=0).eval().log_prob(x))


def test_the_seed_decides_the_weights_and_the_callers_randomness_is_left_alone(run):
    before = torch.random.get_rng_state()
    first, same, other = (run.new_model(seed).state_dict() for seed in (1, 1, 2))
    run.model()
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_the_defaults_are_those_of_the_training_loop():
    ours = asdict(TextTraining())
    assert ours.pop("watch_gradients") is False  # what the command line does with it: train(watch=...)
    assert (ours.pop("threads"), ours.pop("backend")) == (None, "auto")  # likewise: computing(model, ...)
    assert (ours.pop("samples"), ours.pop("track")) == (True, None)  # likewise: train(samples=..., callbacks=...)
    assert ours.pop("kneser_ney_order") is None  # of what is counted, not trained
    theirs = asdict(TrainingOptions())
    for name in ("batch_size", "optimiser", "learning_rate", "weight_decay"):  # settled when the run is made
        assert ours.pop(name) is None
        theirs.pop(name)
    assert ours == {name: value for name, value in theirs.items() if name not in asdict(Duration())}
    assert set(asdict(Duration())) | set(ours) == set(theirs)


def test_a_missing_run_is_named_with_the_remedy(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such run.*chainrule train"):
        open_run(tmp_path / "nowhere")


def test_a_run_of_nearly_that_name_is_suggested(run):
    with pytest.raises(FileNotFoundError, match=rf"rum: no such run; did you mean {re.escape(str(run.path))}\?$"):
        open_run(run.path.with_name("rum"))
    run.path.parent.joinpath("runs").mkdir()
    place = run.path.rename(run.path.parent / "runs" / "text-lstm")
    with pytest.raises(FileNotFoundError, match=rf"did you mean {re.escape(str(place))}\?$"):
        open_run(place.parent.parent / "text-lstm")


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"hidden_size": 3}', "\udcff", "[" * 100_000])
def test_what_is_no_run_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / CONFIG).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=str(tmp_path)) as caught:
        open_run(tmp_path)
    assert len(str(caught.value)) < 500
    with pytest.raises(ValueError):
        open_run(Path(__file__))


def test_a_newer_run_asks_for_a_newer_version(run):
    change(run, format=FORMAT + 1, chainrule="9.0", something_new=1)
    with pytest.raises(ValueError, match=r"format.*9\.0.*newer chainrule"):
        open_run(run.path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extra": 1}, "unknown key 'extra'"),
        ({"task": "film"}, "task"),
        ({"format": True}, "format"),
        ({"format": 0}, "format"),
        ({"model__name": "os.system"}, "model.name"),
        ({"model__name": ["gru"]}, "model.name"),
        ({"model__options": []}, "options"),
        ({"model__options__hidden_size": 4.5}, "hidden_size"),
        ({"model__options__hidden_size": True}, "hidden_size"),
        ({"model__options__hidden_size": "4"}, "hidden_size"),
        ({"model__options__hidden_size": 10**15}, "hidden_size"),
        ({"model__options__num_layers": 10**6}, "num_layers"),
        ({"model__options__shell": "rm"}, "unknown key 'shell'"),
        ({"model__options__dropout": None}, "dropout"),
        ({"data__level": "letter"}, "level.*char, byte, word, bpe"),
        ({"data__sources": {"source": 3, "validation": None, "tokenizer": None}}, "sources.source"),
        ({"data__where": 3}, "where"),
        ({"training__learning_rate": "fast"}, "learning_rate"),
        ({"training__learning_rate": float("nan")}, "learning_rate"),
        ({"training__epochs": 1.0}, "steps is given, too"),
        ({"training__momentum": 0.9}, "momentum"),
        ({"facts__train": None}, "facts|train"),
        ({"facts__train__elements": "many"}, "elements"),
        ({"facts__source__sha256": 1}, r"facts\.source\.sha256: expected text, got 1"),
        ({"facts__source__bytes": 10**400}, r"facts\.source\.bytes: expected a size from 0 to"),
        ({"facts__source__bytes": -5}, r"facts\.source\.bytes: expected a size from 0 to"),
        ({"data__validation_fraction": None}, "validation_fraction: expected a value, got none"),
        ({"facts__train__bytes": -1}, r"facts\.train\.bytes: expected a whole number >= 0, got -1"),
        ({"facts__valid__elements": 0}, r"facts\.train and valid: expected elements, got none"),
    ],
)
def test_a_tampered_config_is_refused_and_the_entry_named(run, changes, message):
    change(run, **changes)
    with pytest.raises(ValueError, match=message) as caught:
        open_run(run.path)
    assert CONFIG in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("section", ["data", "model", "training", "facts", "task"])
def test_a_missing_entry_is_named(run, section):
    content = json.loads((run.path / CONFIG).read_text())
    del content[section]
    (run.path / CONFIG).write_text(json.dumps(content))
    with pytest.raises(ValueError, match=section):
        open_run(run.path)


def test_a_huge_config_is_not_read(run):
    with (run.path / CONFIG).open("ab") as file:
        file.truncate(1 << 30)
    with pytest.raises(ValueError, match="bytes"):
        open_run(run.path)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
NAMES = st.sampled_from([item.name for item in fields(OPTIONS)]) | st.text()
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner), max_leaves=8)


@settings(deadline=None)  # the machine may be busy
@given(st.dictionaries(NAMES, JSON, min_size=1))
def test_options_are_read_exactly_or_refused(changes):
    whole = asdict(OPTIONS()) | changes
    try:
        options = read_value(OPTIONS, whole, "here")
    except ValueError as error:
        message = str(error)
    else:
        message = "here"
        assert asdict(options) == whole
    assert message.startswith("here")


@pytest.mark.parametrize("size", [10**4, 30_000])
def test_weights_of_another_size_are_refused_before_memory_is_taken(run, size):
    change(run, model__options__hidden_size=size, model__options__num_layers=200)
    with pytest.raises(ValueError, match=rf"{WEIGHTS}.*config\.json"):
        open_run(run.path).model()  # 200 layers of 10,000 units would take 480 GB


def write_lstm(run: Task) -> None:
    content = json.loads((run.path / CONFIG).read_text())
    content["model"]["name"] = "lstm"
    content["model"]["options"] |= {"hidden_size": 4}
    content["model"]["options"].pop("reset_after")
    (run.path / CONFIG).write_text(json.dumps(content))


def test_weights_of_other_shapes_are_refused(run):
    change(run, model__options__hidden_size=3)
    with pytest.raises(ValueError, match=WEIGHTS):
        open_run(run.path).model()
    write_lstm(run)
    with pytest.raises(ValueError, match=WEIGHTS):
        open_run(run.path).model()


def test_a_vocabulary_of_another_size_or_level_is_refused(run):
    CharVocabulary("abcd").save(run.path / VOCABULARY)
    with pytest.raises(ValueError, match="describe a model of at least"):
        open_run(run.path).model()
    change(run, data__level="byte")
    with pytest.raises(ValueError, match="level"):
        open_run(run.path).model()


def test_truncated_changed_and_absent_weights_are_refused(run):
    whole = (run.path / WEIGHTS).read_bytes()
    for damaged in (b"", whole[:-1], whole[: len(whole) // 2], whole[:9], bytes([whole[0] ^ 255]) + whole[1:]):
        (run.path / WEIGHTS).write_bytes(damaged)
        with pytest.raises(ValueError, match=WEIGHTS):
            open_run(run.path).model()
    for place in (-1, -40, len(whole) // 2):
        changed = bytearray(whole)
        changed[place] ^= 1
        (run.path / WEIGHTS).write_bytes(bytes(changed))
        with pytest.raises(ValueError, match=WEIGHTS):
            open_run(run.path).model()
    (run.path / WEIGHTS).unlink()
    with pytest.raises(FileNotFoundError, match=r"no weights yet.*--resume"):
        open_run(run.path).model()


def test_a_pickle_in_place_of_the_weights_is_not_executed(run, tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    torch.save({"weight": Bomb()}, run.path / WEIGHTS)
    with pytest.raises(ValueError, match=WEIGHTS):
        open_run(run.path).model()
    assert not (tmp_path / "executed").exists()


def test_an_existing_run_is_replaced_only_on_request_and_alone(run):
    (run.path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"train --resume.*overwrite=True"):
        TextRun.create(run.path, ASKED)
    assert (run.path / WEIGHTS).exists()
    other = replace(ASKED, model="gru", options=replace(SETTLED, hidden_size=5))
    assert TextRun.create(run.path, other, overwrite=True).config == other
    assert sorted(path.name for path in run.path.iterdir()) == [CONFIG, "notes.txt"]
    assert open_run(run.path).config == other


@pytest.mark.parametrize("number", [FORMAT - 1, FORMAT + 1])
def test_a_run_of_another_format_can_be_replaced(run, number):
    config = json.loads((run.path / CONFIG).read_text())
    (run.path / CONFIG).write_text(json.dumps(config | {"format": number, "training": "of another kind"}))
    (run.path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"another format already: replace it with overwrite=True"):
        TextRun.create(run.path, ASKED)
    TextRun.create(run.path, ASKED, overwrite=True)
    assert open_run(run.path).config == ASKED
    assert sorted(path.name for path in run.path.iterdir()) == [CONFIG, "notes.txt"]


@pytest.mark.parametrize("name", ["file.txt", "config.json"])
def test_a_directory_that_is_no_run_is_never_overwritten(tmp_path, name):
    (tmp_path / name).write_text('{"precious": true}')
    with pytest.raises(FileExistsError, match="not a run"):
        TextRun.create(tmp_path, ASKED, overwrite=True)
    with pytest.raises(FileExistsError, match="file"):
        TextRun.create(tmp_path / name, ASKED, overwrite=True)
    assert (tmp_path / name).read_text() == '{"precious": true}'


def test_an_empty_directory_is_free(tmp_path):
    TextRun.create(tmp_path, ASKED)
    assert open_run(tmp_path).config == ASKED


def test_overwriting_follows_no_link_out_of_the_run(run, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "train.tokens").write_text("precious")
    (run.path / DATA).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError, match="not a run"):
        TextRun.create(run.path, ASKED, overwrite=True)
    assert (tmp_path / "elsewhere" / "train.tokens").read_text() == "precious"


def test_metrics_leave_out_a_line_cut_short(run):
    assert run.metrics() == []
    records = [{"event": "step", "step": step, "gradient_norm": 2.0} for step in (1, 2)]
    (run.path / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records) + '{"st')
    assert run.metrics() == records


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "5",
        "[]",
        '{"event": []}',
        '{"event": "step", "step": "1"}',
        "[" * 100_000,
        '{"event": "validation"}',
    ],
)
def test_metrics_name_the_line_that_is_no_record(run, line):
    (run.path / "metrics.jsonl").write_text(line + "\n")
    with pytest.raises(ValueError, match=r"metrics\.jsonl: line 1: .*damaged"):
        run.metrics()
