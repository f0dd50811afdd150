"""Run directories that were changed: pipes, other facts, larger models, and what killed processes leave."""

import json
import os
import shutil
import struct

import numpy as np
import pytest

from chainrule import open_run
from chainrule.tensor_files import read_tensors
from chainrule.training import _metrics, read_metrics
from chainrule_app.cli.main import main
from chainrule_app.recorded import read_elapsed
from chainrule_app.tasks import model_size
from chainrule_app.tasks.model_size import count_built, count_weights


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    home = tmp_path_factory.mktemp("run")
    rows = home / "rows.csv"
    rows.write_text("colour,size\n" + "".join(f"{'red' if n % 3 else 'blue'},{n * n % 17}\n" for n in range(60)))
    assert main(["train", str(rows), "--out", str(home / "run"), "--steps", "1", "--hidden-size", "4"]) == 0
    return home / "run"


@pytest.fixture
def run(trained, tmp_path):
    """A copy of a run of a table."""
    return shutil.copytree(trained, tmp_path / "run")


def change(run, **values):
    content = json.loads((run / "config.json").read_text())
    for name, value in values.items():
        *parents, last = name.split("__")
        place = content
        for parent in parents:
            place = place[parent]
        place[last] = value
    (run / "config.json").write_text(json.dumps(content))


def resume(run, capsys):
    capsys.readouterr()
    status = main(["train", "--resume", "--out", str(run), "--steps", "2"])
    return status, capsys.readouterr().err


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "timings.jsonl"])
def test_a_pipe_in_a_run_directory_does_not_block(run, capsys, name):
    (run / name).unlink()
    os.mkfifo(run / name)
    status, told = resume(run, capsys)
    assert (status, len(told.splitlines()[-1:])) == (2, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data__sources__source": None}, "data.sources.source: expected a table, got null"),
        ({"facts__rows": {"train": 1 << 24, "valid": 6}}, "facts.rows does not match data/table.json"),
        ({"facts__columns": []}, "facts.columns does not match data/table.json"),
        ({"model__options__hidden_size": 1 << 16}, "describe a model of at least"),
    ],
)
def test_a_changed_config_is_refused_on_resume(run, capsys, changes, message):
    change(run, **changes)
    status, told = resume(run, capsys)
    assert status == 2
    assert message in told


def test_a_model_that_cannot_be_trained_here_is_refused_before_it_takes_memory(run, capsys):
    for name in ("model.safetensors", "checkpoint.safetensors"):
        (run / name).unlink()
    change(run, model__options__hidden_size=1 << 16, model__options__num_layers=200)
    status, told = resume(run, capsys)
    assert status == 2
    assert "GiB" in told


def test_a_large_model_of_which_nothing_is_trained_is_confirmed(run, capsys, monkeypatch):
    """A changed config took gigabytes and minutes before the first step had ended."""
    for name in ("model.safetensors", "checkpoint.safetensors"):
        (run / name).unlink()
    monkeypatch.setattr(model_size, "_UNCONFIRMED", 100)
    status, told = resume(run, capsys)
    assert status == 2
    assert "nothing is trained yet" in told
    assert told.rstrip().endswith("or confirm it with --model made")
    assert main(["info", str(run), "--json"]) == 0  # counted, not built
    counted = json.loads(capsys.readouterr().out)["parameters"]
    assert counted == sum(weight.numel() for weight in open_run(run).new_model(0).parameters())
    assert main(["train", "--resume", "--out", str(run), "--steps", "2", "--model", "made"]) == 0


def test_a_long_header_of_weights_is_refused_before_it_is_parsed(tmp_path):
    """30 million dimensions took 1.1 GB; a pipe blocked."""
    path = tmp_path / "model.safetensors"
    header = b'{"a":{"dtype":"F32","shape":[' + b"1," * (1 << 23) + b'1],"data_offsets":[0,4]}}'
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 4)
    for read in (count_weights, read_tensors):
        with pytest.raises(ValueError, match="a header of at most 16 MiB, got 16 MiB"):
            read(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match="device or pipe"):
        count_weights(path)


def test_no_more_threads_than_the_machine_can_run(run, capsys):
    change(run, computation__threads=257 + 4 * os.cpu_count())
    status, told = resume(run, capsys)
    assert status == 0
    assert f"{4 * os.cpu_count()} threads instead of" in told


def test_what_a_killed_preparation_left_is_removed_on_resume(run, capsys):
    (run / ".preparing" / "data").mkdir(parents=True)
    left = [run / ".preparing", run / ".config.json.x1", run / "data" / ".table.json.x2", run / ".partial"]
    left[1].write_text("")
    left[2].write_text("")
    left[3].mkdir()
    assert resume(run, capsys)[0] == 0
    assert [path for path in left if path.exists()] == []


def test_labels_fewer_than_those_of_the_data_are_refused(tmp_path, capsys):
    """The page about a code looked up the name of a label beyond the end of the list."""
    pixels = np.random.default_rng(0).integers(0, 2, (12, 4, 4)).astype(np.uint8)
    np.savez(tmp_path / "x.npz", images=pixels, labels=np.arange(12) % 3)
    line = ["train", str(tmp_path / "x.npz"), "--out", str(tmp_path / "run"), "--steps", "1", "--model", "vae"]
    assert main([*line, "--hidden-size", "4", "--latent-size", "2"]) == 0
    change(tmp_path / "run", facts__classes=["0"])
    with pytest.raises(ValueError, match=r"facts\.classes does not match"):
        open_run(tmp_path / "run")


def test_a_record_longer_than_any_is_damage(tmp_path, monkeypatch):
    monkeypatch.setattr(_metrics, "_LONGEST_RECORD", 1000)
    (tmp_path / "metrics.jsonl").write_text('{"a": 1,' * 1000)
    with pytest.raises(ValueError, match="line 1: expected a record"):
        list(read_metrics(tmp_path / "metrics.jsonl"))


def test_of_the_timings_the_end_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("chainrule_app.recorded._LAST", 40)
    (tmp_path / "timings.jsonl").write_text('{"elapsed": 1}\n' * 100 + '{"elapsed": 2.5}\n')
    assert read_elapsed(tmp_path / "timings.jsonl") == 2.5


def test_building_stops_where_the_weights_are_too_many(run):
    large = open_run(run).with_options(hidden_size=64, num_layers=200)
    assert 1000 < count_built(large._network, most=1000) < 200_000


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "checkpoint.safetensors", "metrics.jsonl", "data", "data/schema.json"]
)
def test_no_file_of_a_run_is_followed_outside_it(run, tmp_path, capsys, name):
    """`runs` and `report` once quoted the first line of the file that metrics.jsonl was a link to."""
    (tmp_path / "other").mkdir()
    (run / name).rename(tmp_path / "other" / "there")
    (run / name).symlink_to(tmp_path / "other" / "there")
    (tmp_path / "secret").write_text("secret words\n")
    if name == "metrics.jsonl":
        (run / name).unlink()
        (run / name).symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match="expected a file of the run, got a link"):
        open_run(run)
    for command in (["runs", str(tmp_path)], ["report", str(run)], ["info", str(run)], ["sample", str(run)]):
        main(command)
    told = capsys.readouterr()
    assert "secret words" not in told.out + told.err
    assert told.err.count("got a link") == 3
    assert "got a link" in told.out  # the state of a broken run


@pytest.mark.parametrize("name", [".lock", ".partial", "report.html", "samples.jsonl"])
def test_no_file_outside_a_run_is_written(run, tmp_path, name):
    (run / name).unlink(missing_ok=True)
    (tmp_path / "precious").mkdir() if name == ".partial" else (tmp_path / "precious").write_text("precious")
    (run / name).symlink_to(tmp_path / "precious")
    assert main(["train", "--resume", "--out", str(run), "--steps", "2"]) == 2
    assert main(["report", str(run)]) == 2
    if name != ".partial":
        assert (tmp_path / "precious").read_text() == "precious"


def test_a_run_may_be_reached_through_a_link(run, tmp_path):
    (tmp_path / "link").symlink_to(run.parent)
    assert open_run(tmp_path / "link" / "run").model() is not None
