"""The pictures of the README and of the manual: short trainings of the command line, and photographs of what came out.

    python benchmarks/pictures.py --data FOLDER [--runs runs/pictures] [--only overview --only tags]

FOLDER has the data sets, one folder each, under the names of TRAININGS. A run that exists is not trained again. Each
training is one command with seed 0; together they take about twenty minutes of one core. Pages are photographed in
Chromium (pip install playwright). `pictures_overview.py` draws the picture that combines several runs.
"""

import argparse
import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from matplotlib.figure import Figure
from PIL import Image, ImageDraw
from sklearn.datasets import load_digits

import chainrule
from chainrule.data import MuLawLevels

STATIC = Path(__file__).parent.parent / "docs" / "_static"
DEMO = Path(__file__).parent.parent / "chainrule_app" / "demo"
TRAININGS = {
    "shakespeare": "{data}/tinyshakespeare/input.txt --budget 3m",
    "airline": "{made}/passengers.csv --task forecast --target Passengers --horizon 24 --budget 40s",
    "codes": "{data}/mnist/train-images-idx3-ubyte.gz --model vae --binarise fixed --latent-size 8 --budget 90s",
    "digits": "{made}/digits.npz --layers 4 --channels 32 --first-kernel-size 5 --dropout 0.2 --steps 2000",
    "tags": "{data}/ud_english_ewt/en_ewt-ud-train.conllu.gz"
    " --validation {data}/ud_english_ewt/en_ewt-ud-dev.conllu.gz --budget 2m",
    "reviews": "{data}/sst2/train.tsv --task classify --validation {data}/sst2/dev.tsv --budget 90s",
    "captions": "{made}/shapes.zip --captions {made}/shapes.txt --task caption --image-size 32 --steps 600",
    "sounds": "{data}/fsdd/train_5-19.tar.gz --label-pattern {{label}}_* --budget 2m",
    "help": "--hidden-size 64 --kneser-ney-order 0 --steps 2000",
}
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
COLOURS = ("red", "green", "blue", "orange")
SHAPES = {
    "circle": [(0, 0), (1, 1)],
    "square": [(0, 0), (0, 1), (1, 1), (1, 0)],
    "triangle": [(0, 1), (1, 1), (0.5, 0)],
}


@dataclass(frozen=True)
class Studio:
    """The runs, the data they came from, a folder for files in between, and a browser."""

    data: Path
    runs: Path
    made: Path
    browser: Any

    def train(self, name: str) -> Path:
        """The directory of a run, trained if it does not exist yet."""
        path = self.runs / name
        if not (path / "model.safetensors").exists():
            arguments = TRAININGS[name].format(data=self.data, made=self.made).split()
            chain("train", *arguments, "--seed", "0", "--out", str(path))
        return path

    def load(self, name: str) -> Any:
        """A run."""
        return chainrule.load(self.train(name))

    def photograph_both(self, address: str, name: str, **options: Any) -> None:
        """Take a part of a page in both schemes, as NAME_light.png and NAME_dark.png."""
        for scheme in ("light", "dark"):
            self.photograph(address, f"{name}_{scheme}", dark=scheme == "dark", **options)

    def photograph(
        self, address: str, name: str, *, width: int = 900, part: str = "body", dark: bool = False,
        act: Callable[[Any], object] = lambda page: None, height: int | None = None, scale: float = 1.5,
    ) -> None:  # fmt: skip
        """Take a part of a page, at most `height` of it, as docs/_static/NAME.png in 256 colours."""
        context = self.browser.new_context(
            viewport={"width": width, "height": 900},
            device_scale_factor=scale,
            color_scheme="dark" if dark else "light",
            permissions=["clipboard-read", "clipboard-write"],
        )
        page = context.new_page()
        page.goto(address)
        act(page)
        box = page.locator(part).first.bounding_box()
        room = min(box["x"], 16)
        clip = {"x": box["x"] - room, "y": box["y"], "width": box["width"] + 2 * room,
                "height": min(box["height"], height or box["height"])}  # fmt: skip
        picture = Image.open(io.BytesIO(page.screenshot(full_page=True, clip=clip))).convert("RGB")
        context.close()
        keep(picture, name)


def keep(picture: Image.Image, name: str) -> None:
    """Write docs/_static/NAME.png."""
    path = STATIC / f"{name}.png"
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB, {picture.width} × {picture.height}", flush=True)


def keep_figure(figure: Figure, name: str) -> None:
    """Write a figure of matplotlib as docs/_static/NAME.png."""
    file = io.BytesIO()
    figure.savefig(file, dpi=140, facecolor="white")
    keep(Image.open(file).convert("RGB"), name)


def chain(*arguments: str) -> None:
    """Run the command line."""
    print("$ chainrule", *arguments, flush=True)
    subprocess.run([sys.executable, "-m", "chainrule", *arguments], check=True, env={**os.environ, "COLUMNS": "100"})


@contextmanager
def served(studio: Studio, *names: str) -> Iterator[str]:
    """The address of a playground with these runs, trained here or of `chainrule demo`."""
    paths = [
        str(DEMO / name if (DEMO / name).is_dir() and name not in TRAININGS else studio.train(name)) for name in names
    ]
    command = [sys.executable, "-m", "chainrule", "serve", *paths, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().rsplit(": ", 1)[1].partition("#")[0]
        server.terminate()


def prepare(data: Path, made: Path) -> None:
    """Make the data that no publisher has: ten years of passengers, small digits, and images with captions."""
    if (made / "shapes.txt").exists():
        return
    made.mkdir(parents=True, exist_ok=True)
    lines = (data / "time_series" / "airline-passengers.csv").read_text().splitlines(keepends=True)
    (made / "passengers.csv").write_text("".join(lines[:121]))
    digits = load_digits()
    np.savez(made / "digits.npz", images=digits.images[:-300].astype(np.uint8), labels=digits.target[:-300])
    random, captions = np.random.default_rng(0), []
    with zipfile.ZipFile(made / "shapes.zip", "w") as archive:
        for number in range(4000):
            canvas = Image.new("RGB", (32, 32), "white")
            draw, side_by_side, words = ImageDraw.Draw(canvas), random.random() < 0.5, []
            for start in (1, 17):
                colour, shape = random.choice(COLOURS), random.choice(list(SHAPES))
                place, size = (start, random.integers(1, 18)), random.integers(10, 14)
                left, top = place if side_by_side else place[::-1]
                corners = [(left + size * x, top + size * y) for x, y in SHAPES[shape]]
                (draw.ellipse if shape == "circle" else draw.polygon)(corners, fill=str(colour))
                words.append(f"a {colour} {shape}")
            file = io.BytesIO()
            canvas.save(file, "png")
            archive.writestr(f"{number}.png", file.getvalue())
            if number < 8:
                (made / f"{number}.png").write_bytes(file.getvalue())
            captions.append(f"{number}.png\t{(' left of ' if side_by_side else ' above ').join(words)}\n")
    (made / "shapes.txt").write_text("".join(captions))


def mnist(data: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 28, 28) and labels (N,) as they are published."""
    images, labels = (
        np.frombuffer(gzip.decompress((data / "mnist" / f"{part}-{kind}-ubyte.gz").read_bytes()), np.uint8)
        for kind in ("images-idx3", "labels-idx1")
    )
    return images[16:].reshape(-1, 28, 28), labels[8:]


def inspect(studio: Studio) -> None:
    """The page of an inspection: its curves, and gates over the text."""
    path = studio.train("help")
    chain("inspect", str(path))
    studio.photograph((path / "report.html").resolve().as_uri(), "inspect", width=1120, part="#layer-1", height=930)


def surprise(studio: Studio) -> None:
    """The coloured text of the same kind of page."""
    path = studio.train("shakespeare")
    chain("inspect", str(path))
    studio.photograph((path / "report.html").resolve().as_uri(), "surprise", width=640, part="#surprise", height=430)


def training(studio: Studio) -> None:
    """The page of a training."""
    path = studio.train("shakespeare")
    chain("report", str(path))
    studio.photograph((path / "training.html").resolve().as_uri(), "training", part="#curves", height=430)


def images(studio: Studio) -> None:
    """New images, a column for each digit, and what may follow four upper halves."""
    run = studio.load("digits")
    new = [run.sample(2, label=str(digit), seed=digit) for digit in range(10)]
    completed = []
    for image, label in halves():
        given = np.where(np.arange(8)[:, None] < 4, image, 96)
        drawn = run.sample(9, complete=file(studio, image), keep_rows=4, label=label, seed=0)
        completed += [given[None], drawn]
    grids = [np.concatenate(np.stack(new, 1)), np.concatenate(completed)]
    keep(stacked([tiled(grid, 10) for grid in grids]), "images")


def halves() -> Iterator[tuple[np.ndarray, str]]:
    """Four digits (8, 8) that training did not read, from 0 to 240, and their labels."""
    digits = load_digits()
    for digit in (3, 2, 9, 4):
        place = np.flatnonzero(digits.target[-300:] == digit)[1]
        yield (15 * digits.images[-300:][place]).astype(np.uint8), str(digit)


def stacked(grids: list[np.ndarray]) -> Image.Image:
    """Grids of equal width with a little room between them."""
    first, *others = grids
    room = np.full((12, first.shape[1]), 255)
    return Image.fromarray(np.concatenate([first, *(part for grid in others for part in (room, grid))]).astype("uint8"))


def file(studio: Studio, image: np.ndarray, name: str = "image") -> Path:
    """An image as a file."""
    path = studio.made / f"{name}.png"
    Image.fromarray(image).save(path)
    return path


def tiled(pictures: np.ndarray, columns: int, size: int = 84) -> np.ndarray:
    """Images (N, H, W), black and white exchanged, in rows."""
    scale = size // pictures.shape[1]
    framed = np.pad(255 - pictures.repeat(scale, 1).repeat(scale, 2), ((0, 0), (3, 3), (3, 3)), constant_values=255)
    rows = [np.concatenate(list(framed[start : start + columns]), 1) for start in range(0, len(framed), columns)]
    return np.concatenate(rows)


def codes(studio: Studio) -> None:
    """Ways from one image to another through the code, and images that nobody wrote."""
    run = studio.load("codes")
    pictures, labels = mnist(studio.data, "t10k")
    ways = []
    for start, end in ((7, 1), (0, 6), (4, 9)):
        first, second = (file(studio, pictures[labels == label][3], f"{label}.digit") for label in (start, end))
        ways.append(run.interpolate(first, second, count=8))
    new = run.sample(20, seed=0, mean=True)
    keep(stacked([tiled(np.concatenate(ways), 10), tiled(new, 10)]), "codes")


def forecast(studio: Studio) -> None:
    """The plot of `chainrule forecast`."""
    path = studio.train("airline")
    out = studio.made / "forecast.png"
    out.unlink(missing_ok=True)
    chain("forecast", str(path), str(studio.made / "passengers.csv"), "--seed", "0", "--quantiles", "0.1,0.5,0.9",
          "--plot", str(out), "--out", os.devnull)  # fmt: skip
    keep(Image.open(out).convert("RGB"), "airline")


def tags(studio: Studio) -> None:
    """Sentences with their tags, in the playground."""

    def act(page: Any) -> None:
        page.get_by_role("textbox").fill("Time flies like an arrow .\nThe old man the boat while Zoe googled it .")
        page.get_by_role("button", name="Tag").click()
        page.locator(".tagged").nth(1).wait_for()

    with served(studio, "tags") as address:
        studio.photograph(f"{address}#tags", "tags", part="main", act=act, height=520)


def labels(studio: Studio) -> None:
    """A review and the probabilities of its labels, in the playground."""

    def act(page: Any) -> None:
        page.get_by_role("textbox").fill("the acting is superb , but the plot drags and drags")
        page.keyboard.press("Control+Enter")
        page.locator(".bars li").nth(1).wait_for()

    with served(studio, "reviews") as address:
        studio.photograph(f"{address}#reviews", "labels", part="main", act=act, height=368)


def captions(studio: Studio) -> None:
    """Where a model looked for each word."""
    out = studio.made / "look.png"
    out.unlink(missing_ok=True)
    chain("caption", str(studio.train("captions")), str(studio.made / "3.png"), "--beam", "5", "--plot", str(out))
    keep(Image.open(out).convert("RGB"), "captions")


def sound(studio: Studio) -> None:
    """A recording with some samples replaced by noise, and the bits of each sample."""
    model = studio.load("sounds").model
    with tarfile.open(studio.data / "fsdd" / "test_0-4.tar.gz") as archive:
        recording = archive.extractfile("7_jackson_0.wav")
        assert recording is not None
        samples, rate = soundfile.read(io.BytesIO(recording.read()))
    samples[1600:1800] = np.random.default_rng(0).normal(0, samples.std(), 200)
    levels = torch.from_numpy(MuLawLevels(256).encode(samples)).unsqueeze(0)
    with torch.no_grad():
        bits = -model(levels, torch.tensor([7])).log_prob(levels)[0].numpy() / np.log(2)
    seconds = np.arange(len(samples)) / rate
    figure = Figure(figsize=(7.6, 3.2), layout="constrained")
    above, below = figure.subplots(2, sharex=True)
    above.plot(seconds, samples, color="#1b1d21", linewidth=0.6)
    below.plot(seconds, bits, color="#c04f00", linewidth=0.3, alpha=0.6)
    below.plot(seconds, np.convolve(bits, np.full(80, 1 / 80), "same"), color="#c04f00", linewidth=1.8)
    above.set_ylabel("a recording")
    below.set_ylabel("bits a sample")
    below.set_xlabel("seconds")
    for axes in (above, below):
        axes.axvspan(1600 / rate, 1800 / rate, color="#0072b2", alpha=0.2, linewidth=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0)
    above.text(1800 / rate, samples.max(), " noise put in", color="#0072b2", va="top")
    keep_figure(figure, "sound")


def overview(studio: Studio) -> None:
    """The picture at the top of the README."""
    from pictures_overview import overview

    overview(studio)


def playground(studio: Studio) -> None:
    """Views of the playground, light and dark."""
    from pictures_playground import playground

    playground(studio)


def thumbnails(studio: Studio) -> None:
    """The pictures of the README's gallery, parts of the others."""
    from pictures_playground import thumbnails

    thumbnails()


PICTURES = {
    "overview": overview, "inspect": inspect, "surprise": surprise, "training": training,
    "images": images, "codes": codes, "forecast": forecast, "tags": tags, "labels": labels,
    "captions": captions, "sound": sound, "playground": playground, "thumbnails": thumbnails,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--runs", type=Path, default=Path("runs/pictures"), help="folder of the runs")
    parser.add_argument("--only", choices=PICTURES, action="append", help="one of the pictures; may be repeated")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    made = options.runs / "made"
    prepare(options.data, made)
    with sync_playwright() as playwright:
        browser = shutil.which("chromium") or shutil.which("google-chrome")
        studio = Studio(
            options.data, options.runs, made, playwright.chromium.launch(executable_path=browser, args=FLAGS)
        )
        for name in options.only or PICTURES:
            PICTURES[name](studio)


if __name__ == "__main__":
    main()
