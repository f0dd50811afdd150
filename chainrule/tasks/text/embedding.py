"""Lines of a text as numbers: the state of a language model after reading each."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainrule.tasks.abilities import Code

if TYPE_CHECKING:
    from chainrule.data.vocabulary import Ids
    from chainrule.tasks.text.task import TextTask

_LONGEST = 1 << 16  # symbols of a line, and of the lines that are read together


@dataclass(frozen=True)
class TextEmbedding:
    """Embed the lines of a text: for each its number, and the features from which the symbol after it is predicted.

    Of a recurrent model these are the state of its top layer after reading the line, of a Transformer the features of
    its last block. Every line is read from its beginning, without its end.

    Args:
        data: The text, - for standard input.
    """


def embed_lines(run: "TextTask", file: str, *, device: str) -> Iterator[Code]:
    """The code of each line of a file."""
    import torch

    from chainrule.data.batches import padded
    from chainrule.tasks.text.scoring import read_pieces, whole_lines

    model, vocabulary = run.model(device), run.vocabulary
    features: Any = getattr(model, "features", None)
    if features is None:
        raise ValueError(
            f"{run.path}: a model {run.config.model} has no features of what it has read: nothing to embed"
        )
    place = next(model.parameters()).device
    pieces = whole_lines(read_pieces(file, strict=run.data.level != "byte"))
    for rows in _together((line, vocabulary.encode(text.removesuffix("\n"))) for line, text in pieces):
        lengths = torch.tensor([len(ids) for _, ids in rows])
        # The features at an element are of those before it: at one past the end, of the whole line.
        x = padded([ids for _, ids in rows], int(lengths.max()) + 1).to(place)
        with torch.no_grad():
            h = features(x)[torch.arange(len(rows)), lengths.to(place)].float().cpu()
        for (line, _), numbers in zip(rows, h.tolist(), strict=True):
            yield Code(str(line), numbers)


def _together(lines: "Iterable[tuple[int, Ids]]") -> "Iterator[list[tuple[int, Ids]]]":
    """Lines that fit into one batch."""
    rows: list[tuple[int, Ids]] = []
    longest = 0
    for line, ids in lines:
        if len(ids) > _LONGEST:
            raise ValueError(f"line {line}: expected at most {_LONGEST:,} symbols, got {len(ids):,}: divide the line")
        if rows and (len(rows) + 1) * max(longest, len(ids)) > _LONGEST:
            yield rows
            rows, longest = [], 0
        rows.append((line, ids))
        longest = max(longest, len(ids))
    if rows:
        yield rows
