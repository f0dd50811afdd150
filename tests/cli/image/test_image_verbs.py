"""Images from a file to a run, and what the verbs do with it."""

import io
import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from chainrule_app.cli.main import main
from chainrule_app.readers.images.source import Reduction
from chainrule_app.tasks import open_run, size_schedule
from chainrule_app.tasks.image.run import ImageRun

SMALL = ("--channels", 6, "--layers", 1, "--first-kernel-size", 3, "--batch-size", 4)
SIZE = 6 * 7


def line_images(count=40):
    """Bright above a line, dark below it; where the line is, is the label."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, count)
    rows = np.arange(6)[None, :, None] <= 1 + labels[:, None, None]
    return (rows * random.integers(150, 256, (count, 6, 7))).astype(np.uint8), labels


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "lines.npz"
    images, labels = line_images()
    np.savez(path, images=images, labels=labels)
    return path


@pytest.fixture(scope="module")
def run(archive, tmp_path_factory):
    """Trained for a few steps on 2 bits; not to be written to."""
    out = tmp_path_factory.mktemp("runs") / "run"
    arguments = ("train", archive, "--out", out, "--bits", 2, "--steps", 6, "--validate-every", 3, *SMALL)
    assert main([str(argument) for argument in arguments]) == 0
    return out


def opened(path):
    with Image.open(path) as image:
        return np.asarray(image)


@pytest.mark.parametrize(
    ("said", "rate"),
    [
        (("--steps", 500), 0.004),
        (("--steps", 2000), 0.002),
        (("--epochs", 10_000), 0.001),
        (("--steps", 2000, "--learning-rate", 0.004), 0.004),
        (("--steps", 2000, "--optimiser", "adamw"), 0.002),
    ],
)
def test_a_pixel_cnn_pp_that_trains_for_long_has_a_lower_rate(planned, archive, tmp_path, said, rate):
    """At 0.004 most of its gates closed in 2,000 steps, and the loss climbed."""
    told = planned(archive, "--model", "pixelcnn++", "--out", tmp_path / "run", *said).err
    assert open_run(tmp_path / "run").config.training.learning_rate == rate
    assert (f"\nlearning rate {rate:g} for this many steps\n" in told) == (len(said) == 2)


def test_the_rate_of_a_budget_is_told_and_repeated(planned, archive, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "chainrule_app.tasks.preparation.step_rate", lambda *_: 2000 / size_schedule.TRAINING_SHARE / 60
    )
    told = planned(archive, "--model", "pixelcnn++", "--out", tmp_path / "run", "--budget", "60s").err
    assert ": learning rate 0.002\n" in told
    assert "reproduce with: --learning-rate 0.002" in told


def test_images_are_recognised_shown_and_learnt(ok, archive, tmp_path):
    out = tmp_path / "run"
    learning = ("--steps", 150, "--learning-rate", 0.02, "--validate-every", 150)
    outcome = ok("train", archive, "--out", out, "--bits", 1, "--json", *learning, *SMALL)
    summary = json.loads(outcome.out)
    assert summary["nats_per_image"] == pytest.approx(SIZE * summary["nats_per_element"])
    assert summary["nats_per_image"] < 3  # given the label, everything but noise of 1 bit is known
    assert summary["values"] == "binarised at half of the maximum brightness (threshold)"
    for shown in (
        "lines.npz:images: images of 6×7 pixels, grey; binarised at half of the maximum brightness",
        "3 labels: 0, 1, 2",
        "36 images to train on, 4 held out (drawn, seed 0)",
    ):
        assert shown in outcome.err
    assert opened(out / "samples.png").shape == (4 * (6 * 8 + 2) + 2, 4 * (7 * 8 + 2) + 2)
    assert "█" in outcome.err
    assert isinstance(open_run(out), ImageRun)


def test_per_epoch_draws_train_and_validate_on_two_levels(command, ok, archive, tmp_path):
    out = tmp_path / "run"
    ok("train", archive, "--out", out, "--binarise", "per-epoch", "--steps", 3, *SMALL)
    run = ImageRun.open(out)
    assert run.images().train.max() > 1
    assert run.images().valid.max() == 1
    assert run.model().levels == 2
    scored = command("score", out, archive, "--top", 1).out
    assert "binarised by one fixed draw, seed 0" in scored


def test_other_images_than_the_run_began_with_are_refused_on_resume(refused, run, archive, tmp_path):
    images, labels = line_images(12)
    np.savez(tmp_path / "lines.npz", images=images, labels=labels)
    assert "DATA changed since the run began" in refused("train", tmp_path / "lines.npz", "--resume", "--out", run)
    assert "--bits was 2 and is 3" in refused("train", archive, "--resume", "--out", run, "--bits", 3)


def test_samples_are_the_models_own_and_repeatable(command, run, tmp_path):
    first, second = tmp_path / "first.png", tmp_path / "second.png"
    assert "first.png: 5 images (seed 3)" in command("sample", run, "-n", 5, "--seed", 3, "--out", first).err
    command("sample", run, "-n", 5, "--seed", 3, "--out", second)
    assert first.read_bytes() == second.read_bytes()
    model = ImageRun.open(run).model()
    drawn = model.sample(5, torch.arange(5) % 3, generator=torch.Generator().manual_seed(3))
    assert opened(first)[2 + 4, 2 + 4] == int(drawn[0, 0, 0, 0]) * 85
    outcome = command("sample", run, "-n", 3, "--label", 2, "--out", first, "--json", "--seed", 1)
    assert [json.loads(line) for line in outcome.out.splitlines()] == [{"file": str(first), "label": "2"}] * 3
    assert json.loads(outcome.err) == {"seed": 1}


def test_without_a_name_samples_go_beside_the_run_of_their_name(command, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "run-samples.png" in command("sample", run, "-n", 2).err
    assert (tmp_path / "run-samples.png").exists()


def test_a_completion_keeps_the_rows_that_are_known(ok, run, tmp_path):
    one, completed = tmp_path / "one.png", tmp_path / "completed.png"
    ok("sample", run, "-n", 1, "--label", 1, "--out", one, "--seed", 0)
    known = opened(one)
    assert known.shape == (6, 7)
    ok("sample", run, "-n", 3, "--complete", one, "--keep-rows", 2, "--out", completed, "--label", 1)
    grid = opened(completed)
    places = [(0, 0), (0, 1), (1, 0)]
    parts = [grid[2 + row * 50 :, 2 + column * 58 :][:48, :56][4::8, 4::8] for row, column in places]
    assert all(np.array_equal(part[:2], known[:2]) for part in parts)
    assert any(not np.array_equal(part[2:], known[2:]) for part in parts)


def test_scores_are_those_of_the_model_most_surprising_first(command, run, archive):
    records = [json.loads(line) for line in command("score", run, archive, "--json").out.splitlines()]
    assert len(records) == 40
    images, labels = line_images()
    x = torch.from_numpy(Reduction(256, 2).apply(images, None)).unsqueeze(1).long()
    expected = -ImageRun.open(run).model().log_prob(x, torch.from_numpy(labels)).detach()
    assert [record["nats"] for record in records] == pytest.approx(expected.tolist(), rel=1e-5)
    assert records[7]["image"] == "lines.npz:images[7]"
    assert records[7]["label"] == str(labels[7])
    assert records[7]["bits_per_dimension"] == pytest.approx(records[7]["nats"] / np.log(2) / SIZE)
    ordered = [json.loads(line)["nats"] for line in command("score", run, archive, "--sort", "--json").out.splitlines()]
    assert ordered == sorted((record["nats"] for record in records), reverse=True)
    _, *rows, total, measured, values = command("score", run, archive, "--top", 3).out.splitlines()
    assert [float(row.split()[2]) for row in rows] == pytest.approx(ordered[:3], abs=0.005)  # two decimals
    assert measured.startswith("measured: exact")
    assert total.startswith("images 40, nats per image ")
    assert values == "values: 2 of 8 bits (4 levels)"


def test_the_inside_is_shown_and_written(command, ok, run, tmp_path):
    page = tmp_path / "page.html"
    outcome = ok("inspect", run, "--pixel", "4,3", "--out", page)
    for shown in ("Pixel in row 4, column 3: it follows 31 elements", "Blind spot: none", "mask: type A, 1×3, 1 layer"):
        assert shown in outcome.out
    content = page.read_text()
    assert content.count('src="data:image/png') == 5
    assert "http" not in content.replace("http-equiv", "")
    facts = json.loads(command("inspect", run, "--out", page, "--json").out)
    assert (facts["pixel"], facts["blind_spot"], facts["as_declared"]) == ([3, 3], 0, True)


def test_a_blind_spot_is_named_and_counted(command, ok, archive, tmp_path):
    out = tmp_path / "run"
    options = ("--model", "pixelcnn", "--kernel-size", 3, "--steps", 1, *SMALL, "--no-labels")
    ok("train", archive, "--out", out, *options)
    shown = command("inspect", out, "--pixel", "5,3").out
    assert "Blind spot: 1 element to the upper right" in shown
    assert (out / "report.html").exists()


def test_a_transformer_over_pixels_does_what_the_others_do(command, ok, checked, archive, tmp_path):
    out = tmp_path / "run"
    options = ("--model", "image-transformer", "--bits", 2, "--model-size", 8, "--num-layers", 1, "--window", 4)
    ok("train", archive, "--out", out, *options, "--radius", 1, "--steps", 2, "--batch-size", 4)
    assert open_run(out).config.training.optimiser == "muon"
    ok("score", out, archive)
    ok("sample", out, "-n", 2, "--out", tmp_path / "drawn.png")
    inspected = json.loads(command("inspect", out, "--pixel", "4,3", "--json").out)
    assert inspected["as_declared"] is True
    assert type(checked(out).model).__name__ == "ImageTransformer"


def test_info_shows_what_the_run_is(command, run):
    shown = command("info", run).out
    for part in (
        "6×7 pixels, grey",
        "2 of 8 bits (4 levels)",
        "3 labels: 0, 1, 2",
        "36 images to train on",
        "bits/dim",
    ):
        assert part in shown
    facts = json.loads(command("info", run, "--json").out)
    assert facts["task"] == "image"
    assert facts["model"]["name"] == "gated-pixelcnn"
    assert facts["facts"]["classes"] == ["0", "1", "2"]


def test_small_pieces_are_checked_with_the_trained_weights(checked, run):
    small = checked(run)
    assert "on the middle 5×5 pixels of 4 held-out images" in small.out
    assert small.x.shape == (4, 1, 5, 5)
    whole = open_run(run).model()
    assert all(map(torch.equal, small.model.parameters(), whole.parameters()))


def test_a_folder_of_images_becomes_a_run(command, ok, refused, tmp_path):
    root, images = tmp_path / "images", line_images(12)[0]
    for place, pixels in enumerate(images):
        file = root / ("left" if place % 2 else "right") / f"{place:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    bad = root / "left" / "05.png"
    whole = bad.read_bytes()
    bad.write_bytes(whole[:50])
    arguments = ("train", root, "--steps", 2, "--out", tmp_path / "run", *SMALL)
    message = refused(*arguments)
    assert str(bad) in message
    assert not list(tmp_path.glob("run*"))
    outcome = ok(*arguments, "--skip-bad")
    assert "skipped 1 unreadable image files: left/05.png" in outcome.err
    records = command("score", tmp_path / "run", root, "--json", "--skip-bad").out.splitlines()
    assert len(records) == 11
    assert "--skip-bad" in refused("score", tmp_path / "run", root)
    assert json.loads(records[0])["image"] == "left/01.png"
    ok("sample", tmp_path / "run", "-n", 1, "--label", "left", "--out", tmp_path / "x.png")


def test_what_cannot_be_is_refused_in_one_line_and_leaves_nothing(refused, run, archive, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = io.BytesIO()
    Image.fromarray(np.zeros((5, 5), np.uint8)).save(small, "PNG")
    (tmp_path / "small.png").write_bytes(small.getvalue())
    (tmp_path / "no.png").write_text("no image")
    np.savez(tmp_path / "large.npz", images=np.zeros((4, 9, 9), np.uint8), labels=np.zeros(4, int))
    np.savez(tmp_path / "unseen.npz", images=line_images(4)[0], labels=np.full(4, 9))
    np.savez(tmp_path / "bare.npz", images=line_images(4)[0])
    for arguments, reason in {
        ("sample", run, "--label", 3): "--label: expected one of 0, 1, 2, got 3",
        ("sample", run, "--label", "cat"): "expected one of",
        ("sample", run, "--complete", "small.png"): "expected an image of 6×7 pixels, grey",
        ("sample", run, "--complete", "no.png"): "no.png: cannot be read",
        ("sample", run, "--complete", "none.png"): "none.png",
        ("sample", run, "--complete", "small.png", "--keep-rows", 7): "from 0 to 6",
        ("sample", run, "--keep-rows", 2): "--keep-rows: requires --complete",
        ("sample", run, "--out", "x.jpg"): "ends in .png",
        ("sample", run, "--out", "nowhere/x.png"): "no directory nowhere",
        ("sample", run, "--temperature", -1): "temperature",
        ("score", run, "large.npz"): "expected images of 6×7 pixels",
        ("score", run, "unseen.npz"): "the label '9' was not in training",
        ("score", run, "bare.npz"): "expected labels, got no array",
        ("score", run, "none.npz"): "no such file",
        ("score", run, "-"): "-: expected a file, got standard input",
        ("inspect", run, "--pixel", "6,0"): "at most 5,6",
        ("inspect", run, "--pixel", "centre"): "ROW,COLUMN",
        ("inspect", run, "--out", "x.txt"): ".html",
        ("train", archive, "--bits", 9): "--bits",
        ("train", archive, "--bits", 3, "--binarise", "fixed"): "leave one of them out",
        ("train", archive, "--size", "big"): "--size",
        ("train", archive, "--size", 8): "--size and --colour are for folders",
        ("train", archive, "--components", 4): "an option of pixelcnn++",
        (
            "train",
            archive,
            "--model",
            "row-lstm",
            "--kernel-size",
            5,
        ): "an option of gated-pixelcnn, pixelcnn",
        ("train", archive, "--validation", "large.npz"): "expected images of 6×7 pixels",
        ("train", "bare.npz", "--labels"): "expected labels, got no array",
    }.items():
        assert reason in refused(*arguments), arguments
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


def test_a_changed_run_is_refused(refused, run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    original = config.read_text()
    facts = json.loads(original)
    for name, value in (("shape", [1, 6]), ("shape", [1, 6, 1 << 30]), ("found_levels", 1 << 20), ("classes", [1])):
        config.write_text(json.dumps(facts | {"facts": facts["facts"] | {name: value}}))
        assert f"facts.{name}" in refused("sample", tmp_path / "run", "--out", tmp_path / "x.png")


def test_black_and_white_images_have_the_levels_of_the_run(command, ok, archive, tmp_path):
    """A score of a folder of 1-bit images was that of nearly black images."""
    run, scores = tmp_path / "run", {}
    ok("train", archive, "--no-labels", "--steps", 3, "--out", run, *SMALL)
    for mode in ("L", "1"):
        folder = tmp_path / f"mode-{mode}"
        folder.mkdir()
        Image.fromarray((line_images(1)[0][0] > 0).astype(np.uint8) * 255).convert(mode).save(folder / "x.png")
        scores[mode] = json.loads(command("score", run, folder, "--json").out)["nats"]
    assert scores["1"] == scores["L"]


def test_archives_and_single_files_are_cut_and_converted_as_in_training(command, ok, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    for place, pixels in enumerate(line_images(6)[0]):
        Image.fromarray(pixels).convert("RGB").save(images / f"{place}.png")
    packed = shutil.make_archive(str(tmp_path / "packed"), "zip", images)
    run, reading = tmp_path / "run", ("--size", "4x5", "--colour", "grey")
    small = ("--model", "autoencoder", "--hidden-size", 8, "--latent-size", 2, "--steps", 2)
    ok("train", packed, *reading, *small, "--out", run)
    whole, again = (command("score", run, data, "--json") for data in (packed, images))
    assert (whole.out, whole.status) == (again.out, 0)
    one = json.loads(command("score", run, images / "0.png", "--json").out)
    assert one["squared_error"] == pytest.approx(json.loads(whole.out.splitlines()[0])["squared_error"], rel=1e-4)
    for data in (packed, images / "0.png"):
        ok("embed", run, data)
        ok("reconstruct", run, data, "--out", tmp_path / "back.png")
