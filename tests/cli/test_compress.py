"""`chainrule compress` and `chainrule decompress`: every file comes back, or nothing is written."""

import hashlib
import random
import shutil
from functools import cache
from pathlib import Path

import pytest
import torch

from chainrule.training import save_weights
from chainrule_app.cli.main import main, verbs_of
from chainrule_app.tasks import open_run, task_class
from chainrule_app.tasks.container import read_container, write_container
from chainrule_app.tasks.run_directory import WEIGHTS

STREAM = "chainrule_app.tasks.text.compression.SYMBOLS_OF_A_STREAM"
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
    said = there_and_back(text + b"\n" + odd, decided / level, method="run")
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


@pytest.mark.parametrize("level", ["stream", "lines", "words"])
def test_any_file_comes_back_and_grows_little(there_and_back, level, decided, monkeypatch):
    monkeypatch.undo()  # lzma has its say
    for data in ADVERSARIAL.values():
        said = there_and_back(data, decided / level)
        assert said["compressed_bytes"] < len(data) + 200


def test_the_file_is_called_as_it_was(decided, ok, tmp_path, monkeypatch):
    monkeypatch.setattr(STREAM, 4096)  # as is: a single stream
    monkeypatch.chdir(tmp_path)
    Path("a").mkdir()
    data = drawn(decided / "stream", 300)
    Path("a/café.txt").write_bytes(data)
    outcome = ok("compress", decided / "stream", "a/café.txt")
    assert "bits a character" in outcome.out
    assert "read back and compared" in outcome.out
    ok("decompress", decided / "stream", "a/café.txt.chain")
    assert Path("café.txt").read_bytes() == data


@pytest.fixture(scope="session")
def packed(decided, tmp_path_factory):
    """A text, compressed by the first test that wants it; not to be written to."""
    home = tmp_path_factory.mktemp("packed")

    def pack():
        if not (home / "text.chain").exists():
            (home / "text").write_bytes(drawn(decided / "stream"))
            assert main(["compress", str(decided / "stream"), str(home / "text")]) == 0
        return home

    return pack


@pytest.fixture
def chain(packed, tmp_path):
    """A compressed text, and the text."""
    shutil.copytree(packed(), tmp_path, dirs_exist_ok=True)
    return tmp_path / "text.chain", (tmp_path / "text").read_bytes()


def test_a_changed_byte_is_refused_and_leaves_nothing(chain, decided, refused, tmp_path):
    file, _ = chain
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(content)
    line = refused("decompress", decided / "stream", file, "--out", tmp_path / "out")
    assert "its data are damaged: restore the file from a copy" in line
    assert not (tmp_path / "out").exists()


def test_a_cut_file_is_refused_and_leaves_nothing(chain, decided, refused, tmp_path):
    file, _ = chain
    whole = file.read_bytes()
    for size in (0, 5, 30, len(whole) - 1):
        file.write_bytes(whole[:size])
        refused("decompress", decided / "stream", file, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_run_is_refused(chain, decided, refused, tmp_path):
    file, _ = chain
    out = tmp_path / "out"
    assert "not the model that compressed" in refused("decompress", decided / "bytes", file, "--out", out)


def test_another_machine_is_refused(chain, decided, refused, tmp_path):
    file, _ = chain
    found = read_container(file.read_bytes())
    for field, value in {"machine": "torch 1.0, SPARC", "arithmetic": "00000000"}.items():
        file.write_bytes(write_container(found.header | {field: value}, found.parts))
        line = refused("decompress", decided / "stream", file, "--out", tmp_path / "out")
        assert "rounds differently" in line


def test_a_header_that_claims_too_much_is_refused_soon_though_its_checksum_fits(chain, decided, refused, tmp_path):
    file, _ = chain
    found = read_container(file.read_bytes())
    longer = {name: 80 * number for name, number in found.header["layout"].items()}
    for claim, line in (({"threads": 17}, "invalid threads"), ({"layout": longer}, "they end before their symbols")):
        file.write_bytes(write_container(found.header | claim, found.parts))
        assert line in refused("decompress", decided / "stream", file, "--out", tmp_path / "out")


def test_a_wrong_checksum_of_the_whole_is_refused(chain, decided, refused, tmp_path):
    file, _ = chain
    found = read_container(file.read_bytes())
    file.write_bytes(write_container(found.header | {"sha256": "0" * 64}, found.parts))
    assert "SHA-256" in refused("decompress", decided / "stream", file, "--out", tmp_path / "out")


def test_nothing_is_overwritten(chain, decided, refused, tmp_path):
    file, _ = chain
    assert "already exists" in refused("compress", decided / "stream", tmp_path / "text")
    assert "already exists" in refused("decompress", decided / "stream", file, "--out", tmp_path / "text")


@pytest.mark.parametrize("name", ["../up", "/root", "a/b", "a\\b", "", "..", 1])
def test_names_that_lead_elsewhere_are_refused(decided, refused, monkeypatch, tmp_path, name):
    """With --out alone the names were not checked, and a file of a stranger wrote wherever it liked."""
    monkeypatch.chdir(tmp_path)
    header = {"sha256": hashlib.sha256(b"x").hexdigest(), "method": "stored", "size": 1, "name": name}
    Path("bad.chain").write_bytes(write_container(header, [b"x"]))
    for more in ((), ("--out", "out")):
        assert "invalid name" in refused("decompress", decided / "stream", "bad.chain", *more)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.chain"]


def test_a_name_that_decompress_refuses_is_refused_by_compress(decided, refused, tmp_path):
    (tmp_path / "a\\b").write_bytes(b"c")
    assert "a backslash" in refused("compress", decided / "stream", tmp_path / "a\\b")
    assert not list(tmp_path.rglob("*.chain"))


def test_a_missing_file_and_another_kind_of_file_are_named(decided, refused, tmp_path):
    assert "no such file" in refused("compress", decided / "stream", tmp_path / "none").lower()
    (tmp_path / "zip").write_bytes(b"PK\x03\x04")
    assert "expected a .chain file" in refused("decompress", decided / "stream", tmp_path / "zip")
    (tmp_path / "folder").mkdir()
    assert "expected a file, got a folder" in refused("compress", decided / "stream", tmp_path / "folder")


def test_a_model_that_computes_otherwise_the_second_time_is_caught_before_anything_is_written(
    decided, refused, tmp_path, monkeypatch
):
    from chainrule.coding import RowLayout

    (tmp_path / "text").write_bytes(drawn(decided / "stream"))
    decode = RowLayout.decode
    monkeypatch.setattr(RowLayout, "decode", lambda *rest: [1 + part.clamp(max=3) for part in decode(*rest)])
    assert "the decoded data differ" in refused("compress", decided / "stream", tmp_path / "text")
    assert not (tmp_path / "text.chain").exists()


def test_runs_of_labels_have_no_such_verb():
    assert {"compress", "decompress"} <= set(verbs_of(task_class("text")))
    assert not {"compress", "decompress"} & {*verbs_of(task_class("tag")), *verbs_of(task_class("sound"))}
