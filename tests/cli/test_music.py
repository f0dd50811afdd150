"""Music from MIDI files to a run, and what the verbs do with it."""

import json
import math
import shutil

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import chainrule
from chainrule.tensor_files import write_tensors
from chainrule_app.readers.music import midi_file, read_midi
from chainrule_app.tasks.music.task import MusicTask

TINY = ("--hidden-size", 8, "--batch-size", 2, "--chunk-length", 16)
TEMPO = 90


def scale(number, length=40):
    """A piece that goes up and down a scale over a held note."""
    roll = np.zeros((length, 88), np.uint8)
    roll[:, 15] = 1
    roll[np.arange(length), 30 + (np.arange(length) + number) % 8] = 1
    return roll


def make_pieces(home, count=20):
    home.mkdir()
    for number in range(count):
        content = midi_file(scale(number, 30 + number), quarters_per_minute=TEMPO + number % 3)
        (home / f"{number:02}.mid").write_bytes(content)
    return home


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    return make_pieces(tmp_path_factory.mktemp("music") / "songs")


@pytest.fixture(scope="module")
def made(pieces, tmp_path_factory):
    """A run of a few steps; not to be written to."""
    from chainrule_app.cli.main import main

    out = tmp_path_factory.mktemp("runs") / "songs"
    assert main(list(map(str, ["train", pieces, "--out", out, "--steps", 4, *TINY]))) == 0
    return out


def test_a_folder_of_midi_files_is_found_shown_and_learnt(ok, pieces, tmp_path):
    out = tmp_path / "run"
    outcome = ok("train", pieces, "--out", out, "--steps", 25, *TINY, "--semitones", 0, "--json")
    assert json.loads(outcome.out)["nats_per_frame"] < 8  # 88 keys in halves have 61, one frame in twenty 16
    for shown in ("songs, read as music: 18 pieces", "2 held out, 4 frames a quarter note, 91 quarter notes a minute"):
        assert shown in outcome.err
    preview = read_midi((out / "preview.mid").read_bytes(), "preview")
    assert round(preview.quarters_per_minute) == 91
    ok("report", out)
    assert "samples at step" in (out / "training.html").read_text()


def test_one_file_is_held_out_at_its_end(ok, pieces, tmp_path):
    ok("train", pieces / "03.mid", "--out", tmp_path / "run", "--steps", 1, *TINY)
    music = MusicTask.open(tmp_path / "run").music
    whole = np.concatenate([music["train"].roll(0), music["valid"].roll(0)])
    np.testing.assert_array_equal(whole, scale(3, 33))
    assert len(music["valid"].roll(0)) == 3


def test_sampled_pieces_are_the_samples_of_the_model(ok, made, tmp_path):
    run = MusicTask.open(made)
    arguments = ("-n", 2, "--seed", 5, "--temperature", 0.8, "--out", tmp_path / "new.mid", "--json")
    outcome = ok("sample", made, "--seconds", 2, *arguments)
    frames = round(2 * 91 / 60 * 4)
    generator = torch.Generator().manual_seed(5)
    drawn = run.model().sample(2, length=frames, temperature=0.8, generator=generator).numpy()
    for number, (roll, line) in enumerate(zip(drawn, outcome.out.splitlines(), strict=True), 1):
        file = tmp_path / f"new-{number}.mid"
        assert json.loads(line) == {"file": str(file), "seconds": pytest.approx(frames / 4 * 60 / 91)}
        assert file.read_bytes() == midi_file(roll, quarters_per_minute=91)
    rolls = chainrule.load(made).sample(2, seed=5, seconds=2, temperature=0.8)
    np.testing.assert_array_equal(rolls, drawn)
    assert rolls.dtype == np.uint8


def test_a_piece_may_have_a_beginning_and_a_tempo(ok, made, pieces, tmp_path):
    out, prompt = tmp_path / "a.mid", pieces / "04.mid"
    ok("sample", made, "--prompt", prompt, "--tempo", 30, "--seed", 1, "--out", out)
    train = MusicTask.open(made).facts.train
    found = read_midi(out.read_bytes(), "a")
    assert len(found.roll) <= 34 + round(train.frames / train.pieces)
    assert round(found.quarters_per_minute) == 30
    content = out.read_bytes()
    drawn = chainrule.load(made).sample(1, seed=1, prompt=prompt, tempo=30)[0]
    np.testing.assert_array_equal(drawn[:34], scale(4, 34))
    assert content == midi_file(drawn, quarters_per_minute=30)


def test_scores_are_those_of_the_model_most_surprising_first(command, made, pieces, monkeypatch):
    monkeypatch.setattr("chainrule_app.tasks.music.task._CHUNK", 7)
    records = [json.loads(line) for line in command("score", made, pieces, "--sort", "--json").out.splitlines()]
    assert len(records) == 20
    model = MusicTask.open(made).model()
    for record in records[:3]:
        number = int(record["file"][:2])
        roll = torch.from_numpy(scale(number, 30 + number)).unsqueeze(0)
        nats = -model(roll).log_prob(roll)[0].detach()
        assert record["nats"] == pytest.approx(float(nats.sum()), rel=1e-5)
        assert record["bits_per_frame"] == pytest.approx(float(nats.mean()) / math.log(2), rel=1e-5)
        assert record["most_at"] == pytest.approx(int(nats.argmax()) / 4 * 60 / 91)
    bits = [record["bits_per_frame"] for record in records]
    assert bits == sorted(bits, reverse=True)
    assert "measured: exact; nats per frame, 88 keys, 4 frames a quarter note" in command("score", made, pieces).out


def test_validation_is_the_score_of_the_held_out_pieces(made, pieces, tmp_path, command):
    out = tmp_path / "run"
    arguments = ("--validation", pieces, "--semitones", 0, "--steps", 1, "--precision", "float32", "--json")
    summary = json.loads(command("train", pieces, "--out", out, *TINY, *arguments).out)
    scored = chainrule.load(out).score(pieces)
    assert summary["nats_per_frame"] == pytest.approx(sum(scored["nats"]) / sum(scored["frames"]), rel=1e-5)


def test_training_pieces_are_moved_within_the_keyboard():
    from chainrule_app.readers.music import _moved

    roll = scale(0) > 0
    np.testing.assert_array_equal(_moved(roll, 5)[:, 20:], roll[:, 15:-5])
    assert _moved(roll, -99)[:, 0].all()
    assert _moved(roll, 99)[:, -1].any()
    assert not _moved(np.zeros((3, 88), bool), 3).any()


def test_a_damaged_file_is_named_and_skipped_only_if_asked(command, refused, made, pieces, tmp_path):
    home = tmp_path / "songs"
    shutil.copytree(pieces, home)
    (home / "04.mid").write_bytes((home / "04.mid").read_bytes()[:-9])
    message = refused("train", home, "--out", tmp_path / "run", "--steps", 1, *TINY)
    assert "04.mid: truncated" in message
    assert "--skip-bad" in message
    assert not (tmp_path / "run").exists()
    outcome = command("train", "--skip-bad", home, "--out", tmp_path / "run", "--steps", 1, *TINY)
    assert "skipped: 04.mid: truncated" in outcome.err
    assert "04.mid" in refused("score", made, home)
    *_, total, _, skipped = command("score", made, home, "--skip-bad").out.splitlines()
    assert total.startswith("files 19, ")
    assert skipped.startswith("skipped: 04.mid: ")


def test_what_cannot_be_is_refused_in_one_line(refused, made, pieces, tmp_path):
    prompt = ("--prompt", pieces / "04.mid")
    assert "more than the 5.60 of the prompt" in refused("sample", made, *prompt, "--seconds", 1)
    assert "--prompt: expected one MIDI file, got 20" in refused("sample", made, "--prompt", pieces)
    assert "--out x.wav: expected a name that ends in .mid" in refused("sample", made, "--out", "x.wav")
    assert "--tempo" in refused("sample", made, "--tempo", 0)
    assert "temperature" in refused("sample", made, "--temperature", -1)
    assert "DATA: expected MIDI files to train on, got none" in refused("train", "--task", "music")
    assert "--from: " in refused("train", pieces, "--from", made, "--frames-per-quarter", 8, "--out", tmp_path / "x")
    (tmp_path / "short").mkdir()
    (tmp_path / "short" / "a.mid").write_bytes(midi_file([[1]], lowest=60))
    assert "too little" in refused("train", tmp_path / "short", "--out", tmp_path / "x")


def test_inspect_tells_how_much_of_the_past_is_used(command, made, pieces):
    figures = json.loads(command("inspect", made, pieces / "19.mid", "--frames", 5, "--seed", 1, "--json").out)
    assert [row["quarters"] for row in figures["past"]] == [0, 1, 4]
    roll = torch.from_numpy(scale(19, 49)).float()
    ends = np.random.default_rng(1).permutation(49 - 16)[:5] + 17
    model = MusicTask.open(made).model()
    for row in figures["past"]:
        x = torch.stack([roll[end - 1 - 4 * row["quarters"] : end] for end in ends])
        expected = -model(x).log_prob(x)[:, -1].mean().item()
        assert row["nats_per_frame"] == pytest.approx(expected, rel=1e-5)
    assert "from  4 quarter notes before" in command("inspect", made).out
    assert "quarter notes before" in (made / "report.html").read_text()


def test_info_and_check_know_music(command, made):
    shown = command("info", made).out
    for part in ("rnn-made", "nats per frame", "read as music: 18 pieces", "91 quarter notes a minute", "--resume"):
        assert part in shown


def test_a_damaged_order_of_the_keys_is_one_line(refused, made, tmp_path):
    """MADE's order and degrees are saved with its weights; one that is no permutation ended in a traceback."""
    shutil.copytree(made, tmp_path / "run")
    weights = tmp_path / "run" / "model.safetensors"
    tensors, metadata = load_file(weights), safe_open(weights, "pt").metadata()
    for name in ("made.order", "made.degrees_0"):
        record = json.loads(metadata["chainrule"].partition(" ")[2])
        write_tensors(weights, {**tensors, name: tensors[name] - 9}, record)
        assert f"{weights}: damaged ({name[5:10]}" in refused("sample", tmp_path / "run", "--seconds", 1)


@pytest.mark.slow
def test_a_run_of_music_keeps_the_contract(ok, made):
    ok("check", made)


def test_piano_rolls_in_memory_are_pieces(made, pieces):
    rolls = [scale(number, 30 + number) for number in range(20)]
    run = chainrule.fit(rolls, task="music", steps=1, hidden_size=8)
    assert run.task.name == "music"
    assert run.config["facts"]["train"]["pieces"] == 18
    found, expected = chainrule.load(made).score(rolls), chainrule.load(made).score(pieces)
    assert found["nats"] == expected["nats"]
    assert len(run.sample(1, seed=0, prompt=rolls[0])[0]) > 30
