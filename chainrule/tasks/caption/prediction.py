"""Images in, their captions out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chainrule.tasks.abilities import Answer, Record

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.data.images.source import Pixels
    from chainrule.models.captioner import Captioner
    from chainrule.tasks.caption.task import CaptionData, CaptionTask


@dataclass(frozen=True)
class CaptionOptions:
    """Write a caption for each image, a line each.

    Args:
        files: Image files.
        json: Print one JSON object a caption, with "image", "caption", "nats" and "proven".
    """

    beam: int = 5
    """Prefixes kept side by side; 1 is greedy."""
    n_best: int = 1
    """Captions of each image, the best first."""
    max_length: int | None = None
    """Most words of a caption; that of training if not given."""
    length_penalty: float = 0.7
    """Captions are compared by log-probability over length to this power."""
    attention: Path | None = None
    """A .png file, of one image: where the model looked for each word."""


def caption(run: "CaptionTask", images: Sequence[str], options: CaptionOptions, *, device: str) -> Answer:
    """Caption images."""
    from chainrule.tasks.caption.searching import search, words_of

    attention = options.attention
    if not images:
        raise ValueError("FILES: expected at least one image, got none")
    if attention is not None and (len(images) > 1 or attention.suffix.lower() != ".png"):
        raise ValueError(f"--attention: expected a .png file for a single image, got {attention}")
    if attention is not None and run.config.options.attention is None:
        raise ValueError("--attention: expected a run with attention, got one that reads a single vector")
    if not 1 <= options.n_best <= options.beam:
        raise ValueError(f"--n-best: expected from 1 to --beam {options.beam}, got {options.n_best}")
    pixels = [read_image(Path(image), run.data) for image in images]
    model, vocabulary = run.model(device), run.prepared.vocabulary
    found = search(
        model,
        pixels,
        vocabulary,
        beam=options.beam,
        n_best=options.n_best,
        max_length=options.max_length or run.data.max_length,
        length_penalty=options.length_penalty,
    )

    def records() -> Iterator[Record]:
        for image, decoded in zip(images, found, strict=True):
            for text, log_prob in zip(words_of(decoded, vocabulary), decoded.log_probs.tolist(), strict=True):
                values = {"image": image, "caption": text, "nats": -log_prob, "proven": decoded.proven}
                yield Record(values, text if len(images) == 1 else f"{image}\t{text}")
            if attention is not None:
                yield _drawn(run, model, pixels[0], decoded.sequences[0], attention)

    return Answer(records())


def read_image(path: Path, data: "CaptionData") -> "Pixels":
    """An image file as pixels (3, S, S), made to fit as those of the run.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no image.
    """
    from chainrule.data.images.folder import Reading
    from chainrule.data.text import check_file

    reading = Reading(size=(data.image_size, data.image_size), colour="rgb", fit=data.fit)
    return reading.image(check_file(path).read_bytes(), str(path))[0]


def _drawn(run: "CaptionTask", model: "Captioner", pixels: "Pixels", symbols: "Tensor", out: Path) -> Record:
    """Draw where the model looked for each word of a caption."""
    from chainrule.diagnostics.image_attention import image_attention
    from chainrule.tasks.caption.searching import looked_at
    from chainrule.tasks.page import save_figure

    if not len(symbols):
        raise ValueError("--attention: the caption is empty, there is nothing to draw")
    words = [run.prepared.vocabulary.decode([symbol]) for symbol in symbols.tolist()]
    save_figure(image_attention(pixels, words, looked_at(model, pixels, symbols)), out)
    return Record({}, f"{out}: where the model looked for each word", notice=True)
