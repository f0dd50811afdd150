"""Images through models with a code, from training to the page."""

import csv
import json

import numpy as np
import pytest
from PIL import Image

from chainrule_app.cli.main import main
from chainrule_app.tasks import open_run

SMALL = {
    "vae": ("--hidden-size", 16, "--latent-size", 4),
    "pixel-vae": ("--hidden-size", 8, "--latent-size", 3, "--channels", 4, "--decoder-channels", 4,
                  "--decoder-layers", 1, "--num-layers", 2),
    "autoencoder": ("--hidden-size", 16, "--latent-size", 4),
}  # fmt: skip


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Bright above a line, dark below it; where the line is, is the label."""
    path = tmp_path_factory.mktemp("images") / "lines.npz"
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 60)
    rows = np.arange(6)[None, :, None] <= 1 + labels[:, None, None]
    np.savez(path, images=(rows * random.integers(150, 256, (60, 6, 7))).astype(np.uint8), labels=labels)
    return path


@pytest.fixture(scope="module")
def runs(archive, tmp_path_factory):
    """A run of each model, the first trained until its code is of use; not to be written to."""
    home = tmp_path_factory.mktemp("runs")
    for model, sizes in SMALL.items():
        steps = 120 if model == "vae" else 2
        arguments = ("train", archive, "--out", home / model, "--model", model, "--bits", 1, "--steps", steps)
        more = ("--learning-rate", 0.02, "--batch-size", 16, "--validate-every", steps, *sizes)
        assert main([str(argument) for argument in (*arguments, *more)]) == 0
    return home


def opened(path):
    with Image.open(path) as image:
        return np.asarray(image)


@pytest.mark.parametrize("model", ["vae", "pixel-vae"])
def test_scores_are_bounds_that_say_so(command, ok, runs, archive, model):
    outcome = ok("score", runs / model, archive, "--samples", 3)
    heading, *rows, total, measured, values = outcome.out.splitlines()
    assert heading.split()[2:4] == ["nats", "≤"]
    assert measured.startswith("measured: bound, K = 3; nats per dimension")
    for part in ("images 60, nats per image at most", "standard error", "bits per dimension at most", "negative ELBO"):
        assert part in total
    assert values.startswith("values: ")
    scored = command("score", runs / model, archive, "--samples", 3, "--json")
    records = [json.loads(line) for line in scored.out.splitlines()]
    assert len(records) == 60
    assert [float(row.split()[2]) for row in rows] == pytest.approx([r["nats_at_most"] for r in records], abs=0.005)
    assert json.loads(scored.err)["measured"]["kind"] == "bound"
    assert all(record["kl"] >= 0 for record in records)
    assert "nats" not in records[0]  # there is no exact figure
    info = json.loads(command("info", runs / model, "--json").out)
    assert info["likelihood"]["kind"] == "bound"
    assert "at most" in command("info", runs / model).out


def test_more_draws_bring_the_bound_nearer(command, runs, archive):
    def mean(samples):
        outcome = command("score", runs / "vae", archive, "--samples", samples, "--json")
        return np.mean([json.loads(line)["nats_at_most"] for line in outcome.out.splitlines()])

    assert mean(64) < mean(1)


def test_an_autoencoder_has_an_error_and_no_nats(command, refused, runs, archive):
    outcome = command("score", runs / "autoencoder", archive)
    assert "mean squared error" in outcome.out
    assert outcome.out.splitlines()[-2].startswith("measured: exact; squared error per dimension")
    assert "nats" not in outcome.out
    summary = json.loads(command("info", runs / "autoencoder", "--json").out)["best"]
    assert summary["mean_squared_error"] == pytest.approx(2 * summary["nats_per_element"])
    assert "no distribution to draw from" in refused("sample", runs / "autoencoder")
    assert "no likelihood" in refused("score", runs / "autoencoder", archive, "--samples", 3)


def test_images_are_drawn_rebuilt_and_joined(command, ok, runs, archive, tmp_path):
    sheet = tmp_path / "grid.png"
    for model in ("vae", "pixel-vae"):
        ok("sample", runs / model, "-n", 4, "--seed", 1, "--out", sheet)
        drawn = opened(sheet)
        assert drawn.shape == (2 * (6 * 8 + 2) + 2, 2 * (7 * 8 + 2) + 2)
        command("sample", runs / model, "-n", 4, "--seed", 1, "--out", sheet)
        assert np.array_equal(opened(sheet), drawn)
    ok("sample", runs / "vae", "-n", 4, "--mean", "--out", sheet)
    assert len(np.unique(opened(sheet))) > 3  # expected images are grey
    for model in SMALL:
        done = ok("reconstruct", runs / model, archive, "--count", 6, "--out", tmp_path / "pairs.png", "--json")
        assert json.loads(done.err)["images"] == 6
        kinds = [json.loads(line)["kind"] for line in done.out.splitlines()]
        assert kinds == ["image", "reconstruction"] * 6
        assert opened(tmp_path / "pairs.png").shape == (2 * (6 * 8 + 2) + 2, 8 * (7 * 8 + 2) + 2)
    for name, rows in (("a", 2), ("b", 4)):
        image = np.zeros((6, 7), np.uint8)
        image[:rows] = 255
        Image.fromarray(image).save(tmp_path / f"{name}.png")
    ends = tmp_path / "a.png", tmp_path / "b.png"
    ok("interpolate", runs / "vae", *ends, "--count", 5, "--out", tmp_path / "row.png")
    row = opened(tmp_path / "row.png")
    assert row.shape == (6 * 8 + 2 + 2, 7 * (7 * 8 + 2) + 2)
    assert row[2:50, 2:58].mean() == pytest.approx(255 * 2 / 6)  # begins with the image itself
    assert row[2:50, -58:-2].mean() == pytest.approx(255 * 4 / 6)


def test_codes_separate_what_differs(ok, runs, archive, tmp_path):
    out = tmp_path / "codes.csv"
    ok("embed", runs / "vae", archive, "--out", out)
    heading, *rows = csv.reader(out.read_text().splitlines())
    assert heading == ["input", "label", "z0", "z1", "z2", "z3"]
    assert [row[0] for row in rows][:2] == ["lines.npz:images[0]", "lines.npz:images[1]"]
    codes = np.array([row[2:] for row in rows], float)
    labels = np.array([row[1] for row in rows])
    centres = {label: codes[labels == label].mean(0) for label in "012"}
    nearest = [min(centres, key=lambda label: np.square(code - centres[label]).sum()) for code in codes]
    assert np.mean(labels == nearest) > 0.9


@pytest.mark.parametrize("model", list(SMALL))
def test_a_page_shows_the_code(ok, runs, model, tmp_path):
    page = tmp_path / "page.html"
    outcome = ok("inspect", runs / model, "--out", page, "--json")
    found = json.loads(outcome.out)
    size = open_run(runs / model).config.options.latent_size
    assert len(found["variance"]) == size
    assert found["kl"] is None if model == "autoencoder" else len(found["kl"]) == size
    shown = page.read_text()
    for part in ("How much of the code is in use", "Reconstructions", "Where they are wrong", "A map of the codes"):
        assert part in shown
    assert shown.count('<div class="strip-row">') == len(found["active"])
    assert shown.count("<circle") == 6  # held-out images
    assert "http" not in shown.replace("http-equiv", "")


def test_a_collapsed_code_is_told_with_its_remedy(command, ok, archive, tmp_path):
    sizes = ("--hidden-size", 8, "--latent-size", 2, "--channels", 4, "--decoder-channels", 4, "--num-layers", 2)
    arguments = ("--model", "pixel-vae", "--bits", 1, "--steps", 60, "--validate-every", 20, "--learning-rate", 0.02)
    outcome = ok("train", archive, "--out", tmp_path / "run", "--beta", 100, *arguments, *sizes)
    assert outcome.err.count("warning: the posterior collapsed: beta is 100") == 1  # not at each validation
    validations = [record for record in open_run(tmp_path / "run").metrics() if record["event"] == "validation"]
    assert [record["active_units"] for record in validations][1:] == [0, 0]
    assert all(0 <= record["kl"] < 1 for record in validations[1:])
    first, *later = [record.get("warning", "") for record in validations]
    assert not first  # hardly anything is learnt yet
    assert all(warning.startswith("the posterior collapsed: beta is 100") for warning in later)
    training = open_run(tmp_path / "run").config.training
    assert (training.batch_size, training.learning_rate) == (128, 0.02)  # the usual one, and the one that was given
    told = command("inspect", tmp_path / "run").out
    assert "Collapsed" in told
    assert "lower it to 1" in told


def test_bad_input_is_one_line(ok, refused, runs, archive, tmp_path):
    assert "--latent-size" in refused("train", archive, "--model", "vae", "--latent-size", 0, "--out", tmp_path / "x")

    np.savez(tmp_path / "large.npz", images=np.zeros((3, 9, 9), np.uint8))
    for verb in ("score", "reconstruct", "embed"):
        assert "6×7" in refused(verb, runs / "vae", tmp_path / "large.npz")
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(tmp_path / "large.png")
    image = tmp_path / "large.png"
    assert "6×7" in refused("interpolate", runs / "vae", image, image)
    assert "6×7" in refused("reconstruct", runs / "vae", image)  # one file is a collection of one
    assert "no such" in refused("interpolate", runs / "vae", tmp_path / "none.png", image).lower()
    assert ".png" in refused("reconstruct", runs / "vae", archive, "--out", tmp_path / "x.txt")

    assert "--label" in refused("sample", runs / "vae", "--label", "1")
    for model in SMALL:
        assert "needs an exact likelihood" in refused("compress", runs / model, image)
    exact = tmp_path / "exact"
    small = ("--bits", 1, "--steps", 1, "--channels", 4, "--layers", 1)
    ok("train", archive, "--out", exact, *small)
    for verb in ("embed", "reconstruct"):
        assert "has no latent code" in refused(verb, exact, archive)
    assert "has no latent code" in refused("interpolate", exact, image, image)
    assert "exact" in refused("score", exact, archive, "--samples", 3)
