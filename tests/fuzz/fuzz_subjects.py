"""What is fuzzed: small data of every format, and for every task a way to train on it and verbs to call."""

import gzip
import io
import math
import struct
import wave
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image

from chainrule_app.readers.music import midi_file

SMALL = ["--hidden-size", "4", "--steps", "2", "--batch-size", "2", "--dropout", "0"]
COLOURS = {"red": (200, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 200)}


@dataclass(frozen=True)
class Subject:
    """A task on data of one format.

    Args:
        name: of the subject and of its run.
        data: files and folders that training reads, in the folder of the data; the first one is mutated.
        train: arguments of `chainrule train`, `{data}` standing for the folder of the data.
        verbs: command lines on a run, `{run}` standing for it and `{data}` for the folder of the data.
        made: command lines after training, which write more of the data; training does not read that.
    """

    name: str
    data: tuple[str, ...]
    train: tuple[str, ...]
    verbs: tuple[tuple[str, ...], ...] = field(default=())
    made: tuple[tuple[str, ...], ...] = field(default=())


def subject(name: str, data: str, train: str, *verbs: str, made: tuple[str, ...] = ()) -> Subject:
    """A subject from command lines as a person writes them."""
    common = ("info {run}", "info {run} --json", "train --resume --out {run} --steps 3")
    lines = tuple(tuple(line.split()) for line in (*verbs, *common))
    return Subject(name, tuple(data.split()), tuple(train.split()), lines, tuple(tuple(line.split()) for line in made))


TEXT = " ".join([*SMALL, "--chunk-length 8 --validation-fraction 0.2"])
IMAGES = "--channels 6 --layers 1 --first-kernel-size 3 --batch-size 4 --steps 2"
SOUNDS = "--channels 4 --blocks 1 --layers-per-block 2 --skip-channels 4 --steps 2"
SCORES = (
    "score {run} {data}/log.txt --per line",
    "score {run} {data}/log.txt --sort --json",
    "sample {run} --length 9",
)
INSPECT = "inspect {run} --rows 2 --steps 8"
SUBJECTS = {
    each.name: each
    for each in (
        subject("stream", "log.txt", f"{{data}}/log.txt {TEXT} --model gru", *SCORES, INSPECT),
        subject(
            "chain", "noise.chain plain.chain", f"{{data}}/noise.txt {TEXT} --model gru",
            *(f"decompress {{run}} {{data}}/{name}.chain --out {{run}}/../back{more}"
              for name in ("noise", "plain") for more in ("", " --json")),
            made=("compress {run} {data}/noise.txt --out {data}/noise.chain",
                  "compress {run} {data}/log.txt --out {data}/plain.chain"),
        ),
        subject("lines", "log.txt", f"{{data}}/log.txt {TEXT} --reading lines", *SCORES),
        subject("words", "log.txt", f"{{data}}/log.txt {TEXT} --level word --model rnn", *SCORES),
        subject("subwords", "log.txt", f"{{data}}/log.txt {TEXT} --level bpe --vocabulary-size 270", *SCORES),
        subject("bytes", "roll.mid", f"{{data}}/roll.mid {TEXT} --level byte", *SCORES, "score {run} {data}/roll.mid"),
        subject(
            "table", "rows.csv", "{data}/rows.csv --hidden-size 4 --steps 2",
            "score {run} {data}/rows.csv", "sample {run} -n 2", "fill {run} {data}/rows.csv",
            "predict {run} {data}/rows.csv", "score {run} {data}/rows.csv --per cell --given all",
        ),
        subject("tsv", "rows.tsv.gz", "{data}/rows.tsv.gz --task table --hidden-size 4 --steps 2", "sample {run} -n 2"),
        subject(
            "npz", "images.npz", f"{{data}}/images.npz {IMAGES} --bits 2",
            "score {run} {data}/images.npz", "sample {run} -n 1 --out {run}/../drawn.png",
        ),
        subject("idx", "digits-images-idx3-ubyte", f"{{data}}/digits-images-idx3-ubyte {IMAGES} --task image"),
        subject("png", "folder", f"{{data}}/folder {IMAGES} --task image", "score {run} {data}/folder"),
        subject(
            "wav", "clips", f"{{data}}/clips {SOUNDS}",
            "score {run} {data}/clips", "sample {run} --seconds 0.01 --out {run}/../drawn.wav",
        ),
        subject("sounds-zip", "clips.zip", f"{{data}}/clips.zip {SOUNDS} --task sound", "score {run} {data}/clips.zip"),
        subject(
            "music", "roll.mid", "{data}/roll.mid --hidden-size 4 --steps 2",
            "score {run} {data}/roll.mid", "sample {run} --seconds 1 --prompt {data}/roll.mid --out {run}/../new.mid",
            "inspect {run} {data}/roll.mid --frames 2",
        ),
        subject(
            "tag", "words.conllu",
            "{data}/words.conllu --hidden-size 4 --embedding-size 4 --character-size 4 --steps 2",
            "tag {run} {data}/words.conllu", "evaluate {run} {data}/words.conllu",
            "tag {run} {data}/log.txt --text --json",
        ),
        subject(
            "classify", "labelled.tsv", f"{{data}}/labelled.tsv --task classify --embedding-size 4 {' '.join(SMALL)}",
            "classify {run} {data}/labelled.tsv --json", "evaluate {run} {data}/labelled.tsv",
            "classify {run} {data}/log.txt",
        ),
        subject(
            "translate", "pairs.tsv",
            "{data}/pairs.tsv --task translate --model-size 4 --num-heads 1 --min-count 1 --steps 2",
            "translate {run} {data}/log.txt --max-length 9", "evaluate {run} {data}/pairs.tsv",
        ),
        subject(
            "caption", "images.zip captions.txt",
            "{data}/images.zip --captions {data}/captions.txt --task caption --image-size 16 --image-features 8 "
            "--hidden-size 4 --embedding-size 4 --min-count 1 --steps 2",
            "caption {run} {data}/one.png",
        ),
        subject(
            "forecast", "days.csv",
            "{data}/days.csv --task forecast --target heat --covariates wind --horizon 2 "
            "--hidden-size 4 --steps 2",
            "forecast {run} {data}/days.csv --paths 4", "evaluate {run} {data}/days.csv --paths 4",
        ),
    )
}  # fmt: skip


def write_data(folder: Path) -> None:
    """Write the data of all subjects."""
    chooser = Random(0)
    lines = [f"line {n} of the café log, all is {'well' if n % 7 else 'odd'}" for n in range(60)]
    _write(folder / "log.txt", lines)
    _write(folder / "noise.txt", ["".join(chooser.choices("abcdefghij", k=70)) for _ in range(80)])
    roll = np.array([[n % 3 == 0, n % 4 == 0] for n in range(200)])
    (folder / "roll.mid").write_bytes(midi_file(roll))
    rows = [f"{'red' if n % 3 else 'blue'},{n * n % 101},{'' if n % 11 == 3 else n % 37 / 7}" for n in range(60)]
    _write(folder / "rows.csv", ["colour,count,height", *rows])
    with gzip.open(folder / "rows.tsv.gz", "wt") as file:
        file.write("\n".join(row.replace(",", "\t") for row in ["colour,count,height", *rows]))
    words = [chooser.choice(["running", "kindness", "useful"]) for _ in range(60)]
    tagged = [f"{n % 3 + 1}\t{word}\t_\t{word[-3:].upper()}\tX\t_\t_\t_\t_\t_" for n, word in enumerate(words)]
    _write(
        folder / "words.conllu", [line for n, row in enumerate(tagged) for line in ([row, ""] if n % 3 == 2 else [row])]
    )
    _write(folder / "labelled.tsv", [f"thing {n} is {'good' if n % 2 else 'bad'}\t{n % 2}" for n in range(40)])
    _write(folder / "pairs.tsv", [f"{'eins zwei'[n % 3 :]}\t{'one two'[n % 3 :]}" for n in range(40)])
    _write(
        folder / "days.csv", ["date,heat,wind", *(f"2024-01-{n + 1:02},{math.sin(n):.3f},{n % 5}" for n in range(31))]
    )
    _write_images(folder)
    _write_sounds(folder)


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _write_images(folder: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 5, 6)).astype(np.uint8)
    np.savez(folder / "images.npz", images=pixels, labels=np.arange(12) % 2)
    head = struct.pack(">HBBIII", 0, 8, 3, *pixels.shape)
    (folder / "digits-images-idx3-ubyte").write_bytes(head + pixels.tobytes())
    (folder / "folder").mkdir()
    names = list(COLOURS)
    with zipfile.ZipFile(folder / "images.zip", "w") as archive:
        for number in range(9):
            content = io.BytesIO()
            Image.new("RGB", (16, 16), COLOURS[names[number % 3]]).save(content, "PNG")
            archive.writestr(f"{number}.png", content.getvalue())
            (folder / "folder" / f"{number}.png").write_bytes(content.getvalue())
    (folder / "one.png").write_bytes(content.getvalue())
    _write(folder / "captions.txt", [f"{n}.png#{k}\ta {names[n % 3]} square" for n in range(9) for k in range(2)])


def _write_sounds(folder: Path) -> None:
    (folder / "clips").mkdir()
    with zipfile.ZipFile(folder / "clips.zip", "w") as archive:
        for number in range(6):
            path = folder / "clips" / f"{number}.wav"
            samples = (8000 * np.sin(np.arange(120 + number) * (number % 2 + 1) / 3)).astype("<i2")
            with wave.open(str(path), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(8000)
                file.writeframes(samples.tobytes())
            archive.write(path, path.name)
