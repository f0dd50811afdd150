"""Folders train, val and test are parts of the data, and no labels; booleans are black and white."""

import shutil

import numpy as np
import pytest
from PIL import Image

from chainrule_app.readers.images.prepare import open_source, prepare_images


@pytest.fixture
def folder(tmp_path):
    """Images with the grey of their label, by part and label."""
    for part, count in (("train", 3), ("val", 2), ("test", 1)):
        for label, grey in (("cat", 10), ("dog", 200)):
            (tmp_path / "data" / part / label).mkdir(parents=True)
            for number in range(count):
                Image.new("L", (4, 4), grey).save(tmp_path / "data" / part / label / f"{number}.png")
    return tmp_path / "data"


@pytest.mark.parametrize("packed", ["", "zip", "gztar"])
def test_folders_of_parts_are_a_split(folder, tmp_path, packed):
    """They were the labels: a classifier told train from test."""
    source = folder
    if packed:
        source = shutil.make_archive(str(tmp_path / "pack"), packed, tmp_path, "data")
    images = prepare_images(source, tmp_path / "made", labelled=True)
    assert images.classes == ("cat", "dog")
    assert (len(images.train), len(images.valid)) == (6, 4)
    for pixels, labels in ((images.train, images.train_labels), (images.valid, images.valid_labels)):
        assert [int(image.max()) for image in pixels] == [(10, 200)[label] for label in labels]
    everything = open_source(source, labelled=True)
    assert (everything.count, everything.labels.names) == (12, ("cat", "dog"))


def test_without_a_validation_part_images_are_drawn_from_training(folder, tmp_path):
    shutil.rmtree(folder / "val")
    images = prepare_images(folder, tmp_path / "made", labelled=True)
    assert len(images.train) + len(images.valid) == 6
    shutil.rmtree(folder / "test")  # of one folder alone, the labels are below it too
    (folder / "train").rename(folder / "bus")
    (folder / "train").mkdir()
    Image.new("L", (4, 4), 0).save(folder / "train" / "a.png")
    assert open_source(folder, labelled=True).labels.names == ("bus", "train")


def test_parts_without_labels_are_a_split_too(folder, tmp_path):
    for part in ("train", "val", "test"):
        for image in (folder / part).rglob("*.png"):
            image.rename(folder / part / f"{image.parent.name}{image.name}")
        for label in ("cat", "dog"):
            (folder / part / label).rmdir()
    images = prepare_images(folder, tmp_path / "made")
    assert (len(images.train), len(images.valid), images.classes) == (6, 4, None)


def test_booleans_are_black_and_white(tmp_path):
    """A run of 256 levels read them as 0 and 1, nearly black."""
    array = np.random.default_rng(0).random((5, 4, 4)) < 0.5
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", images=array)
    for name in ("a.npy", "a.npz"):
        source = open_source(tmp_path / name)
        assert source.levels == 2
        assert np.array_equal(np.concatenate(list(source.blocks()))[:, 0], array)
        source = open_source(tmp_path / name, black_and_white=256)
        assert source.levels == 256
        assert np.array_equal(np.concatenate(list(source.blocks()))[:, 0], array * np.uint8(255))
