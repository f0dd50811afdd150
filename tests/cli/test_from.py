"""`chainrule train DATA --from RUN`: a run starts from another's weights, vocabulary or schema, on new data."""

import json
import random
import re
import shutil

import numpy as np
import pytest
from by_day import by_day
from small_data import SMALL_SIZES, WRITERS

import chainrule
from chainrule_app.cli.main import main

TEXT = ("--hidden-size", 16, "--batch-size", 4, "--chunk-length", 16, "--learning-rate", 0.01)
STILL = ("--steps", 1, "--learning-rate", "1e-30")  # weights of float32 do not move


def figure(command, run):
    return json.loads(command("info", run, "--json").out)["best"]["nats_per_element"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Texts, and a run of one of them."""
    folder = tmp_path_factory.mktemp("made")
    words = random.Random(0).choices(["one", "two", "three", "four"], k=1500)
    (folder / "old.txt").write_text(" ".join(words))
    (folder / "new.txt").write_text("one two zebra! " + " ".join(words[:80]))
    (folder / "held.txt").write_text(" ".join(words[700:900]))
    asked = ("train", folder / "old.txt", "--validation", folder / "held.txt", "--steps", 80, *TEXT)
    assert main([*map(str, asked), "--out", str(folder / "old")]) == 0
    return folder


@pytest.fixture
def old(made, tmp_path):
    return shutil.copytree(made, tmp_path, dirs_exist_ok=True) / "old"


def test_without_a_step_the_figures_are_the_old_ones(command, ok, old, tmp_path):
    new, held = tmp_path / "new.txt", ("--validation", tmp_path / "held.txt")
    chunks = (
        "--chunk-length",
        16,
    )  # held-out text is read in pieces of four such, whose first the counts are fitted to
    outcome = ok("train", new, *held, "--from", old, *chunks, *STILL, "--out", tmp_path / "run")
    assert figure(command, tmp_path / "run") == figure(command, old)
    assert "symbols to train on are unknown to it" in outcome.err
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["init"]["run"] == str(old)
    assert config["model"] == json.loads((old / "config.json").read_text())["model"]


def test_it_beats_a_run_from_scratch_on_a_small_corpus(command, ok, old, tmp_path):
    new, held = tmp_path / "new.txt", ("--validation", tmp_path / "held.txt")
    common = (new, *held, "--steps", 10, "--learning-rate", 0.003, "--kneser-ney-order", 0)
    ok("train", tmp_path / "old.txt", *held, "--steps", 80, *TEXT, "--kneser-ney-order", 0,
       "--out", tmp_path / "plain")  # fmt: skip
    ok("train", *common, "--from", tmp_path / "plain", "--out", tmp_path / "tuned")
    ok("train", *common, "--hidden-size", 16, "--out", tmp_path / "scratch")
    assert figure(command, tmp_path / "tuned") < figure(command, tmp_path / "scratch") - 0.3


def test_an_interrupted_run_goes_on_without_the_old_one(ok, old, tmp_path):
    ok("train", tmp_path / "new.txt", "--from", old, "--steps", 2, "--out", tmp_path / "run")
    old.rename(tmp_path / "elsewhere")
    ok("train", "--resume", "--out", tmp_path / "run", "--steps", 4)


def test_in_python_a_run_or_its_path_is_given(old, tmp_path):
    run = chainrule.fit(str(tmp_path / "new.txt"), init=chainrule.load(old), steps=2)
    again = chainrule.fit(str(tmp_path / "new.txt"), init=old, steps=2)
    for name, weight in run.model.state_dict().items():
        assert weight.equal(again.model.state_dict()[name])
    assert run.task.name == "text"


def test_a_table_takes_the_schema(command, ok, tmp_path):
    rows = [f"{number % 3},{'red' if number % 2 else 'blue'}" for number in range(60)]
    for name, lines in (("old", rows), ("new", [*rows[:30], "1,red"]), ("other", [*rows, "1,green"])):
        (tmp_path / f"{name}.csv").write_text("\n".join(["size,colour", *lines]) + "\n")
    held = ("--validation", tmp_path / "old.csv")
    ok("train", tmp_path / "old.csv", *held, "--steps", 20, "--out", tmp_path / "old")
    ok("train", tmp_path / "new.csv", *held, "--from", tmp_path / "old", *STILL, "--out", tmp_path / "run")
    assert figure(command, tmp_path / "run") == pytest.approx(figure(command, tmp_path / "old"), abs=1e-6)


def test_images_must_be_of_the_same_shape(command, ok, refused, tmp_path):
    random_images = np.random.default_rng(0).integers(0, 2, (40, 4, 6), dtype=np.uint8)
    np.save(tmp_path / "old.npy", random_images[:, :, :4])
    np.save(tmp_path / "wide.npy", random_images)
    held = ("--validation", tmp_path / "old.npy")
    flags = ("--model", "pixelcnn", "--channels", 4)
    ok("train", tmp_path / "old.npy", *held, *flags, "--steps", 3, "--out", tmp_path / "old")
    started = ("--from", tmp_path / "old", "--out", tmp_path / "run")
    ok("train", tmp_path / "old.npy", *held, *started, *STILL)
    assert figure(command, tmp_path / "run") == figure(command, tmp_path / "old")
    line = refused("train", tmp_path / "wide.npy", "--from", tmp_path / "old", "--out", tmp_path / "other")
    assert "trained on images with shape [1, 4, 4], these have [1, 4, 6]" in line
    assert not (tmp_path / "other").exists()


EVERY = ("tag", "classify", "classify-images", "translate", "caption", "forecast", "sound", "music")


@pytest.mark.parametrize("task", by_day(EVERY, "tag", "caption"))
def test_every_task_starts_from_weights_and_vocabulary(command, ok, tmp_path, task):
    source, *flags = [*WRITERS[task](tmp_path), *SMALL_SIZES[task].split()]
    named = flags[: flags.index("--task") + 2] if "--task" in flags else []
    ok("train", source, *flags, "--steps", 2, "--out", tmp_path / "old")
    outcome = ok("train", source, *named, "--from", tmp_path / "old", *STILL, "--out", tmp_path / "run")
    assert figure(command, tmp_path / "run") == pytest.approx(figure(command, tmp_path / "old"), rel=1e-6), outcome.err
    ok("train", "--resume", "--out", tmp_path / "run", "--steps", 2)


def test_new_labels_and_tags_are_refused(ok, refused, tmp_path):
    for task, line in (("tag", "a\tNEW\n"), ("classify", "new\ta text\n")):
        source, *flags = WRITERS[task](tmp_path)
        ok("train", source, *flags, "--steps", 1, "--out", tmp_path / task)
        source.write_text(line * 3 + "\n" + source.read_text())
        said = refused("train", source, *flags, "--from", tmp_path / task, "--out", tmp_path / "other")
        assert "line 1: the " in said
        assert "seen in training" in said
        assert not (tmp_path / "other").exists()


def test_series_need_the_same_columns_and_steps(ok, refused, tmp_path):
    source, *flags = WRITERS["forecast"](tmp_path)
    ok("train", source, *flags, "--steps", 1, "--out", tmp_path / "old")
    other = tmp_path / "other.csv"
    other.write_text(source.read_text().replace("load", "heat"))
    assert "has no column 'load'" in refused("train", other, *flags, "--from", tmp_path / "old")
    lines = [f"2020-{month:02}-{day:02},{day % 3}" for month in (1, 3, 5) for day in range(1, 31)]
    other.write_text("\n".join(["time,load", *lines[:28]]) + "\n")
    assert "expected rows every hour, as in training, got rows every day" in refused(
        "train", other, *flags, "--from", tmp_path / "old"
    )
    short = tmp_path / "short.csv"
    short.write_text("\n".join(source.read_text().split("\n")[:500]) + "\n")
    ok("train", short, *flags, "--from", tmp_path / "old", "--steps", 1, "--out", tmp_path / "run")


def test_sounds_need_the_same_labels(ok, refused, tmp_path):
    source, *flags = WRITERS["sound"](tmp_path)
    ok("train", source, *flags, "--steps", 1, "--out", tmp_path / "old")
    pattern = ("--label-pattern", "{label}")
    assert "--label-pattern was None" in refused("train", source, "--from", tmp_path / "old", *pattern)


BLOCKS = ("--model", "transformer", "--model-size", 16, "--num-layers", 1, "--num-heads", 2, "--chunk-length", 16)


@pytest.fixture(scope="module")
def blocks(made):
    """The run of a Transformer with counts of n-grams."""
    asked = ("train", made / "old.txt", "--validation", made / "held.txt", *BLOCKS, "--steps", 2)
    assert main([*map(str, asked), "--out", str(made / "blocks")]) == 0
    return made / "blocks"


def test_changes_of_low_rank_leave_an_ordinary_run(command, ok, blocks, made, tmp_path):
    asked = ("train", made / "new.txt", "--validation", made / "held.txt", "--from", blocks, "--lora-rank", 2)
    ok(*asked, "--chunk-length", 16, *STILL, "--out", tmp_path / "still")
    assert figure(command, tmp_path / "still") == pytest.approx(figure(command, blocks), abs=1e-6)
    outcome = ok(*asked, "--chunk-length", 16, "--steps", 4, "--learning-rate", 0.02, "--out", tmp_path / "run")
    assert re.search(r"LoRA of rank 2: [\d,]+ parameters are trained", outcome.err)
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert (config["training"]["optimiser"], config["training"]["lora_rank"]) == ("adamw", 2)
    old, new = (chainrule.load(path).model.state_dict() for path in (blocks, tmp_path / "run"))
    changed = {name.rpartition("layers.0.")[2] for name in old if not old[name].equal(new[name])}
    linear = {f"feed_forward.linear{number}.weight" for number in (1, 2)}
    parts = {"mixer.in_proj_weight", "mixer.out_proj.weight"} | linear
    assert {name for name in changed if name.startswith(("mixer", "feed_forward", "norm"))} == parts
    assert len(changed - parts) <= 1  # the share of the counts, which is fitted without gradients
    ok("sample", tmp_path / "run", "--length", 5)
    ok("train", "--resume", "--out", tmp_path / "run", "--steps", 5)
    again = chainrule.fit(
        str(made / "new.txt"), init=blocks, lora_rank=2, lora_alpha=4.0, steps=1, chunk_length=16
    )  # the default α is twice the rank
    assert again.task.training.lora_alpha == 4.0


def test_low_ranks_need_weights_and_blocks(refused, old, blocks, tmp_path):
    train = ("train", tmp_path / "new.txt")
    assert "--lora-rank: requires --from" in refused(*train, "--lora-rank", 2, "--out", tmp_path / "run")
    (tmp_path / "kept").mkdir()
    out = ("--out", tmp_path / "kept" / "run")
    assert "this model (LSTM) has none: leave out --lora-rank" in refused(*train, "--from", old, "--lora-rank", 2, *out)
    assert not (tmp_path / "kept" / "run").exists()
    assert "requires --optimiser adamw" in refused(
        *train, "--from", blocks, "--lora-rank", 2, "--optimiser", "muon", *out
    )
    assert "--lora-alpha: requires --lora-rank" in refused(*train, "--from", blocks, "--lora-alpha", 2, *out)


def test_what_cannot_start_from_another_says_so(command, refused, old, runs, tmp_path):
    new = tmp_path / "new.txt"
    assert "--hidden-size was 16 and is 9" in refused("train", new, "--from", old, "--hidden-size", 9)
    assert "--level was char and is word" in refused("train", new, "--from", old, "--level", "word")
    assert "give only one" in refused("train", new, "--from", old, "--resume", "--out", old)
    assert "no such run" in refused("train", new, "--from", tmp_path / "none")
