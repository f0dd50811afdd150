"""`chainrule evaluate` on a run on captioned pictures."""

import json as json_format
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from chainrule.data.batches import Batch
    from chainrule.data.captions import Caption, PictureStore
    from chainrule.models.captioner import Captioner
    from chainrule.runs.caption import CaptionRun


def evaluate(
    run: Path,
    pictures: Path,
    /,
    *,
    captions: Path,
    beam: int = 5,
    length_penalty: float = 0.7,
    shuffle: Annotated[bool, Parameter(negative=())] = False,
    seed: int = 0,
    device: str = "auto",
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Compare the captions that a model writes with those that people wrote: BLEU-1 to BLEU-4, and perplexity.

    Args:
        run: The run directory.
        pictures: A zip file or a folder.
        captions: What people wrote; any number for each picture.
        beam: Prefixes kept side by side; 1 is greedy.
        length_penalty: As in `chainrule caption`.
        shuffle: Show the model another picture than the one that is meant: what is left is what it knows of captions.
        seed: Of the shuffling.
        device: Where to compute: auto, cpu or cuda.
        json: Print one JSON object.
    """
    import numpy as np

    from chainrule.cli.caption.searching import search, words_of
    from chainrule.data.captions import PictureStore, captions_by_picture
    from chainrule.metrics.captions import caption_bleu
    from chainrule.runs.caption import CaptionRun
    from chainrule.training.parallel import choose_device

    if beam < 1:
        raise ValueError(f"--beam: expected a whole number >= 1, got {beam}")
    opened = CaptionRun.open(run)
    vocabulary = opened.prepared.vocabulary
    store = PictureStore(pictures, opened.data.picture_size, opened.data.fit)
    people = captions_by_picture(captions, store, lower_case=opened.data.lower_case)
    names = list(people)
    shown = names
    if shuffle:
        if len(names) < 2:
            raise ValueError(f"--shuffle: expected at least two pictures, got {len(names)}")
        turned = np.random.default_rng(seed).permutation(len(names))
        shown = [""] * len(names)
        for place, following in zip(turned, np.roll(turned, -1), strict=True):  # a cycle: no picture keeps its place
            shown[place] = names[following]
    model = opened.model(choose_device(device))
    found = search(
        model,
        (store.picture(name) for name in shown),
        vocabulary,
        beam=beam,
        max_length=opened.data.max_length,
        length_penalty=length_penalty,
    )
    written = [words_of(each, vocabulary)[0] for each in found]
    references = [[caption.text for caption in people[name]] for name in names]
    scores = {f"bleu_{order}": caption_bleu(written, references, order) for order in (1, 2, 3, 4)}
    perplexity = _perplexity(opened, model, store, [people[name] for name in names], shown, str(captions))
    if json:
        figures = {name: score.value for name, score in scores.items()}
        record = {"pictures": len(names), "perplexity": perplexity, "beam": beam, "shuffled": shuffle} | figures
        print(json_format.dumps(record | {"signature": scores["bleu_4"].signature}))
        return
    print(f"{len(names):,} pictures{', each with another shown' if shuffle else ''}, beam {beam}")
    print("  ".join(f"{score.name} {score.value:.2f}" for score in scores.values()))
    print(f"perplexity of people's captions {perplexity:.4g}")
    print(f"signature {scores['bleu_4'].signature}")


def _perplexity(
    run: "CaptionRun",
    model: "Captioner",
    store: "PictureStore",
    people: "Sequence[Sequence[Caption]]",
    shown: Sequence[str],
    file: str,
) -> float:
    """Of what people wrote, given the pictures that are shown."""
    import numpy as np
    import torch

    from chainrule.data.batches import Batch
    from chainrule.data.pairs.prepare import encode_sentence
    from chainrule.data.pairs.sentences import Sentences
    from chainrule.training import evaluate as evaluated

    vocabulary, longest = run.prepared.vocabulary, run.data.max_length

    def batches() -> "Iterator[Batch]":
        for picture, captions in zip(shown, people, strict=True):
            rows = [encode_sentence(vocabulary, each.text, longest, file, each.line) for each in captions]
            x, lengths = Sentences.of(rows).padded(np.arange(len(rows)))
            yield Batch(x, lengths, context=torch.from_numpy(store.picture(picture)).expand(len(rows), -1, -1, -1))

    return evaluated(model, batches()).perplexity
