"""Preparation of each task: the training part has the same bits whatever is held out."""

import json
import random
import wave
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from PIL import Image

from chainrule_app.readers.captions import prepare_captions
from chainrule_app.readers.corpus import prepare_corpus
from chainrule_app.readers.held_out import OneInEvery, hold_out
from chainrule_app.readers.images.prepare import prepare_images
from chainrule_app.readers.labelled.prepare import prepare_labelled
from chainrule_app.readers.music import midi_file, prepare_music
from chainrule_app.readers.pairs import prepare_pairs
from chainrule_app.readers.series.prepare import prepare_series
from chainrule_app.readers.sounds.prepare import prepare_sounds
from chainrule_app.readers.tables.prepare import prepare_table
from chainrule_app.readers.tagged.prepare import prepare_tagged

ROWS, FRACTION = 60, 0.1
WORDS, OTHERS = ["the", "cat", "sat", "on", "a", "mat", "and", "ate"], ["zebra", "Quay", "naïve", "42", "übermut"]


def drawn():
    return OneInEvery(FRACTION, 0).take(ROWS)


def shuffled():
    return hold_out(ROWS, FRACTION, 0)


def written(path, flags, changed, row):
    """Write a row for each flag: another one where a row is held out and the held-out part is changed."""
    path.write_text("".join(row(random.Random(n), held and changed) + "\n" for n, held in enumerate(flags)))
    return path


def sentence(draw, other, count):
    return " ".join(draw.choices(OTHERS if other else WORDS, k=count))


def table(folder, changed):
    def row(draw, other):
        day = datetime(2099 if other else 2024, 1, 1) + timedelta(days=draw.randrange(300))
        size = f"{draw.gauss(1e6, 9e5):.6f}" if other else f"{draw.gauss(0, 1):.2f}"
        count = draw.randrange(10**6, 10**7) if other else draw.randrange(9)
        return f"{draw.choice('xyz' if other else 'abc')},{count},{size},{day:%d/%m/%Y},{draw.choice('01')}"

    path = written(folder / "rows.csv", drawn(), changed, row)
    prepare_table(path, folder / "out", header=False, validation_fraction=FRACTION)
    return ["columns"]


def labelled(folder, changed):
    def row(draw, other):
        return f"{sentence(draw, other, 6)}\t{'good' if other else draw.choice(('bad', 'good'))}"

    path = written(folder / "texts.tsv", shuffled(), changed, row)
    prepare_labelled(path, folder / "out", validation_fraction=FRACTION, ngram_order=2)
    return ["labels", "symbols", "columns", "train"]


def tagged(folder, changed):
    def row(draw, other):
        tags = draw.choices(["O", "B-X"] if other else ["O", "B-X", "B-Y", "I-Y"], k=6)
        return "".join(f"{word}\t{tag}\n" for word, tag in zip(sentence(draw, other, 6).split(), tags, strict=True))

    path = written(folder / "tags.tsv", shuffled(), changed, row)
    prepare_tagged(path, folder / "out", validation_fraction=FRACTION, repair=True)
    return ["scheme", "tags", "different_words"]


def pairs(folder, changed):
    def row(draw, other):
        return f"{sentence(draw, other, 6)}\t{sentence(draw, other, 9 if other else 5)}"

    path = written(folder / "pairs.tsv", drawn(), changed, row)
    prepare_pairs(folder / "out", path, validation_fraction=FRACTION, min_count=1)
    return ["train", "symbols"]


def captions(folder, changed):
    (folder / "images").mkdir()
    lines = []
    for number, held in enumerate(hold_out(20, FRACTION, 0)):
        draw, other = random.Random(number), held and changed
        pixels = np.random.default_rng(number).integers(200 if other else 0, 256, (9, 9, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"images/{number:02}.png")
        lines.append(f"{number:02}.png\t{sentence(draw, other, 9 if other else 5)}\n")
    (folder / "captions.txt").write_text("".join(lines))
    prepare_captions(
        folder / "out", folder / "images", folder / "captions.txt", size=8, min_count=1, validation_fraction=FRACTION
    )
    return ["train", "words"]


def images(folder, changed):
    """A label that held-out images alone have would renumber the others."""
    held, labels = shuffled(), np.arange(ROWS) % 3 * 10
    pixels = np.random.default_rng(0).integers(0, 17, (ROWS, 8, 8)).astype(np.uint8)
    if changed:
        pixels[held], labels[held] = 0, 10
    np.savez(folder / "x.npz", images=pixels, labels=labels)
    prepare_images(folder / "x.npz", folder / "out", validation_fraction=FRACTION)
    return ["found_levels", "classes", "shape"]


def sounds(folder, changed):
    """The lowest rate of all files was that of all, and long files made one stream of all."""
    (folder / "in").mkdir()
    for number, held in enumerate(OneInEvery(FRACTION, 0).take(20)):
        random, other = np.random.default_rng(number), held and changed
        label = "low" if other or number % 2 else "high"
        with wave.open(str(folder / f"in/{number:02}_{label}.wav"), "wb") as file:
            file.setparams((1, 2, 1000 if other else 2000, 0, "NONE", ""))
            file.writeframes((random.normal(size=9000 if other else 300) * 9000).astype("<i2").tobytes())
    prepare_sounds(folder / "in", folder / "out", label_pattern="*_{label}", validation_fraction=FRACTION)
    return ["rate", "labels", "sequences", "train"]


def streams(folder, changed):
    (folder / "in").mkdir()
    for number, held in enumerate(OneInEvery(0.3, 0).take(20)):
        with wave.open(str(folder / f"in/{number:02}.wav"), "wb") as file:
            file.setparams((1, 2, 2000, 0, "NONE", ""))
            samples = np.random.default_rng(number).normal(size=900 if held and changed else 300) * 9000
            file.writeframes(samples.astype("<i2").tobytes())
    prepare_sounds(folder / "in", folder / "out", longest_clip=400, validation_fraction=0.3)
    return ["rate", "sequences", "train"]


def music(folder, changed):
    (folder / "in").mkdir()
    for number, held in enumerate(hold_out(20, 0.4, 0)):
        other = held and changed
        roll = np.random.default_rng(number).random((12, 40)) < (0.5 if other else 0.1)
        tempo = 300 if other else 100 + number
        (folder / f"in/{number:02}.mid").write_bytes(midi_file(roll, lowest=30, quarters_per_minute=tempo))
    options = {"frames_per_quarter": 4, "validation": None, "skip_bad": False, "seed": 0}
    prepare_music(folder / "in", folder / "out", validation_fraction=0.4, **options)
    return ["quarters_per_minute", "train"]


def text(level, reading):
    def prepare(folder, changed):
        lines = [sentence(random.Random(number), False, 6) for number in range(200)]
        rest = ["".join(chr(ord(letter) + 1) for letter in line) if changed else line for line in lines[182:]]
        (folder / "text.txt").write_text("".join(f"{line}\n" for line in lines[:182] + rest))
        prepare_corpus(folder / "text.txt", folder / "out", level=level, reading=reading, validation_fraction=0.09)
        return ["train"]

    prepare.__name__ = f"text of {level}s in {reading}"
    return prepare


TEXTS = [text(level, reading) for level in ("char", "byte", "word", "bpe") for reading in ("stream", "lines")]


@pytest.mark.parametrize(
    "prepare",
    [table, labelled, tagged, pairs, captions, images, sounds, streams, music, *TEXTS],
    ids=lambda prepare: prepare.__name__,
)
def test_the_training_part_does_not_depend_on_what_is_held_out(prepare, tmp_path):
    stores, manifests = [], []
    for name, changed in (("one", False), ("other", True)):
        (tmp_path / name).mkdir()
        keys = prepare(tmp_path / name, changed)
        out = tmp_path / name / "out"
        manifest = next(content for path in out.glob("*.json") if "arrays" in (content := json.loads(path.read_text())))
        arrays = {file for file in manifest["files"] if file not in {path.name for path in out.glob("*.json")}}
        learnt = {"vocabulary.json", "schema.json", "symbols.json", "labels.json", "source.json", "target.json"}
        files = {path.name: path.read_bytes() for path in out.iterdir() if path.name in learnt | arrays}
        manifests.append({key: manifest[key] for key in keys})
        stores.append(files)
    one, other = stores
    assert manifests[0] == manifests[1]
    held_out = {name for name in one if name.startswith("valid")}
    assert held_out
    assert len(one) - len(held_out) > 0
    assert {name for name in one if one[name] != other.get(name)} <= held_out
    assert any(one[name] != other[name] for name in held_out)


def series_file(path, header, rows):
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def days(folder, changed):
    """A gap ends where the held-out rows begin, and covariates have one, too."""
    rows = []
    for day in range(100):
        draw = random.Random(day)
        heat, wind = draw.gauss(0, 1), draw.random()
        if day >= 90 and changed:
            heat, wind = 1000 + 99 * heat, -50 * wind
        gap = 85 <= day < 90 or day in (20, 21)
        heat, wind = "" if gap else f"{heat:.2f}", "" if 88 <= day < 91 else f"{wind:.2f}"
        if day not in (40, 86):
            rows.append(f"{datetime(2024, 1, 1) + timedelta(days=day):%Y-%m-%d},{heat},{wind}")
    path = series_file(folder / "days.csv", "date,heat,wind", rows)
    return prepare_series(path, folder / "out", target="heat", covariates="wind", horizon=5)


def hours(folder, changed):
    """Clocks go forward in the held-out rows, and a week begins in them for the second time."""
    zone, first = ZoneInfo("Europe/Berlin"), datetime(2024, 3, 19, tzinfo=ZoneInfo("Europe/Berlin"))
    rows = []
    for hour in range(336):
        moment = first.astimezone(UTC) + timedelta(hours=hour)
        moment = moment.astimezone(zone if changed else timezone(timedelta(hours=1)))
        rows.append(f"{moment.isoformat()},{hour % 24 + 500 * (changed and hour > 280)}")
    path = series_file(folder / "hours.csv", "at,load", rows)
    return prepare_series(path, folder / "out", target="load", horizon=24, validation_fraction=0.2)


def items(folder, changed):
    rows = []
    for item, size in (("a", 1), ("b", 1000)):
        for day in range(60):
            value = day % 7 * size + (day >= 54 and changed) * 10**6
            row = f"{item},{datetime(2024, 1, 1) + timedelta(days=day):%Y-%m-%d},{value},{size}"
            if day not in (30, 53):
                rows.append(row)
    path = series_file(folder / "items.csv", "item_id,at,sold,size", rows)
    return prepare_series(path, folder / "out", target="sold", static="size", horizon=3)


@pytest.mark.parametrize("prepare", [days, hours, items])
def test_the_training_rows_of_series_do_not_depend_on_later_ones(prepare, tmp_path):
    """Gaps were interpolated up to held-out values, and clocks that change later made all dates ones of UTC."""
    parts = []
    for name, changed in (("one", False), ("other", True)):
        (tmp_path / name).mkdir()
        parts.append(prepare(tmp_path / name, changed))
    one, other = parts
    rows = slice(0, one.train_rows)
    assert one.train_rows == other.train_rows
    assert one.schema == other.schema
    np.testing.assert_array_equal(one.values[rows], other.values[rows])
    np.testing.assert_array_equal(one.features[rows], other.features[rows])
    assert not np.array_equal(one.values[one.train_rows :], other.values[one.train_rows :])
