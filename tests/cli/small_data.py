"""Small data of every task, and the arguments that train on them."""

import io
import random
import zipfile

import numpy as np
from PIL import Image

from chainrule_app.readers.music import midi_file
from chainrule_app.readers.sounds.sound_file import write_wav

TABLE_COLUMNS = ["colour", "count", "height", "class"]


def write_text(folder):
    draw = random.Random(0)
    return [written(folder / "log.txt", [f"{draw.randrange(100)} is a number" for _ in range(200)])]


def write_table(folder):
    draw = random.Random(0)
    rows = [f"{draw.choice('ab')},{draw.choice('xyz')},{draw.randrange(3)}" for _ in range(60)]
    return [written(folder / "table.csv", ["first,second,third", *rows])]


def write_images(folder):
    np.savez(folder / "images.npz", images=np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8))
    return [folder / "images.npz", "--bits", 2]


def write_labelled(folder):
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    np.savez(folder / "labelled.npz", images=images, labels=[0, 1] * 20)
    return [folder / "labelled.npz", "--task", "classify"]


def write_tags(folder):
    lines = [f"{word}\t{tag}" for _ in range(30) for word, tag in (("the", "D"), ("dog", "N"), ("", ""))]
    return [written(folder / "tags.tsv", [line.strip() for line in lines]), "--task", "tag"]


def write_classes(folder):
    rows = [f"{label}\ta {label} text number {number}" for number in range(30) for label in ("good", "bad")]
    return [written(folder / "classes.tsv", rows), "--task", "classify"]


def write_series(folder):
    draw = random.Random(0)
    rows = [f"2020-01-{day:02} {hour:02}:00,{hour + draw.random()}" for day in range(1, 29) for hour in range(24)]
    return [written(folder / "series.csv", ["time,load", *rows]), "--task", "forecast"]


def write_sounds(folder):
    (folder / "clips").mkdir()
    for number in range(10):
        write_wav(folder / "clips" / f"{number}.wav", np.sin(np.arange(120 + number)), 8000)
    return [folder / "clips", "--blocks", 1, "--layers-per-block", 2]


def write_music(folder):
    (folder / "songs").mkdir()
    draw = np.random.default_rng(0)
    for number in range(10):
        roll = draw.integers(0, 2, (12 + number, 5))
        (folder / "songs" / f"{number}.mid").write_bytes(midi_file(roll, lowest=60))
    return [folder / "songs"]


def write_pairs(folder):
    draw = random.Random(0)
    rows = [[draw.randrange(3) for _ in range(draw.randint(1, 3))] for _ in range(60)]
    lines = ["\t".join(" ".join(names[n] for n in row) for names in (("a", "b", "c"), ("x", "y", "z"))) for row in rows]
    return [written(folder / "pairs.tsv", lines), "--task", "translate", "--batch-size", 16]


def write_captions(folder):
    with zipfile.ZipFile(folder / "images.zip", "w") as archive:
        for number in range(24):
            content = io.BytesIO()
            Image.new("RGB", (8, 8), (200, 10 * number, 0)).save(content, "PNG")
            archive.writestr(f"{number}.png", content.getvalue())
    captions = written(folder / "captions.txt", [f"{n}.png\ta red square" for n in range(24)])
    sizes = ["--image-size", 8, "--max-length", 8, "--batch-size", 4]
    return [folder / "images.zip", "--captions", captions, "--task", "caption", *sizes]


def written(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


WRITERS = {
    "text": write_text,
    "table": write_table,
    "image": write_images,
    "sound": write_sounds,
    "music": write_music,
    "tag": write_tags,
    "classify": write_classes,
    "classify-images": write_labelled,
    "translate": write_pairs,
    "caption": write_captions,
    "forecast": write_series,
}

SMALL_SIZES = {  # that make a small network
    **dict.fromkeys(("text", "table", "music", "tag", "classify", "caption", "forecast"), "--hidden-size 8"),
    "image": "--channels 4 --layers 1",
    "sound": "--channels 4",
    "classify-images": "--model vit --model-size 8 --num-heads 2",  # statistics of a batch move without a rate
    "translate": "--model-size 8 --num-heads 2",
}


def write_colours(path, count, seed):
    """Rows of a colour, a size that follows it, and a weight."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        colour = draw.choice(["red", "red", "blue"])
        size = (colour == "red") == (draw.random() < 0.9)
        rows.append(f"{colour},{'big' if size else 'small'},{draw.gauss(0, 1):.3f}")
    path.write_text("colour,size,weight\n" + "\n".join(rows) + "\n")
    return path
