"""`chainrule sample` on a run on a table."""

import sys
from collections.abc import Iterator
from copy import deepcopy
from itertools import islice
from pathlib import Path
from secrets import randbelow
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from chainrule.tasks.display import dump_json

if TYPE_CHECKING:
    from chainrule.runs.table import TableRun

_BLOCK = 1024  # rows drawn together
_TOGETHER = 1 << 14  # particles


def sample(
    run: Path,
    /,
    *,
    n: Annotated[int, Parameter(name=["-n", "--number"])] = 1,
    out: Path | None = None,
    complete: Path | None = None,
    particles: int = 256,
    seed: int | None = None,
    device: str = "cpu",
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Draw rows of a table from a trained model, or fill in what is missing in some.

    Args:
        run: The run directory.
        n: How many rows; with --complete, how many completions of each.
        out: A CSV file (.csv.gz compresses it) or a Parquet file; standard output if not given.
        complete: A table whose empty cells, and columns that it does not have, are drawn given the others; what the
            model expects to be missing may stay so.
        particles: How many draws each completion is chosen from, where known columns come after unknown ones.
        seed: The same seed gives the same rows; new ones each time if not given.
        device: Where to compute: auto, cpu or cuda.
        json: Print one JSON object a row.
    """
    from chainrule.data.atomic import write_bytes
    from chainrule.data.tables import table_bytes, write_rows
    from chainrule.runs.table import TableRun

    if n < 1:
        raise ValueError(f"-n: expected a whole number >= 1, got {n}")
    opened = TableRun.open(run)
    seed = randbelow(1 << 31) if seed is None else seed
    names = [column.name for column in opened.schema.kept]
    rows = (
        _drawn(opened, n, seed, device)
        if complete is None
        else _completed(opened, complete, n, particles, seed, device)
    )
    if json:
        for row in rows:
            print(dump_json(dict(zip(names, row, strict=True))))
        return
    if out is None:
        write_rows(sys.stdout, names if opened.schema.header else None, rows)
        return
    kinds = {column.name: column.kind for column in opened.schema.kept}
    write_bytes(out, table_bytes(out.name, kinds, rows, header=opened.schema.header))
    print(f"rows in {out} (seed {seed})", file=sys.stderr)


def _drawn(run: "TableRun", n: int, seed: int, device: str) -> Iterator[list[str]]:
    import torch

    from chainrule.training.parallel import choose_device

    model = run.model(choose_device(device))
    model.exclude(run.schema.unseen())
    generator = torch.Generator(next(model.parameters()).device).manual_seed(seed)
    for start in range(0, n, _BLOCK):
        drawn = model.sample(min(_BLOCK, n - start), generator=generator)
        yield from run.schema.decode(drawn.cpu().numpy())


def _completed(run: "TableRun", file: Path, n: int, particles: int, seed: int, device: str) -> Iterator[list[str]]:
    import torch

    from chainrule.decoding import complete
    from chainrule.training.parallel import choose_device

    if particles < 1:
        raise ValueError(f"--particles: expected a whole number >= 1, got {particles}")
    model = run.model(choose_device(device))
    generator = torch.Generator(next(model.parameters()).device).manual_seed(seed)
    partial, unseen, trained = run.schema.partial(file), run.schema.unseen(), model
    uncertain = 0
    while block := list(islice(partial, max(1, _TOGETHER // particles))):
        rows = torch.tensor([numbers for _, numbers, _ in block], dtype=torch.float64).repeat_interleave(n, 0)
        known = torch.tensor([known for _, _, known in block]).repeat_interleave(n, 0)
        # What training had none of is not drawn, but may be known of a row.
        given = trained.layout.symbols(rows) == torch.tensor([-1 if symbol is None else symbol for symbol in unseen])
        model = deepcopy(trained)
        model.exclude([None if there else symbol for symbol, there in zip(unseen, (given & known).any(0), strict=True)])
        x, places = model.to_sequence(rows), model.to_sequence(known)
        exact = bool((places == places.cummin(1).values).all())  # everything known comes first
        found = complete(model, x, places, particles=1 if exact else particles, generator=generator)
        uncertain += 0 if exact else int((found.effective_particles < 2).sum())
        yield from run.schema.decode(model.from_sequence(found.x).cpu().numpy())
    if uncertain:
        print(
            f"{uncertain} completions rest on a single draw of {particles}: what is known in them is improbable; "
            "more --particles may help",
            file=sys.stderr,
        )
