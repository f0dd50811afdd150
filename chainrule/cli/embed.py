"""`chainrule embed RUN DATA`: a row of numbers for each input."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chainrule.cli.answers import show_answer
from chainrule.cli.offered import Device, offered
from chainrule.cli.signature import Input
from chainrule.tasks.abilities import Answer, Code, Embeds, Record
from chainrule.tasks.display import Switch, csv_line


@offered(Embeds, "Embedding")
def embed(
    run: Embeds,
    data: Input,
    /,
    *,
    options: Any,
    out: Path | None = None,
    json: Switch = False,
    device: Device = "auto",
) -> None:
    """Make numbers of inputs.

    Args:
        data: The data.
        out: A file to write: CSV, or an array (N, D) of NumPy by a name that ends in .npy; CSV on standard output if
            not given.
        json: Print one JSON object for each input.
    """
    if out is not None and not out.resolve().parent.is_dir():
        raise FileNotFoundError(f"--out {out}: there is no directory {out.parent}: make it first")
    array = out if out is not None and out.suffix.lower() == ".npy" else None
    if array is not None and json:
        raise ValueError(f"--json: {out} is an array, which holds no JSON: leave one of them out")
    codes = _checked(run.embed(data, options, device=device), data)
    if array is not None:
        _write_array(array, codes)
    else:
        show_answer(Answer(_records(codes, json=json)), json=json, out=out)


def _checked(codes: Iterator[Code], data: str) -> Iterator[Code]:
    first = next(codes, None)
    if first is None:
        raise ValueError(f"{data}: expected at least one input, got none")
    yield first
    yield from codes


def _records(codes: Iterator[Code], *, json: bool) -> Iterator[Record]:
    """The codes as lines of CSV, a header first."""
    for place, code in enumerate(codes):
        named = {"input": code.name} | ({} if code.label is None else {"label": code.label})
        if place == 0 and not json:
            yield Record({}, csv_line([*named, *(f"z{number}" for number in range(len(code.numbers)))]))
        yield Record(
            named | {"code": code.numbers}, csv_line([*named.values(), *(f"{number:.9g}" for number in code.numbers)])
        )


def _write_array(out: Path, codes: Iterator[Code]) -> None:
    import numpy as np

    from chainrule.data.atomic import write_bytes

    file = io.BytesIO()
    np.save(file, np.array([code.numbers for code in codes], np.float32))
    write_bytes(out, file.getvalue())
