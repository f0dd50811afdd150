"""Captions of many images, a batch at a time, and their BLEU on held-out ones."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from chainrule._blocks import in_blocks
from chainrule._modes import device_of
from chainrule.data import WordVocabulary
from chainrule.decoding import Decoded, beam_search
from chainrule.models import Captioner
from chainrule.training import MetricValue, ValidationMetric
from chainrule.training._validation import Rows

if TYPE_CHECKING:
    from chainrule._app.tasks.caption.task import CaptionTask
    from chainrule._base import TrainableModel

_COMPARED = 300  # held-out images whose captions are compared at each validation
_SHOWN = 2


def search(
    model: Captioner,
    images: Iterable[np.ndarray],
    vocabulary: WordVocabulary,
    *,
    beam: int,
    n_best: int = 1,
    max_length: int,
    length_penalty: float = 0.0,
    batch_size: int = 64,
) -> Iterator[Decoded]:
    """Search the most probable captions of each image (3, S, S), in order."""
    device = device_of(model)
    for block in in_blocks(images, batch_size):
        yield from beam_search(
            model,
            torch.from_numpy(np.stack(block)).to(device),
            beam_size=beam,
            n_best=n_best,
            max_length=max_length,
            eos=vocabulary.eos,
            length_penalty=length_penalty,
        )


def words_of(result: Decoded, vocabulary: WordVocabulary) -> list[str]:
    """Decode the captions of one image, best first."""
    return [vocabulary.decode(sequence.tolist()).strip() for sequence in result.sequences]


@torch.no_grad()
def attention_over(model: Captioner, image: np.ndarray, symbols: torch.Tensor) -> torch.Tensor:
    """Return the attention over the P regions of an image (3, S, S) for each of T symbols, (T, P)."""
    device = device_of(model)
    return model.attended(symbols.unsqueeze(0).to(device), torch.from_numpy(image).unsqueeze(0).to(device))[0].cpu()


def caption_metric(run: "CaptionTask") -> ValidationMetric:
    """Measure BLEU-4 of greedy captions of the first held-out images; show two of them."""
    from chainrule.metrics import caption_bleu

    vocabulary, valid = run.prepared.vocabulary, run.prepared.valid
    references = [run.held_out_captions(image) for image in range(min(_COMPARED, len(valid)))]

    def answer(model: "TrainableModel", rows: Rows) -> Sequence[str]:
        images = (valid.images[row] for row in rows)
        results = search(cast(Captioner, model), images, vocabulary, beam=1, max_length=run.data.max_length)
        return [words_of(each, vocabulary)[0] for each in results]

    def compare(rows: Rows, captions: Sequence[str], step: int) -> MetricValue:
        true = [references[row] for row in rows]
        examples = [f"{caption}   ({row[0]})" for caption, row in list(zip(captions, true, strict=True))[:_SHOWN]]
        return MetricValue("bleu", caption_bleu(captions, true).value, "\n".join(examples))

    return ValidationMetric(len(references), answer, compare)
