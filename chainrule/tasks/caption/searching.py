"""Captions of many images, a batch at a time."""

from collections.abc import Iterable, Iterator

import numpy as np
import torch

from chainrule.blocks import in_blocks
from chainrule.data.characters import WordVocabulary
from chainrule.decoding import Decoded, beam_search
from chainrule.models.captioner import Captioner


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
    """The most probable captions of each image (3, S, S), in their order."""
    device = next(model.parameters()).device
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


def words_of(found: Decoded, vocabulary: WordVocabulary) -> list[str]:
    """The captions of one image as text, the best first."""
    return [vocabulary.decode(sequence.tolist()).strip() for sequence in found.sequences]


@torch.no_grad()
def looked_at(model: Captioner, image: np.ndarray, symbols: torch.Tensor) -> torch.Tensor:
    """The attention over the places of an image (3, S, S) when each of T symbols was written, (T, P)."""
    device = next(model.parameters()).device
    return model.attended(symbols.unsqueeze(0).to(device), torch.from_numpy(image).unsqueeze(0).to(device))[0].cpu()
