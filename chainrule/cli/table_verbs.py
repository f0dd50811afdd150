"""What the other verbs do with a run on a table."""

import heapq
import json as json_format
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from secrets import randbelow
from typing import Any

import torch

from chainrule.base import AutoregressiveModel
from chainrule.data.atomic import write_text
from chainrule.data.tables import ColumnSchema, write_rows
from chainrule.table_run import TableRun
from chainrule.training.parallel import choose_device

_BLOCK = 1024  # rows drawn or scored together
_TYPICAL = 4096  # held-out rows by which it is judged how surprising a column usually is


def sample_table(path: Path, n: int, out: Path | None, seed: int | None, device: str, *, json: bool) -> None:
    """Draw rows and write them as CSV, or as JSON objects."""
    run = TableRun.open(path)
    seed = randbelow(1 << 31) if seed is None else seed
    names = [column.name for column in run.schema.kept]
    rows = _drawn(run, n, seed, device)
    if json:
        for row in rows:
            print(json_format.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False))
        return
    if out is None:
        write_rows(sys.stdout, names if run.schema.header else None, rows)
        return
    import io

    text = io.StringIO()
    write_rows(text, names if run.schema.header else None, rows)
    write_text(out, text.getvalue())
    print(f"{n} rows in {out} (seed {seed})", file=sys.stderr)


def _drawn(run: TableRun, n: int, seed: int, device: str) -> Iterator[list[str]]:
    model = run.model(choose_device(device))
    generator = torch.Generator(_device(model)).manual_seed(seed)
    for start in range(0, n, _BLOCK):
        drawn = model.sample(min(_BLOCK, n - start), generator=generator)
        yield from run.schema.decode(drawn.cpu().numpy())


@dataclass
class ScoredRow:
    """The surprise of a row."""

    line: int
    cells: list[str]
    nats: float
    columns: list[float]
    most: int  # the column that is the most nats above what is usual for it
    unseen: int

    def record(self, schema: list[ColumnSchema]) -> dict[str, Any]:
        """As JSON takes it."""
        names = [column.name for column in schema]
        return {
            "line": self.line,
            "nats": self.nats,
            "most": names[self.most],
            "columns": dict(zip(names, self.columns, strict=True)),
            "unseen": self.unseen,
            "row": dict(zip(names, self.cells, strict=True)),
        }


def score_table(path: Path, file: str, device: str, top: int | None, *, sort: bool, json: bool) -> None:
    """Nats of every row of a file, and the column of each that surprised most."""
    run = TableRun.open(path)
    schema, count, total = run.schema.kept, 0, 0.0

    def counted(rows: Iterator[ScoredRow]) -> Iterator[ScoredRow]:
        nonlocal count, total
        for row in rows:
            count, total = count + 1, total + row.nats
            yield row

    rows = counted(_scored(run, file, device))
    if top is not None:
        rows = iter(heapq.nlargest(top, rows, key=lambda row: row.nats))
    elif sort:
        rows = iter(sorted(rows, key=lambda row: -row.nats))
    if not json:
        print(f"{'line':>8} {'nats':>10}  most surprising cell, and its nats")
    for row in rows:
        if json:
            print(json_format.dumps(row.record(schema), ensure_ascii=False))
        else:
            cell = f"{schema[row.most].name}={row.cells[row.most]}"
            cell = cell if cell.isprintable() else repr(cell)[1:-1]
            print(f"{row.line:>8} {row.nats:>10.3f}  {cell} ({row.columns[row.most]:.2f})")
    if not count:
        raise ValueError(f"{file}: expected at least one row to score, got none")
    if not json:
        print(f"{count:,} rows, {total / count:.4f} nats per row")


@torch.no_grad()
def _scored(run: TableRun, file: str, device: str) -> Iterator[ScoredRow]:
    model = run.model(choose_device(device))
    held_out = torch.from_numpy(run.table().valid[:_TYPICAL].copy())
    usual = torch.stack([_nats(model, rows).sum(0) for rows in held_out.split(_BLOCK)]).sum(0) / len(held_out)
    encoded = run.schema.encoded(file)
    while block := list(islice(encoded, _BLOCK)):
        nats = _nats(model, torch.tensor([numbers for _, _, numbers in block], dtype=torch.float64))
        most = (nats - usual).argmax(1).tolist()
        for (line, cells, _), row, place in zip(block, nats.tolist(), most, strict=True):
            unseen = sum(not column.seen(cell) for column, cell in zip(run.schema.kept, cells, strict=True))
            yield ScoredRow(line, cells, sum(row), row, place, unseen)


def _nats(model: AutoregressiveModel, rows: torch.Tensor) -> torch.Tensor:
    """(B, D), of each value given those visited before it."""
    rows = rows.to(_device(model))
    return -model(rows).log_prob(rows).double().cpu()


def own_rows(run: TableRun, count: int) -> torch.Tensor:
    """A few rows of the run's own to look at closely, of those held out."""
    return torch.from_numpy(run.table().valid[:count].copy())


def table_facts(run: TableRun) -> dict[str, Any]:
    """All that is known of a run, ready for JSON."""
    config = run.config.to_json()
    model = run.model() if (run.path / "model.safetensors").is_file() else run.new_model(0)
    validations = [record for record in run.metrics() if record.get("event") == "validation"]
    best = min(validations, key=lambda record: record["nats_per_element"], default=None)
    steps = [record["step"] for record in run.metrics() if record.get("event") == "step"]
    return {
        "run": str(run.path),
        "chainrule": config["chainrule"],
        "model": config["model"],
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "bytes": run.bytes_on_disk(),
        "data": config["data"],
        "table": config["table"],
        "training": config["training"],
        "step": max(steps, default=0),
        "best": None if best is None else best | {"nats_per_row": best["nats_per_element"] * len(run.schema.kept)},
    }


def _device(model: AutoregressiveModel) -> torch.device:
    return next(model.parameters()).device
