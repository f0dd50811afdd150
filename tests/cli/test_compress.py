"""`chainrule compress` and `chainrule decompress`: every file comes back, or nothing is written."""

import json
import math
import random
import re
import wave
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from chainrule.cli.stages import verbs_of
from chainrule.coding.batches import write_batches
from chainrule.coding.container import read_container, write_container
from chainrule.tasks import open_run, task_class
from chainrule.tasks.run_directory import WEIGHTS
from chainrule.training.checkpoint import save_weights

pytestmark = pytest.mark.slow

LEVELS = ["stream", "lines", "words", "bytes"]


@pytest.fixture(scope="session")
def decided(tmp_path_factory, new_run, text_file):
    """Runs whose models are sure of themselves, so that what they draw is shorter with them than without."""
    home = tmp_path_factory.mktemp("decided")
    readings = {"stream": {}, "lines": {"reading": "lines"}, "words": {"level": "word"}, "bytes": {"level": "byte"}}
    for name, reading in readings.items():
        run = new_run(text_file, home / name, **reading)
        model = run.model()
        with torch.no_grad():
            for weight in model.parameters():
                weight *= 6
            model.bias_ho.normal_(std=3, generator=torch.Generator().manual_seed(0))
            if run.vocabulary.eos is not None:
                model.bias_ho[run.vocabulary.eos] = model.bias_ho.max() - 1
        save_weights(run.path / WEIGHTS, model, {})
    return home


@pytest.fixture(autouse=True)
def without_lzma(monkeypatch):
    """lzma gains nothing: models of no training are not put to shame by it on files of a few hundred bytes."""
    monkeypatch.setattr("chainrule.tasks.compression._by_lzma", lambda data: data + b"x")


@cache
def drawn(run: Path, length: int = 1500) -> bytes:
    """A text that a run's model draws."""
    opened = open_run(run)
    ids = opened.model().sample(1, length=length, generator=torch.Generator().manual_seed(0))[0]
    ids = ids[ids != opened.vocabulary.unknown] if opened.vocabulary.unknown is not None else ids
    if opened.data.level == "byte":
        return ids.to(torch.uint8).numpy().tobytes()
    return opened.vocabulary.decode(ids).encode()


def there_and_back(command, tmp_path, data, *options, method=None):
    """What `compress --json` says, after the same bytes came back."""
    file, chain, back = (tmp_path / name for name in ("file.txt", "file.chain", "back"))
    for old in (chain, back):
        old.unlink(missing_ok=True)
    file.write_bytes(data)
    outcome = command("compress", file, "--out", chain, "--json", *options)
    assert outcome.status == 0, outcome
    said = json.loads(outcome.out)
    assert said["compressed_bytes"] == chain.stat().st_size
    assert method is None or said["method"] == method
    outcome = command("decompress", chain, "--out", back, *(options if said["method"] == "run" else ()))
    assert outcome.status == 0, outcome
    assert back.read_bytes() == data
    return said


@pytest.mark.parametrize("level", LEVELS)
def test_a_text_comes_back_from_fewer_bytes(level, decided, command, tmp_path):
    data = drawn(decided / level)
    said = there_and_back(command, tmp_path, data, "--run", decided / level, method="run")
    assert said["verified"]
    assert said["compressed_bytes"] < len(data) / 2


@pytest.mark.parametrize("level", LEVELS)
def test_things_that_the_model_cannot_express_come_back_too(level, decided, command, tmp_path):
    odd = "\ufffd ß \t  two  spaces <unk> x<unk>y \u2028\r\nnever seen\r\n\n".encode() + b"\xff\xfe\x00 \xc3"
    data = drawn(decided / level) + b"\n" + odd
    there_and_back(command, tmp_path, data, "--run", decided / level, method="run")


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
def test_any_file_comes_back_and_grows_little(level, decided, command, tmp_path, monkeypatch):
    monkeypatch.undo()  # lzma has its say
    for data in ADVERSARIAL.values():
        said = there_and_back(command, tmp_path, data, *(() if level is None else ("--run", decided / level)))
        assert said["compressed_bytes"] < len(data) + 200


def test_a_text_is_learnt_as_it_is_read(command, tmp_path, text_file):
    there_and_back(command, tmp_path, text_file.read_bytes() * 2, method="adaptive")


def test_the_file_is_called_as_it_was(decided, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a").mkdir()
    data = drawn(decided / "stream")
    Path("a/café.txt").write_bytes(data)
    outcome = command("compress", "a/café.txt", "--run", decided / "stream")
    assert outcome.status == 0, outcome
    assert "bits a character" in outcome.out
    assert "read back and compared" in outcome.out
    assert command("decompress", "a/café.txt.chain", "--run", decided / "stream").status == 0
    assert Path("café.txt").read_bytes() == data


def test_a_folder_comes_back(decided, command, tmp_path):
    folder, texts = tmp_path / "texts", drawn(decided / "stream")
    (folder / "deep").mkdir(parents=True)
    contents = {"b.txt": texts[:1000], "deep/a.txt": texts[1000:], "empty": b""}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    assert command("compress", folder, "--run", decided / "stream").status == 0
    back = tmp_path / "back"
    assert command("decompress", f"{folder}.chain", "--run", decided / "stream", "--out", back).status == 0
    assert {
        path.relative_to(back).as_posix(): path.read_bytes() for path in back.rglob("*") if path.is_file()
    } == contents


@pytest.fixture
def chain(decided, command, tmp_path, monkeypatch):
    """A compressed text of several parts, and the text."""
    monkeypatch.setattr("chainrule.tasks.text.compression.SYMBOLS_OF_A_STREAM", 500)
    monkeypatch.setattr("chainrule.tasks.text.compression.SYMBOLS_OF_A_PART", 500)
    data = drawn(decided / "stream")
    (tmp_path / "text").write_bytes(data)
    assert command("compress", tmp_path / "text", "--run", decided / "stream").status == 0
    return tmp_path / "text.chain", data


def test_damage_is_placed_and_the_rest_is_saved(chain, decided, command, refused, tmp_path):
    file, data = chain
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    last = len(read_container(bytes(content)).parts) - 1
    file.write_bytes(content)
    out = tmp_path / "out"
    line = refused("decompress", file, "--run", decided / "stream", "--out", out)
    assert f"part {last} of {last} is damaged: --salvage saves the rest" in line
    assert not out.exists()
    outcome = command("decompress", file, "--run", decided / "stream", "--out", out, "--salvage", "--json")
    assert outcome.status == 0, outcome
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
    assert "name it with --run" in refused("decompress", file, "--out", out)
    assert "another model" in refused("decompress", file, "--run", decided / "bytes", "--out", out)


def test_another_machine_is_refused(chain, decided, refused, tmp_path):
    file, _ = chain
    found = read_container(file.read_bytes())
    for field, value in {"machine": "torch 1.0, SPARC", "arithmetic": "00000000"}.items():
        file.write_bytes(write_container(found.header | {field: value}, found.parts))
        line = refused("decompress", file, "--run", decided / "stream", "--out", tmp_path / "out")
        assert "last bits" in line or "rounds otherwise" in line


def test_a_wrong_checksum_of_the_whole_is_refused(chain, decided, refused, tmp_path):
    file, _ = chain
    found = read_container(file.read_bytes())
    file.write_bytes(write_container(found.header | {"sha256": "0" * 64}, found.parts))
    assert "SHA-256" in refused("decompress", file, "--run", decided / "stream", "--out", tmp_path / "out")


def test_nothing_is_overwritten(chain, decided, refused, tmp_path):
    file, _ = chain
    assert "exists already" in refused("compress", tmp_path / "text", "--run", decided / "stream")
    assert "exists already" in refused("decompress", file, "--run", decided / "stream", "--out", tmp_path / "text")


def test_names_that_lead_elsewhere_are_refused(chain, decided, refused, monkeypatch, tmp_path):
    file, _ = chain
    monkeypatch.chdir(tmp_path)
    found = read_container(file.read_bytes())
    for names in ({"files": [["../up", 1]]}, {"files": [["/root", 1]]}, {"folder": "f", "files": [["a/../../b", 1]]}):
        file.write_bytes(write_container(found.header | names, found.parts))
        assert "below one folder" in refused("decompress", file, "--run", decided / "stream")


def test_a_missing_file_and_another_kind_of_file_are_named(refused, tmp_path):
    assert "no such file" in refused("compress", tmp_path / "none").lower()
    (tmp_path / "zip").write_bytes(b"PK\x03\x04")
    assert "expected a .chain file" in refused("decompress", tmp_path / "zip")
    (tmp_path / "empty").mkdir()
    assert "empty" in refused("compress", tmp_path / "empty")


def test_a_model_that_computes_otherwise_the_second_time_is_caught_before_anything_is_written(
    decided, refused, tmp_path, monkeypatch
):
    from chainrule.tasks import compression

    (tmp_path / "text").write_bytes(drawn(decided / "stream"))
    read = compression.read_batches
    monkeypatch.setattr(compression, "read_batches", lambda *rest: [1 + part.clamp(max=3) for part in read(*rest)])
    assert "not what was written" in refused("compress", tmp_path / "text", "--run", decided / "stream")
    assert not (tmp_path / "text.chain").exists()


@pytest.mark.parametrize("layout", ["grey", "channels first", "channels last", "idx"])
def test_images_in_an_array_come_back(layout, command, tmp_path):
    shape = {"grey": (30, 5, 4), "channels first": (20, 3, 5, 4), "channels last": (20, 5, 4, 3), "idx": (30, 5, 4)}[
        layout
    ]
    images = np.random.default_rng(0).integers(0, 4, shape).astype(np.uint8)
    file = tmp_path / ("x-idx3-ubyte" if layout == "idx" else "x.npy")
    if layout == "idx":
        file.write_bytes(b"\0\0\x08\x03" + np.array(shape, ">u4").tobytes() + images.tobytes())
    else:
        np.save(file, images)
    small = ("--channels", 6, "--layers", 1, "--first-kernel-size", 3, "--steps", 2)
    outcome = command("train", file, "--out", tmp_path / "run", *small)
    assert outcome.status == 0, outcome
    said = there_and_back(command, tmp_path, file.read_bytes(), "--run", tmp_path / "run", method="run")
    assert said["elements"] == images.size
    other = there_and_back(command, tmp_path, b"no images", "--run", tmp_path / "run")
    assert other["method"] != "run"


def test_a_folder_of_images_comes_back_pixel_for_pixel(command, tmp_path):
    folder, back = tmp_path / "images", tmp_path / "back"
    folder.mkdir()
    images = {
        f"{n}.{'png' if n % 3 else 'bmp'}": np.random.default_rng(n).integers(0, 256, (5, 4, 3)).astype(np.uint8)
        for n in range(12)
    }
    for name, pixels in images.items():
        Image.fromarray(pixels).save(folder / name)
    run = tmp_path / "run"
    small = ("--channels", 6, "--layers", 1, "--first-kernel-size", 3, "--steps", 2)
    assert command("train", folder, "--out", run, *small).status == 0
    outcome = command("compress", folder, "--run", run)
    assert outcome.status == 0, outcome
    assert "the pixels come back, as PNG" in outcome.out
    assert command("decompress", f"{folder}.chain", "--run", run, "--out", back).status == 0
    for name, pixels in images.items():
        with Image.open(back / (name if name.endswith("png") else f"{name}.png")) as image:
            assert (np.asarray(image) == pixels).all()
    (folder / "notes.txt").write_text("no image")
    said = json.loads(command("compress", folder, "--run", run, "--out", tmp_path / "other", "--json").out)
    assert said["method"] != "run"


def test_a_table_comes_back_with_lines_that_are_no_rows(command, tmp_path):
    random = np.random.default_rng(0)
    colours, counts = random.choice(["red", "blue", "dark green"], 300), random.geometric(0.1, 300)
    rows = [
        f"{colour},{count if count > 2 else ''},n{n}"
        for n, (colour, count) in enumerate(zip(colours, counts, strict=True))
    ]
    file = tmp_path / "rows.csv"
    file.write_text("colour,count,name\n" + "".join(f"{row}\n" for row in rows))
    options = ("--steps", 2, "--hidden-size", 8, "--types", "name=skip", "--out", tmp_path / "run")
    assert command("train", file, *options).status == 0
    run = ("--run", tmp_path / "run")
    said = there_and_back(command, tmp_path, file.read_bytes(), *run, method="run")
    assert said["elements"] == 300
    odd = ['"red",3,x', "red,3.0,x", "red,+3,x", " red,3,x", "pink,3,x", "red,3", "", "red,NA,x", "blue,90000,\u00e9"]
    text = "\r\n".join(["colour,count,name", *rows[:100], *odd, *rows[100:]])
    assert there_and_back(command, tmp_path, text.encode() + b"\xff", *run, method="run")["elements"] == 300


def test_real_numbers_are_coded_on_the_grid_of_their_decimals(command, tmp_path):
    random, file = np.random.default_rng(0), tmp_path / "rows.csv"
    rows = [f"{round(a, 2)},{b:.3f},{c:.17g}" for a, b, c in random.normal(5, 2, (400, 3))]
    file.write_text("a,b,c\n" + "".join(f"{row}\n" for row in rows))
    options = ("--steps", 2, "--hidden-size", 8, "--types", "c=skip", "--out", tmp_path / "run")
    assert command("train", file, *options).status == 0
    odd = ["1e3,0.5,1", "-99999.25,70.500,1", "nan,1.000,1", "-0.0,1.000,1", "1,2,3"]
    data = "\n".join(["a,b,c", *rows, *odd]).encode()
    said = there_and_back(command, tmp_path, data, "--run", tmp_path / "run", method="run")
    assert said["elements"] == 401  # of the odd ones, the second

    run = open_run(tmp_path / "run")
    model, expressed = run.model(), run.codec().express({"rows.csv": file.read_bytes()})
    coded = write_batches(run.codec().ready(model, expressed.layout), expressed.laid)
    density = -float(model.log_prob(expressed.laid.batches[0].x).detach().sum()) / math.log(2)
    bits = density + 400 * (2 + 3) * math.log2(10)
    assert bits < 8 * sum(map(len, coded)) < 1.005 * bits + 8 * 64


def test_a_column_without_a_grid_of_decimals_is_compressed_without_its_model(command, tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("a,b\n" + "".join(f"{n % 3},{(n + 100) / 7!r}\n" for n in range(100)))
    assert command("train", file, "--steps", 2, "--hidden-size", 8, "--out", tmp_path / "run").status == 0
    outcome = command("compress", file, "--run", tmp_path / "run")
    assert outcome.status == 0, outcome
    assert "cannot express it" in outcome.out


@pytest.fixture(params=["labels", "no labels"])
def sounds(request, command, tmp_path):
    """A folder of sounds, not all of which are like those of the run, and the run."""
    folder, random = tmp_path / "sounds", np.random.default_rng(0)
    for number, (label, width, channels) in enumerate(
        [("low", 2, 1)] * 4 + [("high", 2, 1)] * 4 + [("high", 1, 1), ("low", 2, 2)]
    ):
        (folder / label).mkdir(parents=True, exist_ok=True)
        with wave.open(str(folder / label / f"{number}.wav"), "wb") as file:
            file.setnchannels(channels)
            file.setsampwidth(width)
            file.setframerate(8000)
            quiet = random.normal(0, 300, 300 + 10 * number) if width == 2 else random.integers(0, 256, 20)
            file.writeframes(quiet.astype("<i2" if width == 2 else "u1").tobytes())
    tiny = ("--channels", 4, "--blocks", 1, "--layers-per-block", 2, "--skip-channels", 4, "--steps", 2)
    options = ("--labels", "folders" if request.param == "labels" else "none")
    assert command("train", folder, *tiny, *options, "--out", tmp_path / "run").status == 0
    (folder / "notes.txt").write_text("how they were made")
    return folder, tmp_path / "run"


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_sounds_come_back_from_levels_and_what_is_finer(sounds, command, tmp_path):
    folder, run = sounds
    outcome = command("compress", folder, "--run", run)
    assert outcome.status == 0, outcome
    assert "bits of each sample are finer than the levels of the model" in outcome.out
    assert command("decompress", f"{folder}.chain", "--run", run, "--out", tmp_path / "back").status == 0
    assert contents(tmp_path / "back") == contents(folder)

    opened = open_run(run)
    model, expressed = opened.model(), opened.codec().express(contents(folder))
    (batch,) = expressed.laid.batches
    log_prob = model.log_prob(batch.x, batch.context, torch.from_numpy(batch.lengths)).detach()
    bits = -float(log_prob.sum()) / math.log(2)
    assert bits < 8 * sum(map(len, write_batches(model, expressed.laid))) < 1.005 * bits + 8 * 64
    levels = opened.levels.encode(np.arange(-32768, 32768) / 32768)
    sounds = [opened.levels.encode(part) for part in read_sounds(folder)]
    even = sum(float(np.log2(np.bincount(levels)[part]).sum()) for part in sounds) / expressed.elements
    finer = re.search(r"([\d.]+) bits of each", outcome.out)
    assert float(finer[1]) == pytest.approx(even, rel=0.02)
    assert expressed.elements == sum(map(len, sounds)) + 20  # of 8 bits, none of which is finer


def read_sounds(folder):
    """The amplitudes of the files of one channel and 16 bits."""
    for path in folder.rglob("*.wav"):
        with wave.open(str(path)) as file:
            if (file.getsampwidth(), file.getnchannels()) == (2, 1):
                yield np.frombuffer(file.readframes(-1), "<i2") / 32768


def test_what_is_left_of_damaged_sounds_has_their_lengths(sounds, command, tmp_path):
    folder, run = sounds
    assert command("compress", folder, "--run", run).status == 0
    chain = Path(f"{folder}.chain")
    whole = chain.read_bytes()
    for place in (-3, -len(read_container(whole).parts[1]) - 40):  # in the levels, and beside them
        damaged = bytearray(whole)
        damaged[place] ^= 1
        chain.write_bytes(damaged)
        back = tmp_path / f"back{place}"
        outcome = command("decompress", chain, "--run", run, "--out", back, "--salvage")
        assert outcome.status == 0, outcome
        sizes = {name: len(content) for name, content in contents(folder).items()}
        assert {name: len(content) for name, content in contents(back).items()} == sizes


def test_runs_of_labels_have_no_such_verb():
    assert {"compress", "decompress"} <= set(verbs_of(task_class("text")))
    assert not {"compress", "decompress"} & set(verbs_of(task_class("tag")))
