"""Images through `chainrule compress --run` and back."""

import json

import numpy as np
import pytest
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
