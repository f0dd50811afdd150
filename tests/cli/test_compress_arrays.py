"""Images, tables and sounds through `chainrule compress --run` and back."""

import json
import math
import re
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from chainrule.coding._batches import write_batches
from chainrule.coding._container import read_container
from chainrule_app.tasks import open_run

pytestmark = pytest.mark.usefixtures("without_lzma")


@pytest.mark.parametrize("layout", ["grey", "channels first", "channels last", "idx"])
def test_images_in_an_array_come_back(there_and_back, layout, ok, tmp_path):
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
    ok("train", file, "--out", tmp_path / "run", *small)
    said = there_and_back(file.read_bytes(), "--run", tmp_path / "run", method="run")
    assert said["elements"] == images.size
    other = there_and_back(b"no images", "--run", tmp_path / "run")
    assert other["method"] != "run"


def test_a_folder_of_images_comes_back_pixel_for_pixel(command, ok, tmp_path):
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
    ok("train", folder, "--out", run, *small)
    outcome = ok("compress", folder, "--run", run)
    assert "decompression restores the pixels as PNG files" in outcome.out
    ok("decompress", f"{folder}.chain", "--run", run, "--out", back)
    for name, pixels in images.items():
        with Image.open(back / (name if name.endswith("png") else f"{name}.png")) as image:
            assert (np.asarray(image) == pixels).all()
    (folder / "notes.txt").write_text("no image")
    said = json.loads(command("compress", folder, "--run", run, "--out", tmp_path / "other", "--json").out)
    assert said["method"] != "run"


def test_a_table_comes_back_with_lines_that_are_no_rows(there_and_back, ok, tmp_path):
    random = np.random.default_rng(0)
    colours, counts = random.choice(["red", "blue", "dark green"], 300), random.geometric(0.1, 300)
    rows = [
        f"{colour},{count if count > 2 else ''},n{n},2024-0{n * 7 % 9 + 1}-{n * 5 % 19 + 10}"
        for n, (colour, count) in enumerate(zip(colours, counts, strict=True))
    ]
    file = tmp_path / "rows.csv"
    file.write_text("colour,count,name,day\n" + "".join(f"{row}\n" for row in rows))
    options = ("--steps", 2, "--hidden-size", 8, "--types", "name=skip", "--out", tmp_path / "run")
    ok("train", file, *options)
    run = ("--run", tmp_path / "run")
    said = there_and_back(file.read_bytes(), *run, method="run")
    assert said["elements"] == 300
    odd = ['"red",3,x', "red,3.0,x", "red,+3,x", " red,3,x", "pink,3,x", "red,3", "red,NA,x", "blue,90000,\u00e9"]
    odd = [*(f"{row},2024-01-01" for row in odd), "", "red,3,x,2031-12-31", "red,3,x,2024-1-1", "red,3,x,1.1.2024"]
    text = "\r\n".join(["colour,count,name,day", *rows[:100], *odd, *rows[100:]])
    assert there_and_back(text.encode() + b"\xff", *run, method="run")["elements"] == 301  # with the day of 2031


def test_real_numbers_are_coded_on_the_grid_of_their_decimals(there_and_back, ok, tmp_path):
    random, file = np.random.default_rng(0), tmp_path / "rows.csv"
    rows = [f"{round(a, 2)},{b:.3f},{c:.17g}" for a, b, c in random.normal(5, 2, (400, 3))]
    file.write_text("a,b,c\n" + "".join(f"{row}\n" for row in rows))
    options = ("--steps", 2, "--hidden-size", 8, "--types", "c=skip", "--out", tmp_path / "run")
    ok("train", file, *options)
    odd = ["1e3,0.5,1", "-99999.25,70.500,1", "nan,1.000,1", "-0.0,1.000,1", "1,2,3"]
    data = "\n".join(["a,b,c", *rows, *odd]).encode()
    said = there_and_back(data, "--run", tmp_path / "run", method="run")
    assert said["elements"] == 401  # of the odd ones, the second

    run = open_run(tmp_path / "run")
    model, expressed = run.model(), run.codec().express({"rows.csv": file.read_bytes()})
    coded = write_batches(run.codec().ready(model, expressed.layout), expressed.laid)
    density = -float(model.log_prob(expressed.laid.batches[0].x).detach().sum()) / math.log(2)
    bits = density + 400 * (2 + 3) * math.log2(10)
    assert bits < 8 * sum(map(len, coded)) < 1.005 * bits + 8 * 64


def test_a_column_without_a_grid_of_decimals_is_compressed_without_its_model(ok, tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("a,b\n" + "".join(f"{n % 3},{(n + 100) / 7!r}\n" for n in range(100)))
    ok("train", file, "--steps", 2, "--hidden-size", 8, "--out", tmp_path / "run")
    outcome = ok("compress", file, "--run", tmp_path / "run")
    assert "cannot express it" in outcome.out


@pytest.fixture(params=["labels", "no labels"])
def sounds(request, ok, tmp_path):
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
    ok("train", folder, *tiny, *options, "--out", tmp_path / "run")
    (folder / "notes.txt").write_text("how they were made")
    return folder, tmp_path / "run"


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_sounds_come_back_from_levels_and_what_is_finer(sounds, ok, tmp_path):
    folder, run = sounds
    outcome = ok("compress", folder, "--run", run)
    assert "bits per sample are finer than the model's levels" in outcome.out
    ok("decompress", f"{folder}.chain", "--run", run, "--out", tmp_path / "back")
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
    finer = re.search(r"([\d.]+) bits per sample are finer", outcome.out)
    assert float(finer[1]) == pytest.approx(even, rel=0.02)
    assert expressed.elements == sum(map(len, sounds)) + 20  # of 8 bits, none of which is finer


def read_sounds(folder):
    """The amplitudes of the files of one channel and 16 bits."""
    for path in folder.rglob("*.wav"):
        with wave.open(str(path)) as file:
            if (file.getsampwidth(), file.getnchannels()) == (2, 1):
                yield np.frombuffer(file.readframes(-1), "<i2") / 32768


def test_what_is_left_of_damaged_sounds_has_their_lengths(sounds, ok, tmp_path):
    folder, run = sounds
    ok("compress", folder, "--run", run)
    chain = Path(f"{folder}.chain")
    whole = chain.read_bytes()
    for place in (-3, -len(read_container(whole).parts[1]) - 40):  # in the levels, and beside them
        damaged = bytearray(whole)
        damaged[place] ^= 1
        chain.write_bytes(damaged)
        back = tmp_path / f"back{place}"
        ok("decompress", chain, "--run", run, "--out", back, "--salvage")
        sizes = {name: len(content) for name, content in contents(folder).items()}
        assert {name: len(content) for name, content in contents(back).items()} == sizes
