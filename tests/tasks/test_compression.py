"""Files that a model cannot bring back are refused, and headers that ask for too much are damage."""

import io
import json
import lzma
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from chainrule.coding import DamagedError
from chainrule.data import CharVocabulary
from chainrule.models import RecurrentLM
from chainrule_app.readers.images.source import Reduction
from chainrule_app.tasks import compression
from chainrule_app.tasks.compression import compress_data, decompress_data
from chainrule_app.tasks.container import read_container, unpacked, write_container
from chainrule_app.tasks.image.compression import ImageCodec
from chainrule_app.tasks.text.compression import TextCodec

PIXELS = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)


def images():
    return ImageCodec((3, 2, 2), Reduction(256), labelled=False)


def image(kind="PNG", pixels=PIXELS, **options):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def turned(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def test_what_pixels_do_not_hold_is_not_lost():
    for more in ({"transparency": (0, 1, 2)}, {"exif": turned(6)}):
        with pytest.raises(ValueError, match="without transparency or an EXIF rotation"):
            images().express(image(**more))
    assert images().express(image(exif=turned(1))).layout["count"] == 1
    with pytest.raises(ValueError, match="got mode RGBA"):
        images().express(image(pixels=np.zeros((2, 2, 4), np.uint8)))


def chunk(name, content):
    return len(content).to_bytes(4, "big") + name + content + zlib.crc32(name + content).to_bytes(4, "big")


@pytest.mark.parametrize("kind", ["PNG", "BMP"])
def test_a_small_file_of_a_huge_image_is_refused_in_one_line(kind):
    if kind == "PNG":
        size = struct.pack(">II", 20_000, 20_000)
        content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size + b"\x08\2\0\0\0") + chunk(b"IEND", b"")
    else:
        content = b"BM" + struct.pack("<IIIIiiHHIIiiII", 54, 0, 54, 40, 20_000, 20_000, 1, 24, 0, 0, 0, 0, 0, 0)
    with pytest.raises(ValueError, match="expected a lossless image format"):
        images().express(content)


def test_an_array_without_images_is_refused():
    file = io.BytesIO()
    np.save(file, np.zeros((0, 2, 2, 3), np.uint8))
    with pytest.raises(ValueError, match="expected whole images"):
        images().express(file.getvalue())


def test_no_more_is_unpacked_than_was_announced():
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1}]
    raw, alone = (
        lzma.compress(bytes(5000), lzma.FORMAT_RAW, filters=filters),
        lzma.compress(bytes(5000), lzma.FORMAT_ALONE),
    )
    assert unpacked(raw, 5000, filters) == unpacked(alone, 5000) == bytes(5000)
    for packed, own in ((raw, (filters,)), (alone, ())):
        with pytest.raises(ValueError, match="expected at most 4999 bytes"):
            unpacked(packed, 4999, *own)
        with pytest.raises(ValueError, match="or a part of a stream"):
            unpacked(packed[:-1], 5000, *own)
    window = bytes([alone[0]]) + (1 << 30).to_bytes(4, "little") + alone[5:]
    with pytest.raises(ValueError, match="Memory usage limit"):
        unpacked(window, 5000)


def test_a_file_that_unpacks_to_more_than_its_header_says_is_refused():
    data = compress_data(bytes(10**6), "a", None).data
    found = read_container(data)
    assert found.header["method"] == "lzma"
    assert decompress_data(found, "a", None) == bytes(10**6)
    found.header["size"] = 10
    with pytest.raises(DamagedError, match="expected at most 10 bytes"):
        decompress_data(found, "a", None)


class Run:
    """A run of a text model, without a folder."""

    name, path = "text", "run"

    def __init__(self):
        self._vocabulary = CharVocabulary("ab")
        torch.manual_seed(0)
        self._model = RecurrentLM(len(self._vocabulary), "gru", hidden_size=4)

    def model(self):
        return self._model

    def codec(self):
        return TextCodec(self._vocabulary, "stream", "character")


TEXT = b"abbbabaabbabzabababbabba" * 14


@pytest.fixture
def written(monkeypatch):
    """A container that a model wrote, and its run."""
    monkeypatch.setattr(compression, "_by_lzma", lambda data: data + b"x")
    run = Run()
    found = read_container(compress_data(TEXT, "a", run).data)
    assert found.header["method"] == "run"
    assert decompress_data(found, "a", run) == TEXT
    return found, run


def again(header, parts):
    return read_container(write_container(header, parts))


@pytest.mark.parametrize("extra", [{"unknown": "zz"}, {"unknown": "z" * 2_000_000}])
def test_a_list_of_unknown_characters_of_another_text_is_damage(written, extra, monkeypatch):
    found, run = written
    monkeypatch.setattr(compression, "_SIDE_BYTES", 1)
    side = lzma.compress(json.dumps(extra).encode(), lzma.FORMAT_ALONE, preset=0)
    with pytest.raises(DamagedError, match="its data do not match its header"):
        decompress_data(again(found.header, [side, *found.parts[1:]]), "a", run)


@pytest.mark.parametrize("wrong", [{"symbols": 10**12}, {"length": -1}, {"count": [[2**62]]}])
def test_a_layout_larger_than_the_files_is_not_laid_out(written, wrong, monkeypatch):
    found, run = written
    monkeypatch.setattr(TextCodec, "lay_out", None)
    header = found.header | {"layout": found.header["layout"] | wrong}
    with pytest.raises(DamagedError, match="its layout does not match its size"):
        decompress_data(again(header, found.parts), "a", run)
