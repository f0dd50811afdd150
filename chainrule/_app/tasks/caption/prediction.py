"""Caption images, and compare captions with human references."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule._app.results import Column, Result
from chainrule._app.tasks.config import MOST_SEED, NBestOptions, SearchOptions, within
from chainrule._app.tasks.display import Switch

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from chainrule._app.tasks.caption.task import CaptionData, CaptionTask
    from chainrule.data import Batch
    from chainrule.data._captions import Caption, ImageStore
    from chainrule.data._images.source import Pixels
    from chainrule.models import Captioner


@dataclass(frozen=True)
class CaptionOptions(NBestOptions):
    """Write a caption for each image.

    Args:
        files: Image files.
        json: Print one JSON object a caption, with "image", "caption", "nats" and "proven".
        plot: A .png file, of one image: where the model looked for each word.
    """

    length_penalty: float = within(0.7, 0.0, 1e9)
    max_length: int | None = within(None, 1, 1 << 16)
    """Most words of a caption; that of training if not given."""


def caption(run: "CaptionTask", images: list[str], options: CaptionOptions, *, device: str) -> Result:
    """Caption images."""
    import torch

    from chainrule._app.tasks.caption.searching import search, words_of
    from chainrule._modes import device_of
    from chainrule.decoding import rescored

    if not images:
        raise ValueError("FILES: expected at least one image, got none")
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
    best: dict[int, Tensor] = {}

    def rows() -> Iterator[Sequence[Any]]:
        device = device_of(model)
        for place, (image, shown, decoded) in enumerate(zip(images, pixels, found, strict=True)):
            context = torch.from_numpy(shown).unsqueeze(0).to(device)
            decoded = rescored(model, context, decoded, eos=vocabulary.eos, length_penalty=options.length_penalty)
            best[place] = decoded.sequences[0]
            for text, log_prob in zip(words_of(decoded, vocabulary), decoded.log_probs.tolist(), strict=True):
                yield image, text, -log_prob, decoded.proven

    def figure() -> "Figure":
        if len(images) > 1:
            raise ValueError(f"--plot: expected a single image, got {len(images)}")
        return _looked(run, model, pixels[0], best[0])

    columns = [Column("image"), Column("caption"), Column("nats", 4), Column("proven", shown=False)]
    return Result(columns, rows(), main="caption", plots={".png": figure})


def read_image(path: Path, data: "CaptionData") -> "Pixels":
    """An image file as pixels (3, S, S), made to fit as those of the run."""
    from chainrule.data._images.folder import Reading
    from chainrule.data._text import check_file

    reading = Reading(size=(data.image_size, data.image_size), colour="rgb", fit=data.fit)
    with check_file(path).open("rb") as file:
        return reading.image(file, str(path))[0]


def _looked(run: "CaptionTask", model: "Captioner", pixels: "Pixels", symbols: "Tensor") -> "Figure":
    """Where the model looked for each word of a caption."""
    from chainrule._app.tasks.caption.searching import looked_at
    from chainrule.diagnostics._attention_maps import image_attention

    if run.config.options.attention is None:
        raise ValueError("--plot: expected a run with attention, got one that reads a single vector")
    if not len(symbols):
        raise ValueError("--plot: the caption is empty, there is nothing to draw")
    words = [run.prepared.vocabulary.decode([symbol]) for symbol in symbols.tolist()]
    return image_attention(pixels, words, looked_at(model, pixels, symbols))


@dataclass(frozen=True)
class CaptionEvaluation(SearchOptions):
    """Compare the captions that a model writes with those that people wrote: BLEU-1 to BLEU-4, and perplexity.

    Args:
        data: The images: an archive (zip, tar) or a folder.
    """

    captions: Path | None = None
    """Reference captions; any number for each image."""
    length_penalty: float = within(0.7, 0.0, 1e9)
    shuffle: Switch = False
    """Give the model a wrong image for each caption, to measure how much it knows of captions alone."""
    seed: int = within(0, 0, MOST_SEED)
    """Seed of the shuffling."""


def evaluate_captioner(run: "CaptionTask", data: str | None, options: CaptionEvaluation, *, device: str) -> Result:
    """Write a caption of each image, and compare."""
    from chainrule._app.tasks.caption.searching import search, words_of
    from chainrule.data._captions import ImageStore, captions_by_image
    from chainrule.metrics import caption_bleu

    if data is None or options.captions is None:
        raise ValueError("DATA and --captions: expected images and what people wrote of them: give both")
    store = ImageStore(Path(data), run.data.image_size, run.data.fit)
    people = captions_by_image(options.captions, store, lower_case=run.data.lower_case)
    names = list(people)
    shown = _turned(names, options.seed) if options.shuffle else names
    model, vocabulary = run.model(device), run.prepared.vocabulary
    found = search(
        model,
        (store.image(name) for name in shown),
        vocabulary,
        beam=options.beam,
        max_length=run.data.max_length,
        length_penalty=options.length_penalty,
    )
    written = [words_of(each, vocabulary)[0] for each in found]
    references = [[caption.text for caption in people[name]] for name in names]
    scores = {f"bleu_{order}": caption_bleu(written, references, order) for order in (1, 2, 3, 4)}
    perplexity = _perplexity(run, model, store, [people[name] for name in names], shown, str(options.captions))
    signature = scores["bleu_4"].signature
    figures = {
        "images": len(names),
        "perplexity": perplexity,
        "beam": options.beam,
        "shuffled": options.shuffle,
        **{name: score.value for name, score in scores.items()},
        "signature": signature,
    }
    return Result([], [], summary=lambda: figures, about={"measured": run.basis})


def _turned(names: Sequence[str], seed: int) -> list[str]:
    """The names in a cycle drawn from the seed: none keeps its place."""
    import numpy as np

    if len(names) < 2:
        raise ValueError(f"--shuffle: expected at least two images, got {len(names)}")
    order = np.random.default_rng(seed).permutation(len(names)).tolist()
    following = dict(zip(order, [*order[1:], order[0]], strict=True))
    return [names[following[place]] for place in range(len(names))]


def _perplexity(
    run: "CaptionTask",
    model: "Captioner",
    store: "ImageStore",
    people: "Sequence[Sequence[Caption]]",
    shown: Sequence[str],
    file: str,
) -> float:
    """Nats of the reference captions, given the images that are shown."""
    import numpy as np
    import torch

    from chainrule.data import Batch
    from chainrule.data._pairs import encode_sentence
    from chainrule.data._ragged import Ragged
    from chainrule.training import evaluate

    vocabulary, longest = run.prepared.vocabulary, run.data.max_length

    def batches() -> "Iterator[Batch]":
        for image, captions in zip(shown, people, strict=True):
            rows = [encode_sentence(vocabulary, each.text, longest, file, each.line) for each in captions]
            x, lengths = Ragged.of(rows).padded(np.arange(len(rows)))
            yield Batch(x, lengths, context=torch.from_numpy(store.image(image)).expand(len(rows), -1, -1, -1))

    return evaluate(model, batches()).perplexity
