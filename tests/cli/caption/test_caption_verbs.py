"""Captioned images from a zip file to a run, and what the verbs do with it."""

import io
import json
import zipfile

import numpy as np
import pytest
import torch

from chainrule_app.readers.captions import ImageStore, captions_by_image

pytest.importorskip("sacrebleu")
from PIL import Image
from safetensors.torch import save_file
from small_data import WRITERS

from chainrule.layers._image_encoder import ResNet
from chainrule_app.cli.main import main
from chainrule_app.tasks.caption.run import CaptionRun

COLOURS = {"red": (200, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 200)}
TINY = [
    "--image-size", 16, "--image-features", 32, "--hidden-size", 24, "--embedding-size", 16, "--min-count", 1,
    "--max-length", 8,
]  # fmt: skip


def image(colour: str, number: int) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 40, (16, 16, 3)) + np.array(COLOURS[colour])
    content = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(content, "PNG")
    return content.getvalue()


def write_data(folder, count=48):
    """Squares of one colour, and captions that name it."""
    names = [list(COLOURS)[number % 3] for number in range(count)]
    with zipfile.ZipFile(folder / "images.zip", "w") as archive:
        for number, colour in enumerate(names):
            archive.writestr(f"some/folder/{number}.png", image(colour, number))
    lines = [
        f"{n}.png#{k}\t{start} {colour} square\n"
        for n, colour in enumerate(names)
        for k, start in enumerate(["A", "the"])
    ]
    (folder / "captions.txt").write_text("".join(lines))
    (folder / "one.png").write_bytes(image("blue", 999))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captions")
    write_data(folder)
    return folder


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """Trained until it names colours; not to be written to."""
    out = tmp_path_factory.mktemp("runs") / "run"
    arguments = ["train", data / "images.zip", "--captions", data / "captions.txt", "--task", "caption", "--out", out]
    options = ["--steps", 150, "--batch-size", 12, "--learning-rate", 0.01, "--dropout", 0.1, "--validate-every", 50]
    assert main(list(map(str, [*arguments, *TINY, *options, "--json"]))) == 0
    return out


def test_it_learns_to_name_what_it_sees(command, ok, run, data):
    outcome = ok("caption", run, data / "one.png")
    assert "blue square" in outcome.out
    seen = json.loads(command("evaluate", run, data / "images.zip", "--captions", data / "captions.txt", "--json").out)
    other = ["--captions", data / "captions.txt", "--json", "--shuffle"]
    shuffled = json.loads(command("evaluate", run, data / "images.zip", *other).out)
    assert seen["bleu_2"] > 90
    assert shuffled["bleu_2"] < seen["bleu_2"]
    assert shuffled["perplexity"] > 2 * seen["perplexity"]
    assert seen["signature"].startswith("nrefs:2")


def test_captions_as_json_and_several(command, run, data):
    outcome = command("caption", run, data / "one.png", "--n-best", 3, "--json")
    records = [json.loads(line) for line in outcome.out.splitlines()]
    assert len(records) == 3
    assert [record["nats"] for record in records] == sorted(record["nats"] for record in records) or all(
        record["proven"] is not None for record in records
    )
    assert len({record["caption"] for record in records}) == 3
    both = command("caption", run, data / "one.png", data / "one.png", "--beam", 1).out.splitlines()
    assert both[0].split() == ["image", "caption", "nats"]
    assert both[1] == both[2]
    assert both[1].startswith(f"{data / 'one.png'}  ")


def test_where_it_looked_becomes_an_image(ok, run, data, tmp_path):
    pytest.importorskip("matplotlib")
    ok("caption", run, data / "one.png", "--plot", tmp_path / "look.png")
    with Image.open(tmp_path / "look.png") as drawn:
        assert drawn.size[0] > 300


def test_inspection_shows_the_parts_and_where_it_looked(command, ok, run, data, tmp_path):
    page = tmp_path / "page.html"
    outcome = ok("inspect", run, "--rows", 2, "--out", page, "--json")
    found = json.loads(outcome.out)
    assert sum(found["parameters"].values()) == json.loads(command("info", run, "--json").out)["parameters"]
    assert [len(row["references"]) for row in found["rows"]] == [2, 2]
    for row in found["rows"]:
        assert row["symbols"][-1] == "<eos>"
        assert len(row["attention"]) == len(row["bits"]) == len(row["symbols"]) == len(row["caption"].split()) + 1
        assert all(sum(weights) == pytest.approx(1, abs=1e-5) for weights in row["attention"])
    shown = sum(1 + len(row["symbols"]) for row in found["rows"])  # the image, and once more for each word
    assert page.read_text().count("data:image/png") == shown
    told = command("inspect", run, data / "one.png", "--out", page).out
    assert "encoder" in told
    assert f"page: {page}" in told


@pytest.mark.slow
def test_it_keeps_the_contract(ok, run):
    ok("check", run)


def test_info_and_the_held_out_part(command, run):
    facts = json.loads(command("info", run, "--json").out)
    assert facts["facts"]["valid"]["images"] == 5
    assert facts["best"]["bleu"] >= 0
    assert "43 images with 86 captions to train on, 5 with 10 held out" in command("info", run).out


def test_words_and_pixels_come_back(run):
    prepared = CaptionRun.open(run).prepared
    assert sorted(prepared.vocabulary.words) == ["a", "blue", "green", "red", "square", "the"]
    train = prepared.train
    for place, colour in enumerate(np.array(train.images).mean((2, 3)).argmax(1).tolist()):
        for caption in train.captions_of(place):
            row = train.captions.padded(np.array([caption]))[0][0].tolist()
            assert list(COLOURS)[colour] in prepared.vocabulary.decode(row)


def test_bad_data_is_refused_in_one_line(refused, data, tmp_path):
    def train(captions, images=data / "images.zip", *more):
        (tmp_path / "captions.txt").write_text(captions)
        flags = ("--captions", tmp_path / "captions.txt", "--task", "caption", "--out", tmp_path / "run", *more)
        line = refused("train", images, *flags)
        assert not (tmp_path / "run").exists()
        return line

    assert "line 2: the image no.png is not in" in train("1.png\ta\nno.png\tb\n")
    assert "line 1: expected a name, a tab and a caption" in train("1.png a dog\n")
    assert "line 2: the caption of '1.png#0' is empty" in train("0.png#0\ta red square\n1.png#0\t  \n")
    assert "NUL byte" in train("0.png#0\ta red square\n1.png#0\ta\0b\n")
    assert "expected captions, got none" in train("\n")
    assert "at least two images" in train("1.png\ta\n")
    short = ("1.png\ta b c\n2.png\ta\n", data / "images.zip", "--max-length", 2)
    assert "line 1: expected at most 2 symbols" in train(*short)
    (tmp_path / "no.zip").write_text("no zip")
    assert "no.zip: not a readable archive" in train("1.png\ta\n", tmp_path / "no.zip")
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr("1.png", image("red", 1))
        archive.writestr("2.png", image("red", 1)[:99])
    assert "bad.zip, 2.png: cannot be read" in train("1.png\ta\n2.png\tb\n", tmp_path / "bad.zip")
    assert "expected one file of captions in it, got none" in refused("train", data / "images.zip", "--task", "caption")


def test_what_cannot_be_captioned_is_refused(refused, run, data, tmp_path):
    assert "no such file" in refused("caption", run, tmp_path / "no.png")
    (tmp_path / "no.png").write_text("no image")
    assert "no.png: cannot be read" in refused("caption", run, tmp_path / "no.png")
    assert "caption: expected FILE: `chainrule caption --help` describes it" in refused("caption", run)
    assert "--n-best" in refused("caption", run, data / "one.png", "--beam", 2, "--n-best", 3)
    assert "--plot" in refused("caption", run, data / "one.png", "--plot", "look.jpg")


def test_a_folder_and_a_table_with_commas_are_read_too(ok, tmp_path):
    (tmp_path / "images").mkdir()
    for number in range(6):
        (tmp_path / "images" / f"{number}.png").write_bytes(image("red", number))
    (tmp_path / "captions.csv").write_text(
        "image,caption\n" + "".join(f'{n}.png,"red, and square"\n' for n in range(6))
    )
    asked = ["--captions", tmp_path / "captions.csv", "--task", "caption", *TINY, "--steps", 1, "--batch-size", 2]
    ok("train", tmp_path / "images", *asked, "--out", tmp_path / "run")
    assert CaptionRun.open(tmp_path / "run").prepared.vocabulary.words == ["and", "red,", "square"]


def test_a_published_network_takes_its_weights_from_a_file(data, tmp_path):
    torch.manual_seed(1)
    weights = ResNet("resnet18").state_dict()
    save_file(weights, tmp_path / "weights.safetensors")
    arguments = ["train", data / "images.zip", "--captions", data / "captions.txt", "--task", "caption", *TINY]
    named = [*arguments, "--backbone", "resnet18", "--steps", 1, "--batch-size", 4, "--out", tmp_path / "run"]
    assert main([*map(str, named), "--backbone-weights", str(tmp_path / "weights.safetensors")]) == 0
    (tmp_path / "weights.safetensors").unlink()  # the run has its own copy
    kept = CaptionRun.open(tmp_path / "run").model().encoder.network.state_dict()
    assert all(torch.equal(kept[name], weight) for name, weight in weights.items())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--backbone", "vit_huge"], "vit_huge"),
        (["--backbone", "resnet18"], "--backbone: expected a network, and a file with its --backbone-weights"),
        (["--backbone-weights", "one.png"], "--backbone: expected a network, and a file with its --backbone-weights"),
        (["--backbone", "resnet18", "--backbone-weights", "none.safetensors"], "none.safetensors: no such file"),
    ],
)
def test_a_backbone_without_name_or_weights_is_refused_before_anything_is_read(options, said, data, tmp_path, refused):
    arguments = ["train", data / "images.zip", "--captions", data / "captions.txt", "--task", "caption"]
    assert said in refused(*arguments, *options, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_config_that_names_another_backbone_is_refused(run, tmp_path):
    content = json.loads((run / "config.json").read_text())
    content["model"]["options"]["backbone"] = "convnext_base"
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="backbone: expected one of resnet18"):
        CaptionRun.open(tmp_path)


def test_it_says_how_images_are_made_to_fit(command, run, data, tmp_path):
    for arguments, said in (((), "images are cropped to 16×16"), (("--fit", "pad"), "images are padded to 16×16")):
        out = tmp_path / said.split()[2]
        asked = ("--captions", data / "captions.txt", "--task", "caption", "--out", out, "--steps", 1, *TINY)
        outcome = command("train", data / "images.zip", *asked, *arguments)
        assert said in outcome.err, outcome.err
    assert CaptionRun.open(out).data.fit == "pad"


def test_folders_in_names_of_captions_do_not_matter_unless_they_differ(data, tmp_path):
    store = ImageStore(data / "images.zip", 8)
    (tmp_path / "c.txt").write_text("data/images/1.png#0\tone\ndata/images/1.png#1\tuno\na\\b\\2.png\ttwo\n")
    found = captions_by_image(tmp_path / "c.txt", store)
    assert {name: [caption.text for caption in own] for name, own in found.items()} == {
        "1.png": ["one", "uno"],
        "2.png": ["two"],
    }
    (tmp_path / "c.txt").write_text("a/1.png\tone\nb/1.png\ttwo\n")
    with pytest.raises(ValueError, match=r"line 2: a/1.png and b/1.png have the same name"):
        captions_by_image(tmp_path / "c.txt", store)


def test_the_nats_of_a_caption_are_those_of_its_image_alone(command, run, data):
    def nats(*images):
        out = command("caption", run, *images, "--n-best", 2, "--json").out
        return [json.loads(line)["nats"] for line in out.splitlines()]

    assert nats(data / "one.png", data / "one.png", data / "one.png")[:2] == nats(data / "one.png")


def test_an_archive_of_images_may_hold_their_captions(ok, tmp_path):
    source, *flags = WRITERS["caption"](tmp_path)
    captions = flags[flags.index("--captions") + 1]
    with zipfile.ZipFile(source, "a") as archive:
        archive.write(captions, "captions.txt")
    captions.unlink()
    options = ("--task", "caption", "--image-size", 8, "--batch-size", 4, "--steps", 1)
    ok("train", source, *options, "--out", tmp_path / "run")
    ok("train", "--resume", "--out", tmp_path / "run", "--steps", 2)
