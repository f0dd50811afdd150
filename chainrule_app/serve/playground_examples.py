"""Held-out data of a run that a view opens with: nothing in the playground begins blank."""

from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np

from chainrule_app.readers.images.source import Pixels, brightness, png
from chainrule_app.run import Run

COUNT = 6
_TEXT = 300  # symbols of a text
_LEAST_WORDS = 4  # of a sentence, where there are such


def examples_of(run: Run) -> list[Any]:
    """Return held-out texts, sentences, rows or images (data URLs) of a run; none where its data are gone."""
    task: Any = run.task
    if not task.is_prepared():
        return []
    match task.name:
        case "text":
            return _texts(task)
        case "tag":
            return _lines(map(" ".join, task.corpus().valid_words))
        case "classify":
            return _lines(task.texts().valid_texts)
        case "translate":
            from chainrule_app.readers.pairs import held_out_texts

            return _lines(held_out_texts(Path(task.path) / "data")[0])
        case "table":
            rows = np.array(task.table().valid[:COUNT])
            names = [column.name for column in task.schema.kept]
            return [dict(zip(names, ("" if cell is None else cell for cell in row), strict=True))
                    for row in task.schema.decode(rows)]  # fmt: skip
        case "classify-images":
            images = task.images()
            shown = brightness(np.array(images.valid[:COUNT]), task.reduction.levels)
            return list(map(data_url, shown))
        case "caption":
            images = task.prepared.valid.images
            return [data_url(np.array(images[place])) for place in range(min(COUNT, len(images)))]
    return []


def _texts(task: Any) -> list[str]:
    """Return the beginning of the held-out text in pieces of equal length, or its first lines."""
    from chainrule_app.tasks.text.windows import own_window

    longest = _TEXT if task.data.reading == "lines" else max(2, min(_TEXT, task.facts.valid.elements // COUNT))
    x, lengths, _ = own_window(task, COUNT, longest)
    counts = [x.shape[1]] * len(x) if lengths is None else lengths.tolist()
    return [task.vocabulary.decode(row[:count].numpy()) for row, count in zip(x, counts, strict=True)]


def _lines(texts: Any) -> list[str]:
    """Return the first texts of several words, or the first of all."""
    texts = list(texts)
    long = [text for text in texts if len(text.split()) >= _LEAST_WORDS]
    return (long or texts)[:COUNT]


def data_url(image: Pixels) -> str:
    """Return an image (C, H, W) of 8 bits as a data URL."""
    shown = image[0] if len(image) == 1 else np.moveaxis(image, 0, 2)
    return f"data:image/png;base64,{b64encode(png(np.ascontiguousarray(shown))).decode()}"
