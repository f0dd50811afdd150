"""Images from every kind of place, and every way in which they can be wrong."""

import gzip
import io
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from chainrule_app.readers.images.folder import Reading
from chainrule_app.readers.images.prepare import open_source, source_fingerprint
from chainrule_app.readers.sources import is_images

PIXELS = np.random.default_rng(0).integers(0, 256, (7, 5, 6), dtype=np.uint8)


def everything(source):
    return np.concatenate(list(source.blocks()))


def idx(array):
    sizes = b"".join(int(size).to_bytes(4, "big") for size in array.shape)
    return b"\0\0\x08" + bytes([array.ndim]) + sizes + array.astype(np.uint8).tobytes()


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "images"
    for place, pixels in enumerate(PIXELS):
        file = root / ("cat" if place % 2 else "dog") / f"{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    return root


def test_a_folder_in_the_order_of_names_labelled_by_its_sub_folders(folder):
    (folder / "dog" / "notes.txt").write_text("no image")
    source = open_source(folder)
    assert (source.count, source.shape, source.levels, source.kind) == (7, (1, 5, 6), 256, "folder")
    order = [1, 3, 5, 0, 2, 4, 6]
    assert np.array_equal(everything(source)[:, 0], PIXELS[order])
    assert source.labels.names == ("cat", "dog")
    assert source.labels.numbers.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert source.called(3) == "dog/0.png"
    assert open_source(folder, labelled=False).labels is None


def test_the_fingerprint_of_a_folder_is_that_of_names_and_bytes(folder):
    before = open_source(folder).fingerprint()
    assert open_source(folder).fingerprint() == before
    (folder / "cat" / "1.png").rename(folder / "cat" / "9.png")
    assert open_source(folder).fingerprint()["sha256"] != before["sha256"]


def test_colours_come_channel_first(tmp_path):
    colours = np.random.default_rng(1).integers(0, 256, (2, 4, 5, 3), dtype=np.uint8)
    for place, pixels in enumerate(colours):
        Image.fromarray(pixels).save(tmp_path / f"{place}.png")
    np.savez(tmp_path / "last.npz", images=colours)
    np.savez(tmp_path / "first.npz", images=colours.transpose(0, 3, 1, 2))
    for path in (tmp_path, tmp_path / "last.npz", tmp_path / "first.npz"):
        source = open_source(path)
        assert source.shape == (3, 4, 5)
        assert np.array_equal(everything(source), colours.transpose(0, 3, 1, 2))


def test_black_and_white_has_two_levels(tmp_path):
    for place in range(2):
        Image.fromarray(PIXELS[place] > 127).save(tmp_path / f"{place}.png")
    source = open_source(tmp_path)
    assert source.levels == 2
    assert np.array_equal(everything(source)[:, 0], PIXELS[:2] > 127)
    alike = open_source(tmp_path, black_and_white=256)  # as images of 256 levels that they are held against
    assert alike.levels == 256
    assert np.array_equal(everything(alike)[:, 0], 255 * (PIXELS[:2] > 127))


def test_images_are_cut_scaled_and_converted_where_that_is_asked_for(tmp_path):
    Image.fromarray(np.full((8, 16), 200, np.uint8)).save(tmp_path / "a.png")
    Image.fromarray(np.full((9, 9, 3), 100, np.uint8)).save(tmp_path / "b.jpg")
    source = open_source(tmp_path, reading=Reading((4, 5), "grey"))
    assert source.shape == (1, 4, 5)
    assert everything(source)[:, 0, 0, 0].tolist() == [200, 100]
    assert open_source(tmp_path, reading=Reading((4, 5), "rgb")).shape == (3, 4, 5)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_files_find_their_labels_beside_them(tmp_path, suffix):
    open_it = gzip.open if suffix else open
    with open_it(tmp_path / f"train-images-idx3-ubyte{suffix}", "wb") as file:
        file.write(idx(PIXELS))
    assert open_source(tmp_path / f"train-images-idx3-ubyte{suffix}").labels is None
    with open(tmp_path / "train-labels-idx1-ubyte", "wb") as file:
        file.write(idx(np.array([7, 1, 7, 1, 1, 1, 0])))
    source = open_source(tmp_path / f"train-images-idx3-ubyte{suffix}")
    assert np.array_equal(everything(source)[:, 0], PIXELS)
    assert source.labels.names == ("0", "1", "7")
    assert source.labels.numbers.tolist() == [2, 1, 2, 1, 1, 1, 0]
    assert source.fingerprint()["bytes"] > 0


def test_an_archive_finds_its_array_and_labels(tmp_path):
    np.savez(tmp_path / "x.npz", x_train=PIXELS, y_train=np.arange(7), x_test=PIXELS[:2], y_test=np.zeros(2, int))
    source = open_source(tmp_path / "x.npz")
    assert (source.name, source.count, source.labels.names) == ("x.npz:x_train", 7, tuple("0123456"))
    assert open_source(f"{tmp_path}/x.npz:x_test").count == 2
    np.savez_compressed(tmp_path / "parts.npz", train=PIXELS.reshape(7, -1)[:, :25] % 2, valid=np.zeros((3, 25)))
    source = open_source(tmp_path / "parts.npz")
    assert (source.shape, source.levels) == ((1, 5, 5), 2)
    assert open_source(source.held_out).count == 3


@pytest.mark.parametrize("kind", [np.float64, np.int32, np.uint8, bool])
def test_whole_numbers_of_any_type_are_pixels(tmp_path, kind):
    array = (PIXELS % (2 if kind is bool else 17)).astype(kind)
    np.save(tmp_path / "x.npy", array)
    source = open_source(tmp_path / "x.npy")
    assert source.levels == (2 if kind is bool else 17)
    assert np.array_equal(everything(source)[:, 0], array)


def test_the_order_of_an_array_does_not_matter(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", images=np.asfortranarray(PIXELS))
    source = open_source(tmp_path / "x.npz")
    assert np.array_equal(everything(source)[:, 0], PIXELS)
    assert np.array_equal(everything(source)[:, 0], PIXELS)


def test_what_images_are_is_seen_by_the_name(folder, tmp_path):
    assert is_images(folder)
    assert is_images("x.npz:train")
    assert not is_images(tmp_path / "rows.csv")
    (tmp_path / "sounds").mkdir()
    assert not is_images(tmp_path / "sounds")


def refusal(path, **options):
    with pytest.raises(ValueError) as caught:
        everything(open_source(path, **options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_corrupt_image_in_the_middle_is_named_and_skipped_only_if_asked(folder):
    broken = folder / "cat" / "3.png"
    broken.write_bytes(broken.read_bytes()[:60])
    message = refusal(folder)
    assert str(broken) in message
    assert "skip_bad" in message
    source = open_source(folder, skip_bad=True)
    assert (source.count, source.skipped) == (6, ("cat/3.png",))
    assert np.array_equal(everything(source)[:, 0], PIXELS[[1, 5, 0, 2, 4, 6]])
    assert source.labels.numbers.tolist() == [0, 0, 1, 1, 1, 1]
    broken.write_text("no image at all")
    assert "not one of the formats PNG, JPEG, BMP, GIF, WEBP, TIFF, PPM" in refusal(folder)


def test_mixed_sizes_and_modes_are_named(folder):
    Image.fromarray(PIXELS[0][:4]).save(folder / "dog" / "9.png")
    message = refusal(folder)
    assert str(folder / "dog" / "9.png") in message
    assert "4×6 pixels" in message
    assert 'size="5x6"' in message
    Image.fromarray(np.zeros((5, 6, 3), np.uint8)).save(folder / "dog" / "9.png")
    assert 'expected one mode: convert them (in training, colour="grey" or' in refusal(folder, skip_bad=True)
    Image.fromarray(np.zeros((5, 6, 4), np.uint8)).save(folder / "cat" / "0.png")
    assert "colours and transparency" in refusal(folder)


def test_labels_that_are_half_there_are_named(folder):
    (folder / "dog" / "0.png").rename(folder / "0.png")
    assert str(folder / "0.png") in refusal(folder)
    assert "labels=False" in refusal(folder)
    assert open_source(folder, labelled=False).count == 7
    assert "expected a sub-folder of images for each label" in refusal(folder / "dog", labelled=True)


def test_an_empty_folder_is_refused(tmp_path):
    assert "found none" in refusal(tmp_path)


def test_a_film_is_no_image(tmp_path):
    frames = [Image.fromarray(pixels) for pixels in PIXELS[:3]]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert "holds 3 images" in refusal(tmp_path)


def test_a_damaged_idx_file_is_refused(tmp_path):
    path = tmp_path / "images-idx3-ubyte"
    whole = idx(PIXELS)
    for content, reason in (
        (whole[:-1], "it ends within image 6 of 7"),
        (whole + b"x", "holds more data after its 7 images"),
        (b"P5 plain", "or an idx file of bytes"),
        (whole[:8], "expected images"),
        (b"\0\0\x0d" + whole[3:], "or an idx file of bytes"),
    ):
        path.write_bytes(content)
        assert reason in refusal(path)
    zipped = tmp_path / "images-idx3-ubyte.gz"
    zipped.write_bytes(gzip.compress(whole)[:-20])
    assert "cannot be read" in refusal(zipped)
    zipped.write_bytes(whole)
    assert "restore it from a copy" in refusal(zipped)


def test_labels_of_another_number_of_images_are_refused(tmp_path):
    path = tmp_path / "images-idx3-ubyte"
    path.write_bytes(idx(PIXELS))
    (tmp_path / "labels-idx1-ubyte").write_bytes(idx(np.arange(6)))
    assert "expected 7 labels" in refusal(path)
    (tmp_path / "labels-idx1-ubyte").write_bytes(idx(np.arange(7))[:-1])
    assert "holds only 6 of 7 labels" in refusal(path)
    np.savez(tmp_path / "x.npz", images=PIXELS, labels=np.arange(7) / 2)
    assert "'labels': expected 7 whole numbers" in refusal(tmp_path / "x.npz")
    np.savez(tmp_path / "y.npz", images=PIXELS)
    assert "expected labels, got no array 'labels'" in refusal(tmp_path / "y.npz", labelled=True)
    np.save(tmp_path / "y.npy", PIXELS)
    assert refusal(tmp_path / "y.npy", labelled=True).endswith(
        "y.npy: expected labels, got none"
    )  # not: y.npy is missing
    assert "labels=False" in refusal(tmp_path / "x.npz")
    assert "labels=False" not in refusal(tmp_path / "x.npz", labelled=True)  # as a classifier insists


def test_arrays_that_are_no_images_are_refused(tmp_path):
    path = tmp_path / "x.npz"
    for arrays, reason in (
        ({"a": np.zeros(9)}, "none of its arrays (a) holds images"),
        ({"a": PIXELS, "b": PIXELS}, "has several arrays of images (a, b): name one"),
        ({"images": PIXELS / 255}, "image 0: expected whole numbers from 0 to 255, got 0."),
        ({"images": np.where(PIXELS[4, 2, 2] == PIXELS, np.nan, PIXELS)}, "got nan"),
        ({"images": PIXELS.astype(np.int64) + 200}, "expected whole numbers from 0 to 255, got 2"),
        ({"images": np.zeros((0, 4, 4), np.uint8)}, "got none"),
    ):
        np.savez(path, **arrays)
        assert reason in refusal(path), arrays
    assert "there is no array 'b'" in refusal(f"{path}:b")
    assert "leave them out" in refusal(path, reading=Reading((4, 4)))


def test_nothing_is_unpickled(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{"a": 1}] * 4).reshape(4, 1, 1), allow_pickle=True)
    assert "expected numbers, got object" in refusal(tmp_path / "x.npy")


def test_a_damaged_archive_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    path.write_bytes(b"PK no archive")
    assert "not an .npz file, or damaged" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", b"no array")
    assert "expected a NumPy array" in refusal(path)
    content = io.BytesIO()
    np.save(content, PIXELS)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", content.getvalue()[:-30])
    assert "it ends within image 6 of 7" in refusal(path)
    encrypted = bytearray(path.read_bytes())
    encrypted[encrypted.rindex(b"PK\1\2") + 8] |= 1
    path.write_bytes(encrypted)
    assert "password required" in refusal(path)


@pytest.mark.parametrize("reading", [None, Reading(colour="grey"), Reading(colour="rgb")])
def test_sixteen_bits_are_scaled_to_eight(tmp_path, reading):
    deep = np.array([[0, 257, 128 * 257], [65535, 1000, 65000]], np.uint16)
    for name in ("a", "b"):
        Image.fromarray(deep).save(tmp_path / f"{name}.png")
    source = open_source(tmp_path, reading=reading)
    assert source.deep == 2
    assert (everything(source)[0] == np.array([[0, 1, 128], [255, 4, 253]])).all()


def test_what_is_transparent_is_put_on_white(tmp_path):
    clear = np.full((2, 2, 4), 10, np.uint8)
    clear[0, :, 3], clear[1, :, 3] = 0, 255
    Image.fromarray(clear).save(tmp_path / "a.png")
    Image.fromarray(np.full((2, 2), 7, np.uint8)).save(tmp_path / "b.png", transparency=7)
    source = open_source(tmp_path, reading=Reading(colour="grey"))
    assert source.transparent == 2
    assert everything(source)[:, 0].tolist() == [[[255, 255], [10, 10]], [[255, 255], [255, 255]]]
    (tmp_path / "a.png").unlink()
    assert "grey and transparency" in refusal(tmp_path)


def test_an_image_fits_by_cropping_padding_or_stretching():
    bars = np.zeros((4, 8), np.uint8)
    bars[:, 2:6] = 200  # the middle half
    content = io.BytesIO()
    Image.fromarray(bars).save(content, "PNG")
    shown = {}
    for fit in ("crop", "pad", "stretch"):
        pixels, _ = Reading((4, 4), "grey", fit).image(io.BytesIO(content.getvalue()), "bars.png")
        shown[fit] = (pixels[0] > 100).tolist()
    yes, no = [True] * 4, [False] * 4
    assert shown["crop"] == [yes] * 4
    assert shown["stretch"] == [[False, True, True, False]] * 4
    assert shown["pad"] == [no, *[[False, True, True, False]] * 2, no]


@pytest.mark.parametrize("kind", ["zip", "gztar"])
@pytest.mark.parametrize("packed", [False, True])
def test_an_archive_is_read_as_the_folder_that_was_packed(folder, tmp_path, kind, packed):
    root = folder.parent if packed else folder
    (folder / "cat" / ".hidden.png").write_bytes(b"left by a file manager")
    name = shutil.make_archive(str(tmp_path / "packed"), kind, root, folder.name if packed else None)
    file = Path(name)
    found, expected = open_source(file, labelled=True), open_source(folder, labelled=True)
    assert is_images(file)
    assert found.count == expected.count == 7
    assert np.array_equal(everything(found), everything(expected))
    assert found.labels.names == expected.labels.names == ("cat", "dog")
    assert np.array_equal(found.labels.numbers, expected.labels.numbers)
    assert found.called(0).endswith(expected.called(0))
    assert found.fingerprint() == source_fingerprint(file)


def test_an_archive_without_images_is_no_source_of_them(tmp_path):
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "a.txt").write_text("a")
    for kind in ("zip", "gztar"):
        file = shutil.make_archive(str(tmp_path / "packed"), kind, tmp_path / "words")
        assert not is_images(file)
        assert "found none" in refusal(Path(file))
    folder = tmp_path / "folder.tar"  # of a folder all files tell, whatever its name
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    Image.new("L", (2, 2)).save(folder / "b.png")
    assert is_images(folder)
    (tmp_path / "broken.zip").write_bytes(b"PK no")
    assert not is_images(tmp_path / "broken.zip")
    assert "not a readable archive" in refusal(tmp_path / "broken.zip")


def test_advice_that_cannot_help_is_not_given(tmp_path):
    Image.new("F", (8, 8)).save(tmp_path / "a.tiff")
    assert refusal(tmp_path).endswith("expected grey or RGB of 8 bits: convert it")
    Image.new("CMYK", (8, 8)).save(tmp_path / "a.tiff")
    assert refusal(tmp_path).endswith('convert it (in training, colour="rgb" does it)')
