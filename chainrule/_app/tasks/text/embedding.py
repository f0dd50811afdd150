"""Lines of a text as numbers: the state of a language model after reading each, or the mean of its code."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainrule._app.results import Column, Result

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule._app.tasks.text.task import TextTask
    from chainrule.data._vocabulary import Ids

    Line = tuple[int, str, Ids]

_LONGEST = 1 << 16  # symbols of a line, and of the lines that are read together


@dataclass(frozen=True)
class TextEmbedding:
    """Embed the lines of a text: for each its number, and the features from which the symbol after it is predicted.

    Of a recurrent model these are the state of its top layer after reading the line, of a Transformer the features of
    its last block, of a model with a code the mean of its posterior. Averaged models have theirs side by side. Every
    line is read from its beginning.

    Args:
        data: The text, - for standard input.
    """


def embed_lines(run: "TextTask", data: str | Sequence[str], options: TextEmbedding, *, device: str) -> Result:
    """The code of each line of a file, or of each text in memory."""
    import torch

    model: Any = run.model(device)
    if not run.has_code and not hasattr(model, "features"):
        raise ValueError(f"embed: a {run.config.model} has no features of what it has read, and no code")
    place = next(model.parameters()).device

    def rows() -> Iterator[Sequence[Any]]:
        for lines, x, lengths in batched_lines(run, data, ends=run.has_code):
            with torch.no_grad():
                if run.has_code:
                    h = model.codes(x.to(place), lengths=lengths.to(place))
                else:  # the features at an element are of those before it: at one past the end, of the whole line
                    h = model.features(torch.nn.functional.pad(x, (0, 1)).to(place))
                    h = h[torch.arange(len(lines)), lengths.to(place)]
            for (line, _, _), numbers in zip(lines, h.float().cpu().numpy(), strict=True):
                yield str(line) if isinstance(data, str) else data[line - 1], numbers

    return Result([Column("input"), Column("code", heading="z")], rows(), main="code", form="csv")


def batched_lines(
    run: "TextTask", data: str | Sequence[str], *, ends: bool
) -> "Iterator[tuple[list[Line], Tensor, Tensor]]":
    """Lines of a file, or texts, with numbers and symbols, as batches: (B, T) padded, and their lengths (B,)."""
    import torch

    from chainrule._app.tasks.text.scoring import read_pieces, whole_lines
    from chainrule.data._batches import SMALL_BATCH, padded

    def batch(rows: "list[Line]") -> "tuple[list[Line], Tensor, Tensor]":
        lengths = torch.tensor([len(ids) for _, _, ids in rows])
        return rows, padded([ids for _, _, ids in rows], int(lengths.max())), lengths

    rows: list[Line] = []
    longest = held = 0
    strict = run.data.level != "byte"
    for line, text in _texts(run, data) if not isinstance(data, str) else whole_lines(read_pieces(data, strict=strict)):
        ids = run.vocabulary.encode(text if ends else text.removesuffix("\n"))
        if len(ids) > _LONGEST:
            raise ValueError(f"line {line}: expected at most {_LONGEST:,} symbols, got {len(ids):,}: divide the line")
        size = (len(rows) + 1) * max(longest, len(ids))
        if rows and (size > _LONGEST or size > max(2 * (held + len(ids)), SMALL_BATCH)):
            yield batch(rows)
            rows, longest, held = [], 0, 0
        rows.append((line, text, ids))
        longest, held = max(longest, len(ids)), held + len(ids)
    if not rows:
        raise ValueError(f"{data if isinstance(data, str) else 'data'}: expected at least one input, got none")
    yield batch(rows)


def _texts(run: "TextTask", texts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Texts with numbers, a line end added to each."""
    for number, text in enumerate(texts, 1):
        if run.data.reading == "stream":
            yield number, f"{text}\n"
        elif "\n" in text.removesuffix("\n"):
            raise ValueError(f"data: text {number}: expected a single line, as the run was trained on, got several")
        else:
            yield number, text.removesuffix("\n") + "\n"
