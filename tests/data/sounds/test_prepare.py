"""Sounds on disk."""

import json
import tracemalloc

import numpy as np
import pytest
from sound_files import tone, write

from chainrule.data import MuLawLevels
from chainrule_app.readers.sounds.prepare import prepare_sounds


def clip(sounds, part, number):
    tokens = getattr(sounds, part)
    starts, stops = tokens.line_bounds(np.array([number]))
    return tokens.slice(starts[0], stops[0])


def test_clips_are_the_levels_of_the_files(folder, tmp_path):
    sounds = prepare_sounds(folder, tmp_path / "data", label_pattern="{label}_*")
    manifest = sounds.manifest
    assert manifest["sequences"] == "clips"
    assert manifest["labels"] == ["high", "low"]
    assert (manifest["train"]["clips"], manifest["valid"]["clips"]) == (18, 2)
    total = sum(100 + 7 * number for number in range(20))
    assert manifest["train"]["samples"] + manifest["valid"]["samples"] == total == len(sounds.train) + len(sounds.valid)
    expected = {
        tuple(MuLawLevels(256).encode(tone(100 + 7 * number, hertz=(200, 1500)[number % 2]))): 1 - number % 2
        for number in range(20)
    }
    for part, labels in (("train", sounds.train_labels), ("valid", sounds.valid_labels)):
        for number, label in enumerate(labels):
            levels = clip(sounds, part, number)
            near = [name for codes, name in expected.items() if len(codes) == len(levels)]
            assert near == [label]
            (codes,) = [codes for codes in expected if len(codes) == len(levels)]
            assert np.abs(np.array(codes) - levels).max() <= 1  # a wav of 16 bits rounds


def test_the_end_of_a_few_files_is_held_out(tmp_path):
    write(tmp_path / "long.wav", tone(20_000))
    sounds = prepare_sounds(tmp_path / "long.wav", tmp_path / "data", validation_fraction=0.25)
    assert sounds.manifest["sequences"] == "stream"
    assert (len(sounds.train), len(sounds.valid)) == (15_000, 5_000)
    whole = MuLawLevels(256).encode(tone(20_000))
    joined = np.concatenate([sounds.train.slice(0, 15_000), sounds.valid.slice(0, 5_000)])
    assert np.abs(joined - whole).max() <= 1


def test_sounds_to_hold_out_may_be_given(folder, tmp_path):
    write(tmp_path / "other" / "low_bob_1.wav", tone(77))
    sounds = prepare_sounds(
        folder, tmp_path / "data", label_pattern="{label}_*", validation=tmp_path / "other" / "low_bob_1.wav"
    )
    assert (sounds.manifest["train"]["clips"], len(sounds.valid)) == (20, 77)
    assert sounds.valid_labels.tolist() == [1]
    write(tmp_path / "odd" / "loud_bob_1.wav", tone(77))
    with pytest.raises(ValueError, match="the label 'loud' is not in the training files: high, low"):
        prepare_sounds(folder, tmp_path / "data", label_pattern="{label}_*", validation=tmp_path / "odd")


def test_folders_are_labels_where_every_sound_is_in_one(tmp_path):
    for name in ("a/1.wav", "a/2.wav", "b/1.wav"):
        write(tmp_path / "sounds" / name, tone(60))
    assert prepare_sounds(tmp_path / "sounds", tmp_path / "data").manifest["labels"] == ["a", "b"]
    assert prepare_sounds(tmp_path / "sounds", tmp_path / "data", labels="none").manifest["labels"] == []
    write(tmp_path / "sounds" / "3.wav", tone(60))
    assert prepare_sounds(tmp_path / "sounds", tmp_path / "data").manifest["labels"] == []
    with pytest.raises(ValueError, match="labels: expected sounds in two folders or more"):
        prepare_sounds(tmp_path / "sounds", tmp_path / "data", labels="folders")


def test_mixed_rates_are_brought_to_one(folder, tmp_path):
    write(folder / "low_ann_99.wav", tone(8000, rate=16000), rate=16000)
    sounds = prepare_sounds(folder, tmp_path / "data")
    assert sounds.rate == 8000
    assert sounds.manifest["rates"] == {"8000": 20, "16000": 1}
    lengths = np.diff(np.fromfile(tmp_path / "data" / "train.clips", dtype="<i8")).tolist()
    lengths += np.diff(np.fromfile(tmp_path / "data" / "valid.clips", dtype="<i8")).tolist()
    assert 4000 in lengths
    assert prepare_sounds(folder, tmp_path / "data", rate=4000).rate == 4000


def test_high_rates_are_lowered_unless_asked_for(tmp_path):
    write(tmp_path / "a.wav", tone(9000, rate=44100), rate=44100)
    assert prepare_sounds(tmp_path / "a.wav", tmp_path / "data").rate == 16000
    assert prepare_sounds(tmp_path / "a.wav", tmp_path / "data", rate=44100).rate == 44100


def test_a_corrupt_sound_in_the_middle_is_named_and_skipped_only_if_asked(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "chainrule_app.readers.sounds.sound_file.BLOCK", 64
    )  # the last one is found out at its second block
    (folder / "low_ann_5.wav").write_bytes(b"RIFF nothing more")
    write(folder / "low_ann_6.wav", tone(0))
    write(folder / "low_ann_7.wav", np.array([0.1] * 90 + [np.inf], dtype=np.float32), subtype="FLOAT")
    with pytest.raises(ValueError, match=r"low_ann_5\.wav: not a readable sound file .* skip_bad leaves such files"):
        prepare_sounds(folder, tmp_path / "data")
    assert not (tmp_path / "data" / "sounds.json").exists()
    sounds = prepare_sounds(folder, tmp_path / "data", skip_bad=True)
    assert [bad["file"] for bad in sounds.manifest["skipped"]] == [f"low_ann_{n}.wav" for n in (5, 6, 7)]
    assert sounds.manifest["train"]["clips"] + sounds.manifest["valid"]["clips"] == 19  # one of three was good
    # Nothing of a file skipped half-way is left.
    assert len(sounds.train) + len(sounds.valid) == sum(100 + 7 * number for number in range(20) if number != 6)


def test_silence_and_clipping_are_counted_and_silence_alone_is_refused(folder, tmp_path):
    write(folder / "low_ann_50.wav", np.zeros(300))
    write(folder / "low_ann_51.wav", tone(300, loud=2.0), subtype="FLOAT")
    manifest = prepare_sounds(folder, tmp_path / "data").manifest
    assert manifest["silent"] == 1
    assert manifest["clipped"] == int((np.abs(tone(300, loud=2.0)) > 1).sum())
    write(tmp_path / "quiet" / "a.wav", np.zeros(900))
    with pytest.raises(ValueError, match="expected sounds, got silence"):
        prepare_sounds(tmp_path / "quiet", tmp_path / "data")


def test_memory_does_not_grow_with_the_sound(tmp_path, monkeypatch):
    monkeypatch.setattr("chainrule_app.readers.sounds.sound_file.BLOCK", 1 << 12)
    peaks = []
    for frames in (150_000, 600_000):
        write(tmp_path / "a.wav", tone(frames))
        tracemalloc.start()
        prepare_sounds(tmp_path / "a.wav", tmp_path / "data", rate=6000)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": "none", "label_pattern": "{label}_*"}, "label_pattern: expected no pattern with labels=none"),
        ({"sequences": "stream", "label_pattern": "{label}_*"}, "sequences: expected clips where sounds have labels"),
    ],
)
def test_wrong_options_are_named(folder, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        prepare_sounds(folder, tmp_path / "data", **options)


def test_the_manifest_is_json_without_folders_of_the_machine(folder, tmp_path):
    prepare_sounds(folder, tmp_path / "data")
    text = (tmp_path / "data" / "sounds.json").read_text()
    assert json.loads(text)["source"]["name"] == "sounds"
    assert str(tmp_path) not in text
