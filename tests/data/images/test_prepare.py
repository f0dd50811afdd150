"""Images on disk: what is held out, what becomes of values, what memory it takes."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule_app.readers.images.batches import image_batches, image_evaluation
from chainrule_app.readers.images.prepare import prepare_images
from chainrule_app.readers.images.source import Reduction

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 5, 6), dtype=np.uint8)
LABELS = np.arange(40) % 3 + 4


@pytest.fixture
def archive(tmp_path):
    np.savez(tmp_path / "x.npz", images=PIXELS, labels=LABELS)
    return tmp_path / "x.npz"


def test_every_image_is_trained_on_or_held_out_with_its_own_label(archive, tmp_path):
    images = prepare_images(archive, tmp_path / "data", validation_fraction=0.25, seed=3)
    assert (len(images.train), len(images.valid)) == (30, 10)
    found = {image.tobytes(): 4 + label for image, label in zip(images.train, images.train_labels, strict=True)}
    found |= {image.tobytes(): 4 + label for image, label in zip(images.valid, images.valid_labels, strict=True)}
    assert found == {image.tobytes(): label for image, label in zip(PIXELS, LABELS, strict=True)}
    assert images.classes == ("4", "5", "6")


def test_the_only_image_of_a_label_is_trained_on(tmp_path):
    """Held out, it made a class that no image of training had."""
    labels = [*LABELS[:-2], 8, 9]
    np.savez(tmp_path / "x.npz", images=PIXELS, labels=labels)
    for seed in range(8):
        images = prepare_images(tmp_path / "x.npz", tmp_path / f"data{seed}", validation_fraction=0.4, seed=seed)
        assert {images.classes[label] for label in images.train_labels} == set(map(str, labels))


def test_a_file_or_a_second_array_is_held_out_whole(archive, tmp_path):
    np.savez(tmp_path / "v.npz", images=PIXELS[:4], labels=[6, 6, 5, 4])
    images = prepare_images(archive, tmp_path / "data", validation=tmp_path / "v.npz")
    assert (len(images.train), len(images.valid), images.valid_labels.tolist()) == (40, 4, [2, 2, 1, 0])
    np.savez(tmp_path / "parts.npz", train=PIXELS, valid=PIXELS[:7], test=PIXELS[:3])
    images = prepare_images(tmp_path / "parts.npz", tmp_path / "parts")
    assert (len(images.train), len(images.valid), images.manifest["validation"]["name"]) == (40, 7, "parts.npz:valid")
    assert images.classes is None


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"images": PIXELS[:, :4], "labels": LABELS}, "expected images of 5×6 pixels, grey"),
        ({"images": PIXELS, "labels": LABELS + 1}, "the label '7' was not in training (known: 4, 5, 6)"),
        ({"images": PIXELS}, "expected labels, got no array"),
    ],
)
def test_other_images_than_those_trained_on_are_no_validation(archive, tmp_path, arrays, reason):
    np.savez(tmp_path / "v.npz", **arrays)
    with pytest.raises(ValueError) as caught:
        prepare_images(archive, tmp_path / "data", validation=tmp_path / "v.npz")
    assert reason in str(caught.value)
    assert not (tmp_path / "data" / "images.json").exists()


def test_bits_are_the_leading_ones():
    values = np.arange(256, dtype=np.uint8)
    random = np.random.default_rng(0)
    for bits in range(1, 9):
        assert np.array_equal(Reduction(256, bits).apply(values, random), values >> (8 - bits))
    assert np.array_equal(Reduction(256, binarise="threshold").apply(values, random), values >= 128)
    assert Reduction(17, 4).apply(np.arange(17, dtype=np.uint8), random).max() == 15


@given(st.integers(2, 256), st.integers(1, 8))
def test_levels_are_even_in_order_and_none_is_missing(found, bits):
    if 2**bits > found:
        return
    levels = Reduction(found, bits).apply(np.arange(found, dtype=np.uint8), np.random.default_rng(0))
    counts = np.bincount(levels, minlength=2**bits)
    assert (np.diff(levels.astype(int)) >= 0).all()
    assert len(counts) == 2**bits
    assert counts.max() - counts.min() <= 1


def test_a_draw_has_the_brightness_as_its_probability():
    values = np.repeat(np.array([0, 51, 204, 255], np.uint8), 20_000)
    drawn = Reduction(256, binarise="fixed").apply(values, np.random.default_rng(0)).reshape(4, -1).mean(1)
    assert drawn[[0, 3]].tolist() == [0, 1]  # certain: never otherwise
    assert drawn[1:3] == pytest.approx([0.2, 0.8], abs=0.015)  # 5 standard errors


def test_fixed_draws_once_and_per_epoch_anew_but_not_what_is_held_out(archive, tmp_path):
    fixed = prepare_images(archive, tmp_path / "fixed", binarise="fixed")
    anew = prepare_images(archive, tmp_path / "anew", binarise="per-epoch")
    assert np.array_equal(fixed.valid, anew.valid)
    assert int(fixed.train.max()) == int(anew.valid.max()) == 1
    batches = image_batches(anew.train, None, 36, drawn=anew.reduction)
    first, again, second = batches.at(0).x, batches.at(0).x, batches.at(1).x
    assert first.equal(again)
    assert int(first.max()) == 1
    order = [np.random.default_rng([0, 0, epoch]).permutation(36) for epoch in (0, 1)]
    one, two = first[np.argsort(order[0])], second[np.argsort(order[1])]  # the same images, in the same order
    assert 0.1 < (one != two).float().mean() < 0.5


def test_every_step_draws_anew():
    grey = np.full((8, 1, 6, 6), 128, np.uint8)
    batches = image_batches(grey, None, 4, drawn=Reduction(256, binarise="per-epoch"))
    drawn = [batches.at(step).x for step in range(4)]
    assert not any(first.equal(second) for place, first in enumerate(drawn) for second in drawn[:place])


def test_options_that_do_not_fit_are_refused(archive, tmp_path):
    with pytest.raises(ValueError, match="leave one of them out"):
        prepare_images(archive, tmp_path / "data", bits=4, binarise="fixed")
    assert not (tmp_path / "data").exists()


def test_binary_images_have_no_more_bits_to_lose(tmp_path):
    np.save(tmp_path / "x.npy", PIXELS % 2)
    for options in ({"bits": 2}, {"binarise": "fixed"}):
        with pytest.raises(ValueError, match="2 levels"):
            prepare_images(tmp_path / "x.npy", tmp_path / "data", **options)


def test_an_epoch_reads_every_image_once_with_its_label():
    images = np.arange(12, dtype=np.uint8).reshape(12, 1, 1, 1)
    batches = image_batches(images, np.arange(12), 5, seed=1)
    assert batches.steps_per_epoch == 2
    read = [batches.at(step) for step in range(2)]
    seen = [int(value) for batch in read for value in batch.x.flatten()]
    assert len(set(seen)) == 10
    assert seen == [int(label) for batch in read for label in batch.context]
    assert all(batch.whole for batch in read)

    order = [int(value) for batch in image_evaluation(images, None, 5) for value in batch.x.flatten()]
    assert order == list(range(12))


MEASURE = """
import resource, sys
from chainrule_app.readers.images.prepare import prepare_images

def peak():  # MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)

before = peak()
prepare_images(sys.argv[1], sys.argv[2], bits=5)
print(peak() - before)
"""


def test_memory_does_not_grow_with_the_images(tmp_path):
    pytest.importorskip("resource")
    np.savez(tmp_path / "x.npz", images=np.full((30_000, 64, 64), 200, np.uint8))  # 123 MB
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "x.npz"), str(tmp_path / "data")]
    growth = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    for file in (tmp_path / "x.npz", *(tmp_path / "data").iterdir()):
        file.unlink()
    # measured 57 to 61 MB for 61, 123 and 246 MB of images: blocks of 4 MB, read, spread to 32 bits and written
    assert growth < 80, growth
