"""Train on scikit-learn's handwritten digits, draw new ones beside real ones, and compare with independent pixels.

python examples/images.py [SECONDS]
"""

import sys
from pathlib import Path

import numpy as np
import torch

import chainrule

RUN = Path("runs/demo-images")
TRAIN, TEST, IMAGE = (RUN.with_name(f"demo-digits-{name}") for name in ("train.npz", "test.npz", "samples.png"))
LEVELS, CLASSES, TEST_IMAGES = 17, 10, 300


def main(budget: str = "60s") -> None:
    """Train, compare, draw."""
    write_digits()
    sizes = {"layers": 4, "channels": 32, "first_kernel_size": 5, "dropout": 0.2}
    chainrule.fit(TRAIN, out=RUN, overwrite=True, budget=budget, **sizes)
    compare()
    draw()


def write_digits() -> None:
    """1,797 images of 8×8 pixels in 17 levels; the last 300 are neither trained on nor validated on."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = digits.images.astype(np.uint8), digits.target
    RUN.parent.mkdir(parents=True, exist_ok=True)
    np.savez(TRAIN, images=images[:-TEST_IMAGES], labels=labels[:-TEST_IMAGES])
    np.savez(TEST, images=images[-TEST_IMAGES:], labels=labels[-TEST_IMAGES:])


def compare() -> None:
    """Print the bits that each method needs for a pixel of the test images."""
    from rich.console import Console
    from rich.table import Table

    with np.load(TRAIN) as train, np.load(TEST) as test:
        known, known_labels = train["images"].reshape(-1, 64), train["labels"]
        unknown, unknown_labels = test["images"].reshape(-1, 64), test["labels"]
    rows = [
        ("chainrule, this model", model_bits(unknown, unknown_labels), "all pixels before it, and the label"),
        ("independent pixels, given the label", pixel_bits(known, known_labels, unknown, unknown_labels), "the label"),
        ("independent pixels", pixel_bits(known, 0 * known_labels, unknown, 0 * unknown_labels), "nothing"),
        ("uniform", float(np.log2(LEVELS)), "nothing"),
    ]
    table = Table(title=f"{len(unknown)} test images, 17 levels a pixel, as they are")
    table.add_column("method")
    table.add_column("bits/dim", justify="right")
    table.add_column("a pixel is given")
    for method, bits, given in rows:
        table.add_row(method, f"{bits:.3f}", given)
    Console().print(table)


def model_bits(images: np.ndarray, labels: np.ndarray) -> float:
    """Mean bits per pixel under the model."""
    from chainrule.training import bits

    model = chainrule.load(RUN).model
    x = torch.from_numpy(images).view(-1, 1, 8, 8).long()
    with torch.no_grad():
        return bits(-float(model.log_prob(x, torch.from_numpy(labels)).double().sum()) / x.numel())


def pixel_bits(known: np.ndarray, known_labels: np.ndarray, images: np.ndarray, labels: np.ndarray) -> float:
    """Mean bits per pixel where each pixel has a distribution of its own: its values in training, each counted once
    more (Laplace)."""
    counts = np.ones((CLASSES, 64, LEVELS))
    np.add.at(counts, (known_labels[:, None], np.arange(64), known), 1)
    probabilities = counts / counts.sum(2, keepdims=True)
    return float(-np.log2(probabilities[labels[:, None], np.arange(64), images]).mean())


def draw() -> None:
    """Real images on the left, drawn ones on the right, a column for each digit."""
    from chainrule_app import grid, png

    with np.load(TEST) as test:
        real = np.stack([test["images"][test["labels"] == digit][:4] for digit in range(CLASSES)], 1)
    wanted = torch.arange(CLASSES).repeat(4)
    drawn = chainrule.load(RUN).model.sample(40, wanted, generator=torch.Generator().manual_seed(0))
    left, right = (
        grid((images.reshape(40, 1, 8, 8) * (255 // (LEVELS - 1))).astype(np.uint8), CLASSES, least=40)
        for images in (real, drawn.numpy())
    )
    IMAGE.write_bytes(png(np.concatenate([left, np.full((len(left), 24), 255, np.uint8), right], 1)))
    print(f"Real digits (left) beside drawn ones (right), a column for each digit: {IMAGE}")


if __name__ == "__main__":
    main(*sys.argv[1:])
