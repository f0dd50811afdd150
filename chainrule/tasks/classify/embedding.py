"""Texts as numbers: the pooled features of a trained classifier."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainrule.blocks import in_blocks
from chainrule.tasks.abilities import Code

if TYPE_CHECKING:
    from chainrule.tasks.classify.task import ClassifyTask

_BLOCK = 64  # texts read together


@dataclass(frozen=True)
class LabelledEmbedding:
    """Embed texts: for each the number of its line, and the pooled features that its label is predicted from.

    Args:
        data: A text a line, or a file in columns as that of training; - is standard input.
    """

    text_column: str | None = None
    """Name, or number from 1, of the column of texts; found by itself where it can be."""


def embed_texts(run: "ClassifyTask", file: str, options: LabelledEmbedding, *, device: str) -> Iterator[Code]:
    """The code of each text."""
    import numpy as np
    import torch

    from chainrule.data.labelled import EncodedTexts
    from chainrule.state import map_state

    model = run.model(device)
    place = next(model.parameters()).device
    for block in in_blocks(run.file(file, text_column=options.text_column, labelled=False), _BLOCK):
        texts = EncodedTexts.of((row.text for row in block), run.symbols)
        context = map_state(lambda leaf: leaf.to(place), texts.context(np.arange(len(block)), run.data.max_length))
        with torch.no_grad():
            features = model.features(context).float().cpu().tolist()
        for row, numbers in zip(block, features, strict=True):
            yield Code(str(row.line), numbers, row.label or None)
