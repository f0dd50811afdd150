"""Test pictures on disk beside what `score` says of them, and beside PNG, WebP and JPEG XL without loss.

    python benchmarks/quality_gpu.py --minutes 7.5 --only cifar  # or, without a GPU, quality_cifar.py
    chainrule train MNIST.npz --task image --no-labels --model pixelcnn --out runs/mnist
    python benchmarks/compression_pictures.py --cifar runs/benchmarks/gpu-cifar-1 --mnist runs/mnist

The pictures are the first 85 and 5,120 (--pictures) of the test part of `cifar10_subset/cifar10_subset.npz` and of
`binarized_mnist/binarized_mnist.npz` in FOLDER (default: ../shared/data, or the environment variable CHAINRULE_DATA);
the runs must not have seen them. Ours are written as an array of NumPy by `chainrule compress`, read back and compared;
the run has to be shipped beside them. The other formats write each picture as a file of its own and all of them as one
large one, and the smaller counts, at their highest effort; pictures of two levels as one bit a pixel where a format has
that. JPEG XL needs `pip install pillow-jxl-plugin`; without it it is left out, with a line that says so.
"""

import argparse
import math
import os
import time
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from side_by_side import claim, publish

from chainrule_app import open_run
from chainrule_app.tasks.compression import compress_data

SETS = {
    "cifar": ("cifar10_subset/cifar10_subset.npz", "x_test", (32, 32, 3)),
    "mnist": ("binarized_mnist/binarized_mnist.npz", "test", (28, 28, 1)),
}
FORMATS: dict[str, dict[str, Any]] = {
    "PNG": {"format": "PNG", "optimize": True},
    "WebP": {"format": "WEBP", "lossless": True, "quality": 100, "method": 6},
    "JPEG XL": {"format": "JXL", "lossless": True, "effort": 9},
}
SHARES = {"PNG": 1, "WebP": 1, "JPEG XL": 0.97}  # of their bytes, at most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--cifar", type=Path)
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--pictures", type=int, nargs=2, default=(85, 5120), metavar=("CIFAR", "MNIST"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for (name, (file, array, shape)), count in zip(SETS.items(), options.pictures, strict=True):
        place = getattr(options, name)
        if place is None:
            print(f"{name}: left out, there is no run: name it with --{name}")
            continue
        with np.load(options.data / file) as arrays:
            pictures = arrays[array][:count].reshape(-1, *shape)
        found = [ours(place, pictures), *(row for kind in FORMATS if (row := another(kind, pictures)))]
        claims = [claim(f"{name}: bits/dim on disk ÷ score", found[0]["÷ score"], "<=", 1.005)]
        claims += [
            claim(f"{name}: bytes ÷ {row['format']}", found[0]["bytes"] / row["bytes"], "<=", SHARES[row["format"]])
            for row in found[1:]
        ]
        publish(f"compression_pictures_{name}", [{"pictures": len(pictures), **row} for row in found], claims)


def ours(place: Path, pictures: "np.ndarray[Any, Any]") -> dict[str, Any]:
    """The array, compressed with the run."""
    run = open_run(place)
    kept = BytesIO()
    np.save(kept, pictures.squeeze(-1) if pictures.shape[-1] == 1 else pictures)
    data = kept.getvalue()
    began = time.process_time()
    made = compress_data(data, {"files": [["test.npy", len(data)]]}, run)
    assert made.method == "run", made.note
    seconds, model = time.process_time() - began, run.model()
    x = torch.from_numpy(pictures.astype(np.int64)).permute(0, 3, 1, 2)
    with torch.no_grad():
        bits = sum(-float(model.log_prob(part).sum()) for part in x.split(20)) / math.log(2)
    return {
        "format": f"chainrule, {run.config.model}",
        "bytes": len(made.data),
        "bits/dim": 8 * len(made.data) / pictures.size,
        "score, bits/dim": bits / pictures.size,
        "÷ score": 8 * len(made.data) / bits,
        "core s, written and read": seconds,
    }


def another(kind: str, pictures: "np.ndarray[Any, Any]") -> dict[str, Any] | None:
    """The pictures in another format, apart or in one picture; `None` where the format is not installed."""
    if kind == "JPEG XL":
        try:
            import_module("pillow_jxl")
        except ImportError:
            print("JPEG XL is left out: pip install pillow-jxl-plugin")
            return None
    sizes = {
        "each in a file": sum(size(kind, picture) for picture in pictures),
        "all in one file": size(kind, mosaic(pictures)),
    }
    way = min(sizes, key=lambda name: sizes[name])
    return {"format": kind, "bytes": sizes[way], "bits/dim": 8 * sizes[way] / pictures.size, "stored": way}


def mosaic(pictures: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """All pictures in a rectangle, as near a square as their number allows."""
    columns = max(number for number in range(1, math.isqrt(len(pictures)) + 1) if len(pictures) % number == 0)
    _, height, width, channels = pictures.shape
    grid = pictures.reshape(-1, columns, height, width, channels).transpose(0, 2, 1, 3, 4)
    return grid.reshape(-1, columns * width, channels)


def size(kind: str, pixels: "np.ndarray[Any, Any]") -> int:
    """Bytes of a picture as the format writes it, read back and compared."""
    binary = pixels.max() <= 1
    shown = pixels * np.uint8(255) if binary else pixels
    image = Image.fromarray(shown.squeeze(-1) if shown.shape[-1] == 1 else shown)
    candidates = [image, image.convert("1", dither=Image.Dither.NONE)] if binary and kind == "PNG" else [image]
    found = []
    for candidate in candidates:
        written = BytesIO()
        candidate.save(written, **FORMATS[kind])
        with Image.open(written) as again:
            back = np.asarray(again.convert(image.mode)).reshape(shown.shape)
        assert (back == shown).all(), kind
        found.append(len(written.getvalue()))
    return min(found)


if __name__ == "__main__":
    main()
