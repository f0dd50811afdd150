"""Image files and archives that were made to do harm: start a program, take all memory, or never end."""

import ast
import gzip
import io
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import chainrule_app
from chainrule_app.readers import members as members
from chainrule_app.readers.images import folder, stacked
from chainrule_app.readers.images.folder import Reading
from chainrule_app.readers.images.prepare import open_source, prepare_images
from chainrule_app.readers.members import Members

POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 16 16\n%%EndComments\nshowpage\n%%EOF\n"


def npy(header: bytes, data: bytes = b"", version: bytes = b"\1\0", size: int | None = None) -> bytes:
    length = (len(header) if size is None else size).to_bytes(2 * version[0], "little")
    return b"\x93NUMPY" + version + length + header + data


def described(shape: str, order: bool = False) -> bytes:
    return b"{'descr': '|u1', 'fortran_order': %r, 'shape': %s}\n" % (order, shape.encode())


@pytest.mark.parametrize("name", ["0.png", "0.jpg", "0.tif"])
def test_postscript_in_an_image_file_starts_no_program(tmp_path, monkeypatch, name):
    """Pillow takes PostScript for an image whatever its name, and starts Ghostscript to draw it."""
    program, called = tmp_path / "bin" / "gs", tmp_path / "called"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {called}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / name).write_bytes(POSTSCRIPT)
    with pytest.raises(ValueError, match="not one of the formats"):
        open_source(folder)
    assert not called.exists()


def test_every_image_is_opened_with_a_list_of_formats():
    opened = []
    for path in Path(chainrule_app.__file__).parent.rglob("*.py"):
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if "Image.open" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Image.open":
                opened.append((path.name, [word.arg for word in node.keywords]))
    assert opened
    assert all("formats" in words for _, words in opened), opened


@pytest.mark.parametrize("suffix", ["PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM"])
def test_the_formats_of_the_manual_are_read(suffix):
    content = io.BytesIO()
    Image.new("L", (4, 3), 7).save(content, suffix)
    content.seek(0)
    assert Reading(colour="grey").image(content, "a")[0].shape == (1, 3, 4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy(b"{'descr': '|u1', 'shape': (12, 5, 6, \n", bytes(360)), "expected a NumPy array"),
        (npy(b"(" * 9000), "expected a NumPy array"),
        (npy(b"", version=b"\2\0", size=1 << 31), "a header of 2147483648 bytes"),
        (npy(described("(-12, 5, 6)"), bytes(360)), "an array of shape"),
        (npy(described(f"({10**30}, 5, 6)"), bytes(360)), "at most 16,777,216 images"),
        (npy(described("(2, 100000, 100000)"), bytes(360)), "at most 256 MiB"),
        (npy(described("(2, 5, 6)"), bytes(40)), "it ends within image 1 of 2"),
    ],
)  # fmt: skip
def test_an_array_that_announces_what_it_does_not_hold_is_refused(tmp_path, content, message):
    path = tmp_path / "images.npy"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(open_source(path).blocks())


def test_labels_are_read_only_as_far_as_they_are_announced(tmp_path):
    """The rest of a member that unpacks to gigabytes took as many gigabytes of memory."""
    path, read = tmp_path / "images.npz", []
    np.savez(path, images=np.zeros((2, 5, 6), np.uint8))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("labels.npy", npy(described("(2,)"), bytes(1 << 24)))

    def noted(self, size=-1, take=zipfile.ZipExtFile.read):
        read.append(size)
        return take(self, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zipfile.ZipExtFile, "read", noted)
        with pytest.raises(ValueError, match="holds more data after its 2 labels"):
            open_source(path)
    assert min(read) >= 0
    assert max(read) < 1 << 16


def test_a_fortran_array_is_copied_only_as_far_as_it_is_announced(tmp_path):
    path = tmp_path / "images.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images.npy", npy(described("(3, 5, 6)", order=True), bytes(range(90)) + bytes(1 << 20)))
    whole = np.arange(90, dtype=np.uint8).reshape((3, 5, 6), order="F")
    assert np.array_equal(np.concatenate(list(stacked.StackedImages(path, "images").blocks()))[:, 0], whole)


def tar_of(path: Path, kind: bytes, size: int) -> None:
    first, image = tarfile.TarInfo("long"), tarfile.TarInfo("0.png")
    first.type, first.size = kind, size
    record = f"{size} comment=".encode()
    content = (record + b"a" * (size - len(record) - 1) + b"\n") + bytes(-size % 512)
    path.write_bytes(gzip.compress(first.tobuf(tarfile.GNU_FORMAT) + content + image.tobuf() + bytes(1024)))


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_tar_header_that_extends_others_is_bounded(tmp_path, kind):
    """It is read into memory, and may say that it is of any size."""
    path = tmp_path / "images.tar.gz"
    tar_of(path, kind, 1 << 17)
    with pytest.raises(ValueError, match="a header of 131,072 bytes"):
        Members(path, (".png",), "image")
    tar_of(path, kind, 1 << 12)
    assert len(Members(path, ("",), "image").files) == 1


def test_an_archive_of_too_many_entries_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(members, "_MOST_ENTRIES", 2)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive, tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number in range(3):
            archive.writestr(f"{number}.txt", "")
            tar.addfile(tarfile.TarInfo(f"{number}.txt"))
    for name in ("a.zip", "a.tar"):
        with pytest.raises(ValueError, match="more than 2 entries"):
            Members(tmp_path / name, (".png",), "image")


def test_a_file_with_holes_in_an_archive_is_refused(tmp_path):
    """The map of its holes may be of any length, and was read into memory."""
    old, new = tarfile.TarInfo("0.png"), tarfile.TarInfo("0.png")
    old.type, new.size = tarfile.GNUTYPE_SPARSE, 1 << 20
    new.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"}
    for info, form in ((old, tarfile.GNU_FORMAT), (new, tarfile.PAX_FORMAT)):
        (tmp_path / "a.tar").write_bytes(info.tobuf(form) + b"1000000\n" + b"1\n" * (1 << 19) + bytes(1024))
        with pytest.raises(ValueError, match="a sparse file"):
            Members(tmp_path / "a.tar", (".png",), "image")


def test_too_many_arrays_are_refused(tmp_path):
    """The list of the archive was read again for each of them."""
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for number in range(1025):
            archive.writestr(f"{number}.npy", b"")
    with pytest.raises(ValueError, match="at most 1,024 arrays, got 1,025"):
        open_source(tmp_path / "a.npz")


def test_an_image_of_too_many_pixels_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "_MOST_PIXELS", 100)
    content = io.BytesIO()
    Image.new("1", (11, 10)).save(content, "PNG")
    content.seek(0)
    with pytest.raises(ValueError, match="110 pixels, more than 100"):
        Reading(size=(2, 2)).image(content, "a.png")


def test_images_too_large_for_a_model_are_refused(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", images=np.zeros((2, 2049, 2048), np.uint8))
    with pytest.raises(ValueError, match="at most 4,194,304 values, got 2049×2048 pixels, grey: scale them"):
        prepare_images(tmp_path / "a.npz", tmp_path / "data")


def test_pipes_are_refused_in_place_of_images(tmp_path):
    """Opening one waits for a writer for ever."""
    for name in ("a.png", "a.npz", "a.zip", "a.tar.gz", "a-images-idx3-ubyte"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(ValueError, match="device or pipe"):
            open_source(tmp_path / name)


def test_an_image_of_sixteen_bits_is_rounded_as_before():
    values = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)
    content = io.BytesIO()
    Image.fromarray(values).save(content, "PNG")
    content.seek(0)
    pixels, _ = Reading().image(content, "a.png")
    assert np.array_equal(pixels[0], (values.astype(np.int64) + 128) // 257)
