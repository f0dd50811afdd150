"""`chainrule caption`: say what is in a picture."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from chainrule.tasks.display import dump_json

if TYPE_CHECKING:
    import numpy as np

    from chainrule.runs.caption import CaptionData, CaptionRun


def caption(
    run: Path,
    /,
    *pictures: Path,
    beam: int = 5,
    n_best: int = 1,
    max_length: int | None = None,
    length_penalty: float = 0.7,
    attention: Path | None = None,
    device: str = "auto",
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Write a caption for each picture, a line each.

    Args:
        run: The run directory.
        pictures: Picture files.
        beam: Prefixes kept side by side; 1 is greedy.
        n_best: Captions of each picture, the best first.
        max_length: Most words of a caption; that of training if not given.
        length_penalty: Captions are compared by log-probability over length to this power.
        attention: A .png file, of one picture: where the model looked for each word.
        device: Where to compute: auto, cpu or cuda.
        json: Print one JSON object a caption, with "picture", "caption", "nats" and "proven".
    """
    from chainrule.cli.caption.searching import search, words_of
    from chainrule.runs.caption import CaptionRun
    from chainrule.training.parallel import choose_device

    if not pictures:
        raise ValueError("PICTURES: expected at least one picture, got none")
    if attention is not None and (len(pictures) > 1 or attention.suffix.lower() != ".png"):
        raise ValueError(f"--attention: expected a .png file for a single picture, got {attention}")
    if not 1 <= n_best <= beam:
        raise ValueError(f"--n-best: expected from 1 to --beam {beam}, got {n_best}")
    opened = CaptionRun.open(run)
    vocabulary = opened.prepared.vocabulary
    pixels = [read_picture(picture, opened.data) for picture in pictures]
    model = opened.model(choose_device(device))
    found = search(
        model,
        pixels,
        vocabulary,
        beam=beam,
        n_best=n_best,
        max_length=max_length or opened.data.max_length,
        length_penalty=length_penalty,
    )
    for picture, decoded in zip(pictures, found, strict=True):
        for text, log_prob in zip(words_of(decoded, vocabulary), decoded.log_probs.tolist(), strict=True):
            if json:
                record = {"picture": str(picture), "caption": text, "nats": -log_prob, "proven": decoded.proven}
                print(dump_json(record))
            else:
                print(text if len(pictures) == 1 else f"{picture}\t{text}")
        if attention is not None:
            _draw_attention(opened, model, pixels[0], decoded.sequences[0], attention)


def read_picture(path: Path, data: "CaptionData") -> "np.ndarray":
    """A picture file as pixels (3, S, S), made to fit as those of the run.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no picture.
    """
    from chainrule.data.images.folder import Reading
    from chainrule.data.text import check_file

    reading = Reading(size=(data.picture_size, data.picture_size), colour="rgb", fit=data.fit)
    return reading.picture(check_file(path).read_bytes(), str(path))[0]


def _draw_attention(run: "CaptionRun", model: object, pixels: "np.ndarray", symbols: object, out: Path) -> None:
    import torch

    from chainrule.cli.figures import save_figure
    from chainrule.diagnostics.picture_attention import picture_attention
    from chainrule.models.captioner import Captioner

    assert isinstance(model, Captioner)
    assert isinstance(symbols, torch.Tensor)
    vocabulary, device = run.prepared.vocabulary, next(model.parameters()).device
    if not len(symbols):
        raise ValueError("--attention: the caption is empty, there is nothing to draw")
    with torch.no_grad():
        weights = model.attended(symbols.unsqueeze(0).to(device), torch.from_numpy(pixels).unsqueeze(0).to(device))
    words = [vocabulary.decode([symbol]) for symbol in symbols.tolist()]
    save_figure(picture_attention(pixels, words, weights[0].cpu()), out)
    print(f"{out}: where the model looked for each word", file=sys.stderr)
