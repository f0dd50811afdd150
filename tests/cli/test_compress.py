"""`chainrule compress` and `chainrule decompress`: every file comes back, or nothing is written."""

import hashlib
import json
import random
import shutil
from functools import cache
from pathlib import Path

import pytest
import torch

from chainrule.coding._container import read_container, write_container
from chainrule.training import save_weights
from chainrule_app.cli.main import main
from chainrule_app.cli.selection import verbs_of
from chainrule_app.tasks import open_run, task_class
from chainrule_app.tasks.bundle import Bundle, write_bundle
from chainrule_app.tasks.run_directory import WEIGHTS

STREAM = "chainrule_app.tasks.text.compression.SYMBOLS_OF_A_STREAM"
PART, SHORT_PART = "chainrule_app.tasks.text.compression.SYMBOLS_OF_A_PART", 500
pytestmark = pytest.mark.usefixtures("without_lzma", "short_streams")

LEVELS = ["stream", "lines", "words", "bytes"]


@pytest.fixture
def short_streams(monkeypatch):
    """Many streams at once take a tenth of the steps of a single one."""
    monkeypatch.setattr(STREAM, 100)


@pytest.fixture(scope="session")
def decided(tmp_path_factory, new_run, text_file):
    """Runs whose models are sure of themselves, so that what they draw is shorter with them than without."""
    home = tmp_path_factory.mktemp("decided")
    readings = {"stream": {}, "lines": {"reading": "lines"}, "words": {"level": "word"}, "bytes": {"level": "byte"}}
    for name, reading in readings.items():
        run = new_run(text_file, home / name, **reading)
        model = run.model()
        with torch.no_grad():
            model.share.fill_(0.1)
            for weight in model.parameters():
                weight *= 6
            model.network.bias_ho.normal_(std=3, generator=torch.Generator().manual_seed(0))
            if run.vocabulary.eos is not None:
                model.network.bias_ho[run.vocabulary.eos] = model.network.bias_ho.max() - 1
        save_weights(run.path / WEIGHTS, model, {})
    return home


@cache
def drawn(run: Path, length: int = 1500) -> bytes:
    """A text that a run's model draws."""
    opened = open_run(run)
    ids = opened.model().sample(1, length=length, generator=torch.Generator().manual_seed(0))[0]
    ids = ids[ids != opened.vocabulary.unknown] if opened.vocabulary.unknown is not None else ids
    if opened.data.level == "byte":
        return ids.to(torch.uint8).numpy().tobytes()
    return opened.vocabulary.decode(ids).encode()


@pytest.mark.parametrize("level", LEVELS)
def test_a_text_with_things_that_the_model_cannot_express_comes_back_from_fewer_bytes(there_and_back, level, decided):
    odd = "\ufffd ß \t  two  spaces <unk> x<unk>y \u2028\r\nnever seen\r\n\n".encode() + b"\xff\xfe\x00 \xc3"
    text = drawn(decided / level)
    said = there_and_back(text + b"\n" + odd, "--run", decided / level, method="run")
    assert said["verified"]
    assert said["compressed_bytes"] < len(text) / 2


ADVERSARIAL = {
    "empty": b"",
    "one byte": b"a",
    "newline": b"\n",
    "all values": bytes(range(256)) * 3,
    "zeros": bytes(100_000),
    "noise": random.Random(0).randbytes(3000),
    "invalid": b"\xc3\x28" * 200 + b"log",
    "surrogates": "\udc80\ud800".encode("utf-8", "surrogatepass"),
}


@pytest.mark.parametrize("level", [None, "stream", "lines", "words"])
def test_any_file_comes_back_and_grows_little(there_and_back, level, decided, monkeypatch):
    monkeypatch.undo()  # lzma has its say
    for data in ADVERSARIAL.values():
        said = there_and_back(data, *(() if level is None else ("--run", decided / level)))
        assert said["compressed_bytes"] < len(data) + 200


def test_a_text_is_learnt_as_it_is_read(there_and_back, text_file):
    there_and_back(text_file.read_bytes() * 2, method="adaptive")


def test_the_file_is_called_as_it_was(decided, ok, tmp_path, monkeypatch):
    monkeypatch.setattr(STREAM, 4096)  # as is: a single stream
    monkeypatch.chdir(tmp_path)
    Path("a").mkdir()
    data = drawn(decided / "stream", 300)
    Path("a/café.txt").write_bytes(data)
    outcome = ok("compress", "a/café.txt", "--run", decided / "stream")
    assert "bits a character" in outcome.out
    assert "read back and compared" in outcome.out
    ok("decompress", "a/café.txt.chain", "--run", decided / "stream")
    assert Path("café.txt").read_bytes() == data


def test_a_folder_comes_back(decided, ok, tmp_path):
    folder, texts = tmp_path / "texts", drawn(decided / "stream")
    (folder / "deep").mkdir(parents=True)
    contents = {"b.txt": texts[:1000], "deep/a.txt": texts[1000:], "empty": b""}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    ok("compress", folder, "--run", decided / "stream")
    back = tmp_path / "back"
    ok("decompress", f"{folder}.chain", "--run", decided / "stream", "--out", back)
    assert {
        path.relative_to(back).as_posix(): path.read_bytes() for path in back.rglob("*") if path.is_file()
    } == contents


def test_the_folder_that_one_is_in_has_a_name_too(ok, refused, monkeypatch, tmp_path):
    inside = tmp_path / "files" / "deep"
    inside.mkdir(parents=True)
    (inside / "one").write_bytes(b"1")
    monkeypatch.chdir(inside)
    for path in (".", ".."):
        ok("compress", path)
    assert sorted(path.name for path in tmp_path.rglob("*.chain")) == ["deep.chain", "files.chain"]
    assert read_container((tmp_path / "files.chain").read_bytes()).header["folder"] == "files"
    assert "got the root" in refused("compress", "/")


def test_empty_folders_in_a_folder_come_back(ok, tmp_path):
    folder, back = tmp_path / "files", tmp_path / "back"
    (folder / "a" / "empty").mkdir(parents=True)
    (folder / "b").mkdir()
    (folder / "a" / "one").write_bytes(b"1")
    ok("compress", folder)
    ok("decompress", f"{folder}.chain", "--out", back)
    names = [sorted(path.relative_to(home).as_posix() for path in home.rglob("*")) for home in (folder, back)]
    assert names[0] == names[1] == ["a", "a/empty", "a/one", "b"]


@pytest.fixture(scope="session")
def packed(decided, tmp_path_factory):
    """A text, compressed in several parts by the first test that wants it; not to be written to."""
    home = tmp_path_factory.mktemp("packed")

    def pack():
        if not (home / "text.chain").exists():
            (home / "text").write_bytes(drawn(decided / "stream"))
            assert main(["compress", str(home / "text"), "--run", str(decided / "stream")]) == 0
        return home

    return pack


@pytest.fixture
def chain(packed, tmp_path, monkeypatch):
    """A compressed text of several parts, and the text."""
    monkeypatch.setattr(PART, SHORT_PART)
    shutil.copytree(packed(), tmp_path, dirs_exist_ok=True)
    return tmp_path / "text.chain", (tmp_path / "text").read_bytes()


def test_damage_is_placed_and_the_rest_is_saved(chain, decided, ok, refused, tmp_path):
    file, data = chain
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    last = len(read_container(bytes(content)).parts) - 1
    file.write_bytes(content)
    out = tmp_path / "out"
    line = refused("decompress", file, "--run", decided / "stream", "--out", out)
    assert f"part {last} of {last} is damaged: salvage the rest by `chainrule decompress --salvage`" in line
    assert not out.exists()
    outcome = ok("decompress", file, "--run", decided / "stream", "--out", out, "--salvage", "--json")
    assert json.loads(outcome.out)["damaged_parts"] == [last]
    saved = out.read_bytes()
    assert len(data) / 3 < len(saved) < len(data)
    assert data.startswith(saved)


def test_a_cut_file_is_refused_and_leaves_nothing(chain, decided, refused, tmp_path):
    file, _ = chain
    whole = file.read_bytes()
    for size in (0, 5, 30, len(whole) - 1):
        file.write_bytes(whole[:size])
        refused("decompress", file, "--run", decided / "stream", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_run_and_none_are_refused(chain, decided, refused, tmp_path):
    file, _ = chain
    out = tmp_path / "out"
    assert "pass it with --run" in refused("decompress", file, "--out", out)
    assert "not the model that compressed" in refused("decompress", file, "--run", decided / "bytes", "--out", out)


def test_another_machine_is_refused(chain, decided, refused, tmp_path):
    file, _ = chain
    found = read_container(file.read_bytes())
    for field, value in {"machine": "torch 1.0, SPARC", "arithmetic": "00000000"}.items():
        file.write_bytes(write_container(found.header | {field: value}, found.parts))
        line = refused("decompress", file, "--run", decided / "stream", "--out", tmp_path / "out")
        assert "rounds differently" in line


def test_a_header_that_claims_too_much_is_refused_soon_though_its_checksum_fits(
    chain, decided, refused, monkeypatch, tmp_path
):
    file, _ = chain
    found = read_container(file.read_bytes())
    longer = {name: 80 * number for name, number in found.header["layout"].items()}
    monkeypatch.setattr(PART, 80 * SHORT_PART)  # as many parts
    for claim, line in (({"threads": 17}, "invalid threads"), ({"layout": longer}, "they end before their symbols")):
        file.write_bytes(write_container(found.header | claim, found.parts))
        assert line in refused("decompress", file, "--run", decided / "stream", "--out", tmp_path / "out")


def test_a_wrong_checksum_of_the_whole_is_refused(chain, decided, refused, tmp_path):
    file, _ = chain
    found = read_container(file.read_bytes())
    file.write_bytes(write_container(found.header | {"sha256": "0" * 64}, found.parts))
    assert "SHA-256" in refused("decompress", file, "--run", decided / "stream", "--out", tmp_path / "out")


def test_nothing_is_overwritten(chain, decided, refused, tmp_path):
    file, _ = chain
    assert "already exists" in refused("compress", tmp_path / "text", "--run", decided / "stream")
    assert "already exists" in refused("decompress", file, "--run", decided / "stream", "--out", tmp_path / "text")


def test_names_that_lead_elsewhere_are_refused(chain, decided, refused, monkeypatch, tmp_path):
    file, _ = chain
    monkeypatch.chdir(tmp_path)
    found = read_container(file.read_bytes())
    for names in ({"files": [["../up", 1]]}, {"files": [["/root", 1]]}, {"folder": "f", "files": [["a/../../b", 1]]}):
        file.write_bytes(write_container(found.header | names, found.parts))
        assert "below one folder" in refused("decompress", file, "--run", decided / "stream")


def test_no_name_in_an_archive_leads_out_of_the_folder_that_the_user_names(refused, monkeypatch, tmp_path):
    """The names were checked without --out alone: with it, a file of a stranger wrote wherever it liked."""
    home = tmp_path / "home" / "deep"
    home.mkdir(parents=True)
    monkeypatch.chdir(home)
    plain = {"sha256": hashlib.sha256(b"x").hexdigest(), "method": "stored"}
    elsewhere = ("../../up", str(tmp_path / "root"), "a\\b")
    for names in (*({"files": [[name, 1]]} for name in elsewhere), *({"folders": [name]} for name in elsewhere)):
        header = plain | {"folder": "f", "files": [["a", 1]]} | names
        Path("bad.chain").write_bytes(write_container(header, [b"x"]))
        assert "below one folder" in refused("decompress", "bad.chain", "--out", "out")
        with pytest.raises(ValueError, match="below one folder"):
            write_bundle(home / "out", Bundle(b"x", header))
    Path("bad.chain").write_bytes(write_container(plain | {"folder": "link/f", "files": [["a", 1]]}, [b"x"]))
    assert "got a path" in refused("decompress", "bad.chain")
    Path("bad.chain").write_bytes(write_container(plain, [b"x"]))
    assert "invalid files" in refused("decompress", "bad.chain")
    for folders in ("d", [1]):
        header = plain | {"folder": "f", "files": [["a", 1]], "folders": folders}
        Path("bad.chain").write_bytes(write_container(header, [b"x"]))
        assert "invalid folders" in refused("decompress", "bad.chain")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["bad.chain", "deep", "home"]


def test_a_name_that_decompress_refuses_is_refused_by_compress(refused, tmp_path):
    (tmp_path / "a\\b").mkdir()
    (tmp_path / "a\\b" / "c.txt").write_bytes(b"c")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "e\\f.txt").write_bytes(b"e")
    for path in ("a\\b", "d", "d/e\\f.txt"):
        assert "expected a name without a backslash" in refused("compress", tmp_path / path)
    assert not list(tmp_path.rglob("*.chain"))


def test_a_missing_file_and_another_kind_of_file_are_named(refused, tmp_path):
    assert "no such file" in refused("compress", tmp_path / "none").lower()
    (tmp_path / "zip").write_bytes(b"PK\x03\x04")
    assert "expected a .chain file" in refused("decompress", tmp_path / "zip")
    (tmp_path / "empty").mkdir()
    assert "empty" in refused("compress", tmp_path / "empty")


def test_a_model_that_computes_otherwise_the_second_time_is_caught_before_anything_is_written(
    decided, refused, tmp_path, monkeypatch
):
    from chainrule_app.tasks import compression

    (tmp_path / "text").write_bytes(drawn(decided / "stream"))
    read = compression.read_batches
    monkeypatch.setattr(compression, "read_batches", lambda *rest: [1 + part.clamp(max=3) for part in read(*rest)])
    assert "the decoded data differ" in refused("compress", tmp_path / "text", "--run", decided / "stream")
    assert not (tmp_path / "text.chain").exists()


def test_runs_of_labels_have_no_such_verb():
    assert {"compress", "decompress"} <= set(verbs_of(task_class("text")))
    assert not {"compress", "decompress"} & set(verbs_of(task_class("tag")))
