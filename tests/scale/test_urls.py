"""Data and runs behind URLs: copied whole or not at all, again when they changed, and without a word of credentials."""

import json
import os
import pickle
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import chainrule
from chainrule_app.cli.main import main
from chainrule_app.printing import shown
from chainrule_app.readers import copies, remote
from chainrule_app.tasks.config import recorded_source
from chainrule_app.tasks.remote_run import Publisher, copy_to_work_in
from chainrule_app.tasks.run_directory import local_run

fsspec = pytest.importorskip("fsspec")


def copies_in(folder):
    return sorted(path.name for path in (folder / "copies" / "url-objects").rglob("*") if path.is_file())


def test_an_object_is_copied_once_and_again_when_it_changed(storage, tmp_path, monkeypatch):
    storage.pipe("/b/rows.csv", b"a\n1\n")
    asked = []
    monkeypatch.setattr(remote, "_range", lambda *about, real=remote._range: asked.append(about) or real(*about))
    (path,) = remote.local_paths("memory://b/rows.csv")
    assert Path(path).read_bytes() == b"a\n1\n"
    assert remote.local_paths(Path("memory://b/rows.csv")) == [path]
    assert len(asked) == 1
    storage.pipe("/b/rows.csv", b"a\n2\n")  # of the same size
    assert Path(remote.local_paths("memory://b/rows.csv")[0]).read_bytes() == b"a\n2\n"
    assert shown(f"{path} line 3") == "memory://b/rows.csv line 3"


def test_a_cut_connection_is_taken_up_where_it_broke(storage, monkeypatch):
    monkeypatch.setattr(remote, "_RANGE", 1000)
    content = os.urandom(3500)
    storage.pipe("/b/x.bin", content)
    starts, real = [], type(storage).cat_file

    def cut(self, path, start=None, end=None, **settings):
        starts.append(start)
        if len(starts) == 2:
            raise ConnectionResetError("cut")
        whole = real(self, path, start=start, end=end, **settings)
        return whole[:10] if len(starts) == 3 else whole

    monkeypatch.setattr(type(storage), "cat_file", cut)
    assert Path(remote.local_paths("memory://b/x.bin")[0]).read_bytes() == content
    assert starts == [0, 1000, 1000, 1000, 2000, 3000]


def test_a_connection_that_stays_cut_leaves_nothing(storage, tmp_path, monkeypatch):
    storage.pipe("/b/x.bin", b"content")

    def cut(*about, **settings):
        raise ConnectionResetError("cut at https://host/x?X-Amz-Signature=abc")

    monkeypatch.setattr(type(storage), "cat_file", cut)
    with pytest.raises(ValueError, match=r"memory://b/x.bin: the storage does not answer \(.*https://host/x\)"):
        remote.local_paths("memory://b/x.bin")
    assert not [path for path in (tmp_path / "copies").rglob("*") if path.is_file() and "using" not in str(path)]


@pytest.mark.parametrize("carrier", ["status", "code", "response"])  # of aiohttp, gcsfs and huggingface_hub
@pytest.mark.parametrize(("status", "line"), [(403, "the storage refuses"), (404, "no such object or folder")])
def test_what_a_storage_refuses_is_asked_for_once(storage, monkeypatch, carrier, status, line):
    asked = []

    def refuse(*about, **settings):
        asked.append(about)
        error = OSError("token hidden")
        setattr(error, carrier, SimpleNamespace(status_code=status) if carrier == "response" else status)
        raise error

    monkeypatch.setattr(type(storage), "info", refuse)
    with pytest.raises((ValueError, FileNotFoundError), match=f"memory://b/x.bin: {line}"):
        remote.local_paths("memory://b/x.bin")
    assert len(asked) == 1


def test_patterns_and_folders_keep_to_what_is_there(storage):
    for name in "ba_":
        storage.pipe(f"/b/d/{name}.txt", name.encode())
    storage.pipe("/b/d/_SUCCESS", b"")
    assert [Path(path).name for path in remote.local_paths("memory://b/d/*.txt")] == ["a.txt", "b.txt"]
    (folder,) = remote.local_paths("memory://b/d")
    assert sorted(path.name for path in Path(folder).iterdir()) == ["a.txt", "b.txt"]
    storage.rm("/b/d/a.txt")
    assert remote.local_paths("memory://b/d") == [folder]
    assert [path.name for path in Path(folder).iterdir()] == ["b.txt"]
    for missing in ("memory://b/none.txt", "memory://b/*.none"):
        with pytest.raises(FileNotFoundError, match="no "):
            remote.local_paths(missing)


def test_the_folder_is_bounded_and_what_runs_use_stays(storage, tmp_path, monkeypatch):
    for name in "abc":
        storage.pipe(f"/b/{name}", os.urandom(1000))
    monkeypatch.setenv(copies.LIMIT, str(2100 / 1e9))
    for name in "ab":
        remote.local_paths(f"memory://b/{name}")
    with pytest.raises(ValueError, match=f"memory://b/c: needs 1e-06 GB.* raise {copies.LIMIT}"):
        remote.local_paths("memory://b/c")
    copies._claims.clear()  # as if this process had ended
    old = copies.version_path(tmp_path / "copies/url-objects/memory/b/b")
    os.utime(old, (time.time() - 9, time.time() - 9))
    remote.local_paths("memory://b/c")
    assert copies_in(tmp_path) == ["a", "c"]
    monkeypatch.setenv(copies.LIMIT, "much")
    storage.pipe("/b/c", b"new")
    with pytest.raises(ValueError, match="expected a number of gigabytes above 0, got 'much'"):
        remote.local_paths("memory://b/c")


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("s3://key:secret@bucket/a.csv", "s3://bucket/a.csv: the URL holds credentials"),
        ("gs://key:secret@bucket/a.csv", "gs://bucket/a.csv: the URL holds credentials"),
        ("hf://key:secret@u/n/a.csv", "hf://u/n/a.csv: the URL holds credentials"),
        ("https://key:secret@host/a.csv?secret", "https://host/a.csv: the URL holds credentials"),
        ("nowhere://host/a.csv", "nowhere://host/a.csv: nowhere:// is unknown to fsspec"),
        ("memory://b/../a.csv", "memory://b/../a.csv: expected a URL without .."),
        ("zip://a.csv::memory://b/a.zip", "expected the URL of one object"),
    ],
)
def test_refusals_are_one_line_without_secrets(storage, url, line, capsys):
    assert main(["train", url]) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1
    assert "secret" not in said


@pytest.mark.parametrize(
    ("url", "module", "line"),
    [
        ("gs://bucket/a.csv", "gcsfs", "gs://bucket/a.csv: gs://"),
        ("s3://bucket/a.csv", "s3fs", "s3://bucket/a.csv: s3://"),
        ("https://host/a.csv?secret", "aiohttp", "https://host/a.csv: https://"),
        ("hf://datasets/u/n/a.csv", "huggingface_hub", "hf://datasets/u/n/a.csv: hf://"),
    ],
)
def test_a_missing_package_is_named_in_one_line(storage, url, module, line, capsys, monkeypatch):
    for name in [name for name in sys.modules if f"{name}.".startswith(("fsspec.implementations.http.", f"{module}."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)  # importing it fails, as where it is not installed
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, url.partition(":")[0], raising=False)
    assert main(["train", url]) == 2
    said = capsys.readouterr().err
    assert f"{line} needs the package {module}: pip install {module}" in said
    assert said.count("\n") == 1
    assert "secret" not in said


def test_signatures_are_neither_recorded_nor_part_of_the_copy():
    url = "https://host/d/a.csv?X-Amz-Signature=secret"
    assert recorded_source(url) == "https://host/d/a.csv"
    copy = str(remote.Place("https", url, None).copy)
    assert "secret" not in copy
    assert shown(copy) == "https://host/d/a.csv"


ROWS = b"age,smokes\n" + b"".join(b"%d,%s\n" % (20 + row % 40, b"yes" if row % 2 else b"no") for row in range(60))
TINY = {"steps": 1, "hidden_size": 8, "plain": True, "threads": 1, "precision": "float32"}
QUICK = ["--hidden-size", "8", "--plain", "--threads", "1", "--precision", "float32"]


def test_a_run_trains_from_and_to_a_url(storage, capsys):
    storage.pipe("/b/rows.csv", ROWS)
    url = "memory://runs/people"
    assert main(["train", "memory://b/rows.csv", "--steps", "1", "--out", url, *QUICK]) == 0
    assert f"run:  {url}\n" in capsys.readouterr().out
    config = json.loads(storage.cat("/runs/people/config.json"))
    assert config["data"]["sources"]["source"] == "memory://b/rows.csv"
    assert main(["train", "memory://b/rows.csv", "--steps", "2", "--out", url, *QUICK]) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert main(["score", "memory://runs/none", "memory://b/rows.csv"]) == 2
    assert "memory://runs/none: no such run" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_goes_on_at_its_url_and_its_pickle_is_the_url(storage):
    storage.pipe("/b/rows.csv", ROWS)
    url = "memory://runs/people"
    for steps in (2, 4):
        assert main(["train", "--continue", "memory://b/rows.csv", "--steps", str(steps), "--out", url, *QUICK]) == 0
    records = map(json.loads, storage.cat("/runs/people/metrics.jsonl").decode().splitlines())
    assert max(record.get("step", 0) for record in records) == 4
    run = chainrule.load(url)
    again = pickle.loads(pickle.dumps(run))  # noqa: S301  ours
    assert again.score("memory://b/rows.csv")["nats"] == run.score("memory://b/rows.csv")["nats"]


def test_fit_and_save_take_urls(storage):
    polars = pytest.importorskip("polars")
    frame = polars.read_csv(ROWS)
    run = chainrule.fit(frame, out="memory://runs/fitted", **TINY)
    assert storage.exists("/runs/fitted/frame.json")
    run.save("memory://runs/saved")
    assert chainrule.load("memory://runs/saved").fill(frame[:2]).equals(frame[:2])


def test_a_run_is_never_half_there(storage, monkeypatch):
    """Training over an old run: whoever looks in between finds the old run, none, or the new one."""
    publisher = Publisher("memory://runs/x")
    work = copy_to_work_in("memory://runs/x")
    work.mkdir(parents=True)

    def write(mark):
        (work / "data").mkdir(exist_ok=True)
        for name in ("data/rows.bin", "vocabulary.json", "model.safetensors", "config.json"):
            (work / name).write_text(mark)

    write("old")
    publisher.send()
    seen, real = [], type(storage).put_file

    def look(*about, **settings):
        real(*about, **settings)
        try:
            run = local_run("memory://runs/x")
        except FileNotFoundError:
            seen.append("none")
        else:
            marks = {path.read_text() for path in run.rglob("*") if path.is_file()}
            seen.append(marks.pop() if len(marks) == 1 else "mixed")

    monkeypatch.setattr(type(storage), "put_file", look)
    write("newer")
    publisher.send()
    assert seen == ["none"] * 3 + ["newer"]


def test_the_checkpoint_of_a_divided_training_is_never_half_there(storage, monkeypatch):
    """At every moment, the folder that the checkpoint at the URL names is whole there; readers of the run copy none."""
    publisher = Publisher("memory://runs/x")
    work = copy_to_work_in("memory://runs/x")
    work.mkdir(parents=True)
    (work / "config.json").write_text("config")

    def save(folder, other):
        shutil.rmtree(work / other, ignore_errors=True)
        (work / folder).mkdir()
        for name in ("a.safetensors", "b.safetensors"):
            (work / folder / name).write_text(folder)
        (work / "checkpoint.safetensors").write_text(folder)
        publisher.send()

    def look(*about, **settings):
        folder = storage.cat("/runs/x/checkpoint.safetensors").decode()
        seen.append({storage.cat(f"/runs/x/{folder}/{name}.safetensors").decode() for name in "ab"} == {folder})

    seen = []
    save("checkpoint-0", "checkpoint-1")
    for name in ("put_file", "rm_file"):
        real = getattr(type(storage), name)
        monkeypatch.setattr(type(storage), name, lambda *about, real=real, **named: (real(*about, **named), look()))
    save("checkpoint-1", "checkpoint-0")
    assert seen == [True] * 5
    assert not storage.exists("/runs/x/checkpoint-0/a.safetensors")
    assert {path.name for path in local_run("memory://runs/x").iterdir()} == {"config.json"}


def test_two_trainings_on_one_machine_do_not_share_a_url(storage, capsys):
    from chainrule_app.tasks.run_directory import lock_run

    with lock_run(copy_to_work_in("memory://runs/y")):
        storage.pipe("/b/rows.csv", ROWS)
        assert main(["train", "memory://b/rows.csv", "--steps", "1", "--out", "memory://runs/y", *QUICK]) == 2
    assert "another process is working in memory://runs/y" in capsys.readouterr().err
