"""Images through `chainrule compress` and back."""

import json

import numpy as np
import pytest
from by_day import by_day
from PIL import Image

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
    said = there_and_back(file.read_bytes(), tmp_path / "run", method="run")
    assert said["elements"] == images.size
    other = there_and_back(b"no images", tmp_path / "run")
    assert other["method"] != "run"


@pytest.mark.parametrize("kind", by_day(["png", "bmp"], "png"))
def test_an_image_comes_back_pixel_for_pixel(ok, tmp_path, kind):
    folder, back = tmp_path / "images", tmp_path / "back"
    folder.mkdir()
    for n in range(12):
        pixels = np.random.default_rng(n).integers(0, 2, (16, 16, 3)).astype(np.uint8) * 255
        Image.fromarray(pixels).save(folder / f"{n}.{kind}", compress_level=0)
    run = tmp_path / "run"
    small = ("--channels", 6, "--layers", 1, "--first-kernel-size", 3, "--steps", 30)
    ok("train", folder, "--out", run, *small)
    file = folder / f"11.{kind}"
    assert "decompression restores the pixels as a PNG file" in ok("compress", run, file).out
    ok("decompress", run, f"{file}.chain", "--out", back)
    with Image.open(back) as image:
        assert (np.asarray(image) == pixels).all()
    (tmp_path / "notes.txt").write_text("no image")
    assert json.loads(ok("compress", run, tmp_path / "notes.txt", "--json").out)["method"] != "run"
