import json
import zipfile

import numpy as np
import pytest
from PIL import Image

from chainrule_app.tasks import open_run

SMALL = {
    "cnn": ["--channels", 4, "--stages", 2],
    "vit": ["--model-size", 8, "--num-layers", 1, "--num-heads", 2],
    "swin": ["--model-size", 8, "--num-heads", 2, "--blocks", 1],
}


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    home = tmp_path_factory.mktemp("digits")
    from sklearn.datasets import load_digits

    found = load_digits()
    images = (found.images * 15.9375).astype(np.uint8)
    np.savez(home / "train.npz", images=images[:300], labels=found.target[:300])
    np.savez(home / "test.npz", images=images[300:340], labels=found.target[300:340])
    Image.fromarray(images[301]).save(home / "one.png")
    return home


@pytest.mark.parametrize("model", SMALL)
def test_images_with_labels_become_a_classifier_that_every_verb_takes(command, ok, checked, digits, tmp_path, model):
    run, task = tmp_path / "run", ("--task", "classify")
    trained = ok(
        "train", digits / "train.npz", *task, "--model", model, *SMALL[model], "--steps", 3, "--out", run, "--json"
    )
    assert 0 <= json.loads(trained.out)["accuracy"] <= 1
    rows = [json.loads(line) for line in command("classify", run, digits / "test.npz", "--json").out.splitlines()]
    assert len(rows) == 40
    assert all(sum(row["probabilities"].values()) == pytest.approx(1) for row in rows)
    with zipfile.ZipFile(tmp_path / "some.zip", "w") as archive:
        archive.write(digits / "one.png", "one.png")
    heading, packed = command("classify", run, tmp_path / "some.zip").out.splitlines()
    assert heading.split() == ["image", "label", "probability"]
    assert packed.split()[:2] == ["one.png", rows[1]["label"]]
    _, one = command("classify", run, digits / "one.png", "--top", 2).out.splitlines()
    assert one.split()[1] == rows[1]["label"]
    assert len(one.split()) == 5
    figures = json.loads(command("evaluate", run, digits / "test.npz", "--json").out)
    right = np.load(digits / "test.npz")["labels"]
    assert figures["accuracy"] == pytest.approx(np.mean([int(row["label"]) for row in rows] == right))
    assert figures["images"] == 40
    labels = checked(run).x
    assert labels.shape == (4,)
    assert set(labels.tolist()) <= set(range(10))
    inspected = json.loads(command("inspect", run, "--rows", 30, "--examples", 2, "--json").out)
    assert [len(inspected[kind]) for kind in ("wrong", "right")] == [2, min(2, round(30 * inspected["accuracy"]))]
    assert all(image["given"] != image["true"] for image in inspected["wrong"])
    assert (run / "report.html").read_text().count("<img") == 2 * (len(inspected["wrong"]) + len(inspected["right"]))
    assert len(inspected["attention"]) == {"cnn": 0, "vit": 1, "swin": 2}[model]
    assert all(distance >= 0 for heads in inspected["attention"] for distance in heads)
    assert "10 labels: 0, 1, 2" in command("info", run).out


def test_a_cnn_learns_digits_and_goes_on_where_it_was(command, ok, digits, tmp_path):
    run = tmp_path / "run"
    options = ("--shift", 0, "--channels", 8, "--learning-rate", 0.01, "--out", run)
    ok("train", digits / "train.npz", "--task", "classify", *options, "--steps", 40)
    assert open_run(run).metrics()
    ok("train", "--resume", "--out", run, "--steps", 90)
    for data in ((), (digits / "train.npz",)):  # the run tells that they are images, where no data are named
        ok("train", *data, "--task", "classify", "--resume", "--out", run)
    assert json.loads(command("evaluate", run, digits / "test.npz", "--json").out)["accuracy"] > 0.8


@pytest.mark.parametrize(
    ("asked", "mixup"),
    [
        (("--epochs", 39), 0.0),
        (("--epochs", 40), 0.4),
        (("--steps", 40), 0.4),
        (("--epochs", 40, "--mixup", 0), 0.0),
        (("--epochs", 1, "--mixup", 0.1), 0.1),
    ],
)
def test_images_that_are_read_often_are_mixed(planned, digits, tmp_path, asked, mixup):
    small = ("--task", "classify", *SMALL["cnn"], "--batch-size", 270)  # a step reads all
    planned(digits / "train.npz", *small, *asked, "--out", tmp_path / "run")
    assert open_run(tmp_path / "run").config.options.mixup == mixup


@pytest.mark.parametrize(("rate", "mixup"), [(1e-3, "0"), (1e6, "0.4")])
def test_the_passes_of_a_budget_decide_on_mixup_where_the_user_names_the_size(
    planned, digits, tmp_path, monkeypatch, rate, mixup
):
    monkeypatch.setattr("chainrule_app.tasks.preparation.step_rate", lambda *_: rate)
    asked = ("--task", "classify", *SMALL["cnn"], "--budget", "0.05s", "--threads", 1, "--out", tmp_path / "run")
    outcome = planned(digits / "train.npz", *asked)
    assert f"over the data, mixup {mixup}\n" in outcome.err
    assert f"reproduce with: --mixup {mixup} --precision " in outcome.err


@pytest.mark.parametrize("model", ["cnn", "vit", "swin"])
def test_pairs_are_mixed_more_evenly_for_attention_between_patches(planned, digits, tmp_path, model):
    asked = ("--task", "classify", "--model", model, *SMALL[model], "--batch-size", 270, "--epochs", 40)
    planned(digits / "train.npz", *asked, "--out", tmp_path / "run")
    assert open_run(tmp_path / "run").config.options.mixup == {"cnn": 0.4, "vit": 1.0, "swin": 1.0}[model]


@pytest.mark.parametrize(
    ("side", "rate", "asked", "patch_size", "said"),
    [
        (16, 1e-3, (), 4, "patch size 4, mixup 0"),
        (16, 1e-3, ("--model-size", 8, "--num-heads", 2), 4, "patch size 4, mixup 0"),
        (16, 1e6, (), None, "the default size, mixup 1"),
        (16, 1e-3, ("--patch-size", 2), 2, "over the data, mixup 0"),
        (12, 1e-3, (), None, "model size 32 instead of 48, num heads 2 instead of 3, mixup 0"),
        (16, 1e-3, ("--stages", 4), None, "model size 32 instead of 48, num heads 2 instead of 3, mixup 0"),
        (16, 1e-3, ("--stages", 3), 4, "patch size 4, mixup 0"),
    ],
)
def test_swin_takes_larger_patches_where_there_is_time_for_few_steps(
    planned, tmp_path, monkeypatch, side, rate, asked, patch_size, said
):
    monkeypatch.setattr("chainrule_app.tasks.preparation.step_rate", lambda *_: rate)
    images = np.random.default_rng(0).integers(256, size=(40, side, side), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", images=images, labels=np.arange(40) % 2)
    data = (tmp_path / "images.npz", "--task", "classify", "--model", "swin", *asked)
    outcome = planned(*data, "--budget", "0.05s", "--threads", 1, "--out", tmp_path / "run")
    assert open_run(tmp_path / "run").config.options.patch_size == patch_size
    assert f"{said}\n" in outcome.err


def test_late_weights_are_kept_where_few_images_are_held_out(ok, digits, tmp_path):
    run = tmp_path / "run"
    asked = ("--task", "classify", *SMALL["cnn"], "--steps", 12, "--validate-every", 2, "--out", run)
    outcome = ok("train", digits / "train.npz", *asked)
    found = [record for record in open_run(run).metrics() if record["event"] == "validation"]
    highest = 0.0
    for record in found:
        highest = max(highest, record["accuracy"])
        share = record["accuracy"]
        assert record["best"] == (share >= highest - (share * (1 - share) / 30) ** 0.5)
    assert outcome.err.count("  kept\n") == sum(record["best"] for record in found)


def test_what_cannot_be_classified_gets_one_line(refused, ok, digits, tmp_path):
    run = tmp_path / "run"
    small = ("--task", "classify", "--steps", 1, "--channels", 4, "--out", run)
    ok("train", digits / "train.npz", *small)
    Image.fromarray(np.zeros((9, 8), np.uint8)).save(tmp_path / "other.png")
    assert "expected an image of 8×8 pixels" in refused("classify", run, tmp_path / "other.png")
    np.save(tmp_path / "bare.npy", np.zeros((5, 8, 8), np.uint8))
    assert "labels" in refused("train", tmp_path / "bare.npy", "--task", "classify", "--out", tmp_path / "none")
    for model, flag, value, said in (
        ("vit", "--patch-size", 3, "a divisor of 8 and 8"),
        ("swin", "--patch-size", 3, ""),
        ("vit", "--model-size", 10, "a multiple of"),
    ):
        asked = ("--task", "classify", "--model", model, flag, value, "--out", tmp_path / "none")
        assert f"{flag}: expected {said}" in refused("train", digits / "train.npz", *asked)
    assert not (tmp_path / "none").exists()
    assert "not a verb of the task" in refused("score", run, digits / "test.npz")


def test_labels_that_are_half_there_or_of_a_single_image_get_one_line(refused, ok, tmp_path):
    images, task = tmp_path / "images", ("--task", "classify", "--channels", 4, "--steps", 1)
    for label, count in (("cat", 5), ("dog", 1)):
        (images / label).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(np.full((8, 8), 9 * number, np.uint8)).save(images / label / f"{number}.png")
    asked = ("train", images, *task, "--out", tmp_path / "run")
    assert "images: the label 'dog': expected at least two images, one of them to hold out" in refused(*asked)
    assert not (tmp_path / "run").exists()
    ok(*asked, "--validation", images)
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(images / "stray.png")
    line = refused("train", images, *task, "--out", tmp_path / "other")
    assert "stray.png is not in a sub-folder (cat, dog)" in line
    assert "--no-labels" not in line
    np.savez(tmp_path / "alike.npz", images=np.zeros((9, 8, 8), np.uint8), labels=np.full(9, 3))
    line = refused("train", tmp_path / "alike.npz", *task, "--out", tmp_path / "other")
    assert "all images have the label '3': expected at least two labels" in line
    assert not (tmp_path / "other").exists()


def write_shades(folder, mode):
    """Images of two labels, mostly black and mostly white."""
    random = np.random.default_rng(0)
    for label, share in (("dark", 0.2), ("light", 0.8)):
        (folder / label).mkdir(parents=True)
        for number in range(8):
            pixels = (random.random((8, 8)) < share).astype(np.uint8) * 255
            Image.fromarray(pixels).convert(mode).save(folder / label / f"{number}.png")
    return folder


def test_one_black_and_white_image_is_read_as_its_folder_is(command, ok, tmp_path):
    images, run = write_shades(tmp_path / "images", "1"), tmp_path / "run"
    small = ("--task", "classify", *SMALL["cnn"], "--steps", 5, "--out", run)
    ok("train", images, *small)
    for verb, key in (("classify", "probability"), ("embed", "code")):
        together = json.loads(command(verb, run, images, "--json").out.splitlines()[0])
        alone = json.loads(command(verb, run, images / "dark" / "0.png", "--json").out)
        assert alone[key] == pytest.approx(together[key], rel=1e-3)  # batches of other sizes are added up otherwise


def test_images_stored_in_black_and_white_are_those_stored_in_grey_to_a_run_on_grey(command, ok, tmp_path):
    grey, black = write_shades(tmp_path / "grey", "L"), write_shades(tmp_path / "black", "1")
    for held_out in (grey, black):
        small = ("--task", "classify", *SMALL["cnn"], "--steps", 5, "--validation", held_out)
        ok("train", grey, *small, "--out", tmp_path / f"by-{held_out.name}")
    run = tmp_path / "by-grey"
    assert open_run(run).metrics()[-1]["accuracy"] == open_run(tmp_path / "by-black").metrics()[-1]["accuracy"]
    for verb in ("classify", "evaluate"):
        assert command(verb, run, black).out == command(verb, run, grey).out
