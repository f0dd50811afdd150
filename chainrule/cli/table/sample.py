"""`chainrule sample` on a run on a table."""

import io
import json as json_format
import sys
from collections.abc import Iterator
from pathlib import Path
from secrets import randbelow
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from chainrule.runs.table import TableRun

_BLOCK = 1024  # rows drawn together


def sample(
    run: Path,
    /,
    *,
    n: Annotated[int, Parameter(name=["-n", "--number"])] = 1,
    out: Path | None = None,
    seed: int | None = None,
    device: str = "cpu",
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Draw rows of a table from a trained model.

    Args:
        run: The run directory.
        n: How many rows.
        out: A CSV file; standard output if not given.
        seed: The same seed gives the same rows; new ones each time if not given.
        device: Where to compute: auto, cpu or cuda.
        json: Print one JSON object a row.
    """
    from chainrule.data.atomic import write_text
    from chainrule.data.tables import write_rows
    from chainrule.runs.table import TableRun

    if n < 1:
        raise ValueError(f"-n: expected a whole number >= 1, got {n}")
    opened = TableRun.open(run)
    seed = randbelow(1 << 31) if seed is None else seed
    names = [column.name for column in opened.schema.kept]
    rows = _drawn(opened, n, seed, device)
    if json:
        for row in rows:
            print(json_format.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False))
        return
    header = names if opened.schema.header else None
    if out is None:
        write_rows(sys.stdout, header, rows)
        return
    text = io.StringIO()
    write_rows(text, header, rows)
    write_text(out, text.getvalue())
    print(f"{n} rows in {out} (seed {seed})", file=sys.stderr)


def _drawn(run: "TableRun", n: int, seed: int, device: str) -> Iterator[list[str]]:
    import torch

    from chainrule.training.parallel import choose_device

    model = run.model(choose_device(device))
    generator = torch.Generator(next(model.parameters()).device).manual_seed(seed)
    for start in range(0, n, _BLOCK):
        drawn = model.sample(min(_BLOCK, n - start), generator=generator)
        yield from run.schema.decode(drawn.cpu().numpy())
