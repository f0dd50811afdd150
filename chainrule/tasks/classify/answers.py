"""The answers of a classifier to texts, block by block."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from chainrule.blocks import in_blocks
from chainrule.data.labelled import EncodedTexts, LabelledText
from chainrule.state import map_state

if TYPE_CHECKING:
    from chainrule.models import SequenceClassifier
    from chainrule.tasks.classify.task import ClassifyTask

_BLOCK = 64  # texts read together


@dataclass(frozen=True)
class LabelledAnswer:
    """The answer of a classifier to one text.

    Attributes:
        row: the text, with its line.
        log_probs: of each label, nats.
        tokens: the elements that were read.
        attention: how much each of them counted, where the model has attention.
        cut: elements at the end that were not read.
    """

    row: LabelledText
    log_probs: tuple[float, ...]
    tokens: list[str]
    attention: list[float] | None
    cut: int

    @property
    def best(self) -> int:
        """The number of the likeliest label."""
        return max(range(len(self.log_probs)), key=self.log_probs.__getitem__)


@torch.no_grad()
def answers(run: "ClassifyTask", model: "SequenceClassifier", rows: Iterable[LabelledText]) -> Iterator[LabelledAnswer]:
    """The answers to texts, in order, in bounded memory; an empty text is answered with the prior."""
    import numpy as np

    limit, symbols = run.data.max_length, run.symbols
    device = next(model.parameters()).device
    for block in in_blocks(rows, _BLOCK):
        texts = EncodedTexts.of((row.text for row in block), symbols)
        context = texts.context(np.arange(len(block)), limit)
        context = map_state(lambda leaf: leaf.to(device), context)
        log_probs = model(context).logits.double().tolist()
        attention = None if model.attention is None else model.attend(context).tolist()
        for place, row in enumerate(block):
            tokens = symbols.tokens(row.text)
            read = min(len(tokens), limit)
            weights = None if attention is None else attention[place][:read]
            yield LabelledAnswer(row, tuple(log_probs[place]), tokens[:read], weights, len(tokens) - read)
