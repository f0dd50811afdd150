"""Captions by a model compared with those by people."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from chainrule.tasks.abilities import Answer, Record

if TYPE_CHECKING:
    from chainrule.data.batches import Batch
    from chainrule.data.captions import Caption, ImageStore
    from chainrule.models.captioner import Captioner
    from chainrule.tasks.caption.task import CaptionTask


@dataclass(frozen=True)
class CaptionEvaluation:
    """Compare the captions that a model writes with those that people wrote: BLEU-1 to BLEU-4, and perplexity.

    Args:
        data: The images: an archive (zip, tar) or a folder.
    """

    captions: Path | None = None
    """Reference captions; any number for each image."""
    beam: int = 5
    """Prefixes kept side by side; 1 is greedy."""
    length_penalty: float = 0.7
    """Captions are compared by log-probability over length to this power."""
    shuffle: Annotated[bool, Parameter(negative=())] = False
    """Give the model a wrong image for each caption, to measure how much it knows of captions alone."""
    seed: int = 0
    """Seed of the shuffling."""


def evaluate_captioner(run: "CaptionTask", data: str | None, options: CaptionEvaluation, *, device: str) -> Answer:
    """Write a caption of each image, and compare."""
    from chainrule.data.captions import ImageStore, captions_by_image
    from chainrule.metrics.bleu import caption_bleu
    from chainrule.tasks.caption.searching import search, words_of

    if data is None or options.captions is None:
        raise ValueError("DATA and --captions: expected images and what people wrote of them: give both")
    if options.beam < 1:
        raise ValueError(f"--beam: expected a whole number >= 1, got {options.beam}")
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
    lines = [
        f"{len(names):,} images{', each with another shown' if options.shuffle else ''}, beam {options.beam}",
        "  ".join(f"{score.name} {score.value:.2f}" for score in scores.values()),
        f"perplexity of people's captions {perplexity:.4g}",
        f"signature {signature}",
    ]
    return Answer(iter([Record(figures, "\n".join(lines))]))


def _turned(names: Sequence[str], seed: int) -> list[str]:
    """The names in a cycle drawn from the seed: none keeps its place.

    Raises:
        ValueError: there is only one.
    """
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

    from chainrule.data.batches import Batch
    from chainrule.data.pairs import encode_sentence
    from chainrule.data.ragged import Ragged
    from chainrule.training import evaluate

    vocabulary, longest = run.prepared.vocabulary, run.data.max_length

    def batches() -> "Iterator[Batch]":
        for image, captions in zip(shown, people, strict=True):
            rows = [encode_sentence(vocabulary, each.text, longest, file, each.line) for each in captions]
            x, lengths = Ragged.of(rows).padded(np.arange(len(rows)))
            yield Batch(x, lengths, context=torch.from_numpy(store.image(image)).expand(len(rows), -1, -1, -1))

    return evaluate(model, batches()).perplexity
