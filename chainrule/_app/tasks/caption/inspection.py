"""Inside a trained captioner: its parts, and where in an image it looked for each word."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chainrule._app.results import Report
from chainrule._app.tasks.config import CheckedOptions, within
from chainrule._app.tasks.page import attention_report, inspect_again

if TYPE_CHECKING:
    from chainrule._app.tasks.caption.task import CaptionTask
    from chainrule.data._images.source import Pixels


@dataclass(frozen=True)
class CaptionerInspection(CheckedOptions):
    """Look inside a trained captioner: how large its parts are, and where it looked for each word that it wrote.

    Captions held-out images, or the one named by DATA, greedily. Prints the parts and how narrowly the decoder
    attends, and writes a page with each image once for each word, bright where it was looked at (HTML, one file,
    needs no network).

    Args:
        data: An image file in place of held-out images.
    """

    rows: int = within(4, 1, 64)
    """Held-out images, the first ones."""


def inspect_captioner(run: "CaptionTask", file: str | None, options: CaptionerInspection, *, seed: int) -> Report:
    """Inspect a run on its held-out images, or on an image."""
    import torch

    from chainrule._app.pages.attention_page import AttentionExample
    from chainrule._app.tasks.caption.searching import looked_at, search, words_of

    images = _images(run, file, options.rows)
    model, vocabulary = run.model(), run.prepared.vocabulary
    found = search(model, [pixels for _, pixels, _ in images], vocabulary, beam=1, max_length=run.data.max_length)
    examples = []
    for (name, pixels, people), decoded in zip(images, found, strict=True):
        symbols = decoded.sequences[0]
        if decoded.ended[0]:
            symbols = torch.cat([symbols, symbols.new_tensor([vocabulary.eos])])
        with torch.no_grad():
            conditionals = model(symbols.unsqueeze(0), torch.from_numpy(pixels).unsqueeze(0))
        surprise = (-conditionals.log_prob(symbols.unsqueeze(0))[0]).double().tolist()
        alpha = None if model.attention is None else looked_at(model, pixels, symbols)
        [text], words = words_of(decoded, vocabulary), [vocabulary.token(symbol) for symbol in symbols.tolist()]
        told = {"caption": text} | ({"people wrote": people[0]} if people else {})
        facts = {"image": name, "caption": text, "references": people}
        examples.append(AttentionExample(name, told, facts, words, surprise, alpha, image=pixels))
    command = inspect_again(run, file, rows=options.rows)
    return attention_report(run, model, examples, looks_at="places of the grid", command=command)


def _images(run: "CaptionTask", file: str | None, rows: int) -> "list[tuple[str, Pixels, list[str]]]":
    """Images by name, with what people wrote of them, if that is known."""
    import numpy as np

    from chainrule._app.tasks.caption.prediction import read_image

    if file is not None:
        return [(file, read_image(Path(file), run.data), [])]
    valid = run.prepared.valid
    return [
        (f"held-out image {place + 1}", np.array(valid.images[place]), run.held_out_captions(place))
        for place in range(min(rows, len(valid)))
    ]
