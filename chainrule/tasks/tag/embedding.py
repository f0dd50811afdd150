"""Sentences as numbers: the features of a trained tagger, averaged over the words."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainrule.tasks.abilities import Code
from chainrule.tasks.display import Switch

if TYPE_CHECKING:
    from chainrule.tasks.tag.task import TagTask


@dataclass(frozen=True)
class TagEmbedding:
    """Embed sentences: for each the number of its line, and the mean of the features that its tags are predicted from.

    Args:
        data: Sentences in columns as those of training, with tags or without, or a word a line; .gz too; - is standard
            input.
    """

    text: Switch = False
    """Each line of DATA is a sentence, its words separated by blanks."""


def embed_sentences(run: "TagTask", file: str, options: TagEmbedding, *, device: str) -> Iterator[Code]:
    """The code of each sentence."""
    import torch

    from chainrule.data.tagged import number_sentences, tagged_evaluation
    from chainrule.layers.pooling import mean_pooling
    from chainrule.state import map_state
    from chainrule.tasks.tag.reading import sentences_of

    model = run.model(device)
    place = next(model.parameters()).device
    found = sentences_of(run, file, tagged=False, text=options.text)
    sentences = iter(found.sentences)
    for batch in tagged_evaluation(number_sentences(found.sentences, run.vocabulary)):
        assert batch.lengths is not None
        lengths = batch.lengths.to(place)
        with torch.no_grad():
            h = model.features(map_state(lambda part: part.to(place), batch.context), lengths)
        for numbers in mean_pooling(h, lengths).float().cpu().tolist():
            yield Code(str(next(sentences).line), numbers)
