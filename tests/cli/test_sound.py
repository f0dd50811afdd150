"""Sounds from files to a run, and what the verbs do with it."""

import json
import math
import shutil

import numpy as np
import pytest
import soundfile
import torch

from chainrule_app.readers.sounds.sound_file import write_wav
from chainrule_app.tasks.sound import verbs
from chainrule_app.tasks.sound.run import SoundRun

RATE = 8000
TINY = ("--channels", 4, "--blocks", 1, "--layers-per-block", 3, "--skip-channels", 8)
PATTERN = ("--label-pattern", "{label}_*")


def make_clips(home, count=20):
    home.mkdir()
    for number in range(count):
        hertz, name = ((200, "low"), (1500, "high"))[number % 2]
        write_wav(home / f"{name}_{number}.wav", 0.5 * np.sin(2 * np.pi * hertz * np.arange(150 + number) / RATE), RATE)
    return home


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    return make_clips(tmp_path_factory.mktemp("sounds") / "clips")


@pytest.fixture(scope="module")
def made(clips, tmp_path_factory):
    """Two runs of a few steps, one with labels; not to be written to."""
    from chainrule_app.cli.main import main

    home = tmp_path_factory.mktemp("runs")
    for name, options in {"labelled": PATTERN, "plain": ()}.items():
        arguments = ["train", clips, *options, "--out", home / name, "--steps", 4, *TINY]
        assert main([str(argument) for argument in arguments]) == 0
    return home


def test_clips_are_found_shown_and_learnt(ok, clips, tmp_path):
    out = tmp_path / "run"
    outcome = ok("train", clips, *PATTERN, "--out", out, "--steps", 30, *TINY, "--learning-rate", 0.03, "--json")
    summary = json.loads(outcome.out)
    assert summary["bits_per_sample"] == pytest.approx(summary["nats_per_element"] / math.log(2))
    assert summary["bits_per_sample"] < 6  # of 8, with no more than a period of a tone
    for shown in (
        "clips, read as sound, clips: 18 (0.4 s) to train on, 2 (0.0 s) held out, at 8,000 Hz in 256 μ-law levels",
        "2 labels: high, low",
        "each sample is predicted from the 8 before it, 1 ms",
        "preview.wav",
    ):
        assert shown in outcome.err
    preview, rate = soundfile.read(out / "preview.wav")
    assert (len(preview), rate) == (round(SoundRun.open(out).facts.train.samples / 18), RATE)


def test_a_long_sound_is_a_stream(ok, tmp_path):
    write_wav(tmp_path / "long.wav", np.sin(np.arange(9000) / 5) / 2, RATE)
    out = tmp_path / "run"
    outcome = ok(
        "train", tmp_path / "long.wav", "--out", out, "--steps", 3, *TINY, "--chunk-length", 256, "--batch-size", 4
    )
    assert "read as sound, stream" in outcome.err
    assert SoundRun.open(out).labels == []
    ok("sample", out, "--seconds", 0.01, "--out", tmp_path / "new.wav")
    assert len(soundfile.read(tmp_path / "new.wav")[0]) == 80


def test_sixteen_linear_bits_go_with_a_mixture_of_logistics(command, ok, clips, tmp_path):
    out = tmp_path / "run"
    arguments = (clips, "--law", "linear", "--out", out, "--steps", 2, *TINY)
    ok("train", *arguments)
    run = SoundRun.open(out)
    assert (run.levels.levels, run.model().components) == (65536, 10)
    ok("sample", out, "--out", tmp_path / "new.wav", "--temperature", 0.5, "--seconds", 0.001)
    records = [json.loads(line) for line in command("score", out, clips, "--json").out.splitlines()]
    assert all(math.isfinite(record["nats"]) for record in records)


def test_sampled_sounds_are_the_samples_of_the_model(ok, made, tmp_path):
    run = SoundRun.open(made / "labelled")
    outcome = ok("sample", run.path, "-n", 3, "--seed", 5, "--seconds", 0.02, "--out", tmp_path / "new.wav", "--json")
    records = [json.loads(line) for line in outcome.out.splitlines()]
    assert [record["label"] for record in records] == ["high", "low", "high"]
    generator = torch.Generator().manual_seed(5)
    drawn = run.model().sample(3, torch.tensor([0, 1, 0]), length=160, generator=generator)
    for number, row in enumerate(drawn.numpy(), 1):
        samples, rate = soundfile.read(tmp_path / f"new-{number}.wav")
        assert rate == RATE
        np.testing.assert_allclose(samples, run.levels.decode(row), atol=2**-15)
    assert records[2]["file"] == str(tmp_path / "new-3.wav")


def test_half_weights_are_rounded_and_a_note_says_so(command, made, monkeypatch, tmp_path):
    run, arguments = SoundRun.open(made / "plain"), ("--seconds", 0.001, "--out", tmp_path / "a.wav")
    drawn_from = []
    rounds = verbs._round_weights
    monkeypatch.setattr(verbs, "_round_weights", lambda model: drawn_from.append(model) or rounds(model))
    assert "rounded to float16" not in command("sample", run.path, *arguments).err
    assert not drawn_from
    assert "rounded to float16" in command("sample", run.path, "--half-weights", *arguments).err
    for rounded, exact in zip(drawn_from[0].parameters(), run.model().parameters(), strict=True):
        assert torch.equal(rounded, exact if exact.dim() == 1 else exact.half().float())


def test_a_sample_may_have_a_label_and_a_beginning(command, made, clips, tmp_path):
    arguments = ("--prompt", clips / "low_2.wav", "--seconds", 0.05, "--seed", 1, "--out", tmp_path / "a.wav", "--json")
    record = json.loads(command("sample", made / "labelled", "--label", "low", *arguments).out)
    run = SoundRun.open(made / "labelled")
    prompt = run.levels.encode(soundfile.read(clips / "low_2.wav", dtype="float32")[0])
    assert (record["label"], record["seconds"]) == ("low", 0.05)
    samples = soundfile.read(tmp_path / "a.wav")[0]
    np.testing.assert_allclose(samples[: len(prompt)], run.levels.decode(prompt), atol=2**-15)
    drawn = run.model().sample(
        1, torch.tensor([1]), length=400, prefix=torch.from_numpy(prompt), generator=torch.Generator().manual_seed(1)
    )
    decoded = run.levels.decode(drawn[0].numpy())  # however little of the prompt the model is shown
    np.testing.assert_allclose(samples, decoded, atol=2**-15)
    shown = command("sample", made / "plain", "--seed", 1, "--out", tmp_path / "b.wav").err
    assert shown.startswith(f"{tmp_path / 'b.wav'}: ")
    assert len(soundfile.read(tmp_path / "b.wav")[0]) == round(SoundRun.open(made / "plain").facts.train.samples / 18)


def test_scores_are_those_of_the_model_most_surprising_first(command, made, clips, monkeypatch):
    monkeypatch.setattr("chainrule_app.tasks.sound.verbs._CHUNK", 37)
    run = SoundRun.open(made / "labelled")
    records = [json.loads(line) for line in command("score", run.path, clips, "--json").out.splitlines()]
    assert len(records) == 20
    model = run.model()
    for record in records[:3]:
        x = run.levels.encode(soundfile.read(clips / record["file"], dtype="float32")[0])
        label = torch.tensor([run.labels.index(record["file"].partition("_")[0])])
        nats = -float(model.log_prob(torch.from_numpy(x).unsqueeze(0), label).detach())
        assert record["nats"] == pytest.approx(nats, rel=1e-5)
        assert record["bits_per_sample"] == pytest.approx(nats / len(x) / math.log(2), rel=1e-5)
    ordered = map(json.loads, command("score", run.path, clips, "--sort", "--json").out.splitlines())
    bits = [record["bits_per_sample"] for record in ordered]
    assert bits == sorted((record["bits_per_sample"] for record in records), reverse=True)
    _, *shown, total, measured = command("score", run.path, clips, "--top", 2).out.splitlines()
    assert [float(row.split()[5]) for row in shown] == pytest.approx(bits[:2], abs=5e-5)  # four decimals
    assert measured.startswith("measured: exact")
    assert total.startswith("files 20, nats per file ")


def test_the_place_of_most_surprise_is_told(command, made, tmp_path):
    quiet = np.zeros(4000)
    quiet[3000:3200] = np.random.default_rng(0).uniform(-1, 1, 200)
    write_wav(tmp_path / "low_odd.wav", quiet, RATE)
    record = json.loads(command("score", made / "labelled", tmp_path / "low_odd.wav", "--json").out)
    assert record["most_at"] == pytest.approx(3100 / RATE, abs=0.03)


def test_a_corrupt_file_is_named_and_skipped_only_if_asked(command, ok, refused, made, clips, tmp_path):
    home = tmp_path / "clips"
    shutil.copytree(clips, home)
    (home / "low_4.wav").write_bytes(b"RIFF and no more")
    message = refused("train", home, "--out", tmp_path / "run", "--steps", 1, *TINY)
    assert "low_4.wav: not a readable sound file" in message
    assert "--skip-bad" in message
    assert not (tmp_path / "run").exists()
    outcome = ok("train", "--skip-bad", home, "--out", tmp_path / "run", "--steps", 1, *TINY)
    assert "skipped: " in outcome.err
    assert "low_4.wav" in refused("score", made / "plain", home)
    *_, total, _, skipped = command("score", made / "plain", home, "--skip-bad").out.splitlines()
    assert total.startswith("files 19, ")
    assert skipped.startswith("skipped: ")


def test_what_cannot_be_is_refused_in_one_line(refused, made, clips, tmp_path):
    labelled, plain = made / "labelled", made / "plain"
    assert "--label: expected one of high, low, got '7'" in refused("sample", labelled, "--label", 7)
    assert "--label: this run was trained without labels" in refused("sample", plain, "--label", "low")
    assert "--label: this run was trained without labels" in refused("score", plain, clips, "--label", "low")

    assert "--out x.mp3: expected a name that ends in .wav" in refused("sample", plain, "--out", "x.mp3")
    for seconds in (0, "inf", "nan", 1e300):
        assert "--seconds: expected" in refused("sample", plain, "--seconds", seconds)
    prompt = ("--prompt", clips / "low_2.wav")
    assert "more than the 0.02 of the prompt" in refused("sample", plain, *prompt, "--seconds", 0.001)
    assert "--prompt: expected one sound, got 20" in refused("sample", plain, "--prompt", clips)
    assert "DATA: expected sounds to train on, got none" in refused("train", "--task", "sound")
    train = ("train", clips, "--out", tmp_path / "x")
    assert "does not fit --label-pattern" in refused(*train, "--label-pattern", "{label}-*")
    assert "--levels: expected a power of two" in refused(*train, "--law", "linear", "--levels", 9)
    assert not (tmp_path / "x").exists()
    write_wav(tmp_path / "odd.wav", np.zeros(9), RATE)
    assert "--label-pattern" in refused("score", labelled, tmp_path / "odd.wav")
    assert "--resume" in refused("train", "--resume", "--out", plain, "--channels", 5)


def test_inspect_tells_how_far_back_it_listens(command, refused, made, clips, tmp_path):
    figures = json.loads(command("inspect", made / "labelled", "--json").out)
    assert figures["receptive_field"] == figures["reached"] == 8
    assert figures["as_declared"]
    assert figures["influence"][8:] == [0.0] * (figures["read"] - 9)
    assert "reads the run's held-out sounds" in refused("inspect", made / "labelled", clips / "low_2.wav")
    page = (made / "labelled" / "report.html").read_text()
    assert "How far back the model hears" in page
    assert "by derivatives" in page
    shown = command("inspect", made / "plain").out
    assert "receptive field   8 samples, 1.0 ms (by the architecture)" in shown
    assert "dilations 1 2 4, 2 taps" in shown


def test_info_and_check_know_sounds(command, checked, made):
    shown = command("info", made / "labelled").out
    for part in ("wavenet", "bits per sample", "8,000 Hz", "2 labels: high, low", "--resume"):
        assert part in shown
    facts = json.loads(command("info", made / "labelled", "--json").out)
    assert (facts["task"], facts["receptive_field"]) == ("sound", 8)
    handed = checked(made / "labelled")
    assert handed.x.shape == (2, 8)  # all that are held out
    assert handed.context.shape == (2,)


def test_a_changed_config_is_refused(refused, made, tmp_path):
    shutil.copytree(made / "labelled", tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    original = config.read_text()
    for old, new in (('"rate": 8000', '"rate": "x"'), ('"high"', "3")):
        assert old in original
        config.write_text(original.replace(old, new))
        assert "config.json" in refused("info", tmp_path / "run")


def test_sounds_of_a_rate_that_nobody_hears_are_named(refused, tmp_path):
    for name in "ab":
        soundfile.write(tmp_path / f"{name}.wav", np.random.default_rng(0).normal(size=50) / 9, 1)
    message = refused("train", tmp_path, "--task", "sound", "--steps", 1, "--out", tmp_path / "run")
    assert "expected at least 100 samples a second, got 1: pass --rate" in message
