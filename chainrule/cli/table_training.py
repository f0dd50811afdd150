"""`chainrule train rows.csv`: a table becomes a run directory."""

import json as json_format
import re
import shlex
import sys
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from chainrule.cli.command_line import flag, quoted, resume_command
from chainrule.cli.durations import format_duration
from chainrule.config import Extent, OptimisationOptions
from chainrule.run import TABLE, refuse_taken, remove
from chainrule.table_config import TableDataOptions, TableOptions, TableRunConfig
from chainrule.table_run import TableRun

if TYPE_CHECKING:
    from chainrule.training.loop import TrainingResult

# Where nothing is said: rows are short and many, and a pass over them is cheap.
TRAINING = {"batch_size": 128, "learning_rate": 3e-3}
TEXT_ONLY = ("level", "reading", "model", "embedding_size", "tie_weights", "vocabulary_size", "reset_after",
             "nonlinearity", "chunk_length", "line_length", "watch_gradients", "watch_every")  # fmt: skip
_FREE = {"budget", "steps", "epochs", "patience", "device", "tensorboard"}
_ROWS = 1024  # of a validation batch
_SHOWN = 3


def asked_for(
    data: Path | None,
    validation: Path | None,
    types: str,
    header: str,
    groups: Iterable[Any],
    extent: Extent,
    given: frozenset[str],
) -> TableRunConfig:
    """The config of a new run: what the user wrote, and a table's own defaults for what he did not.

    Args:
        groups: option groups of the command line, which share the names of options.

    Raises:
        ValueError: an option that tables do not have was given.
    """
    for name in TEXT_ONLY:
        if flag(name) in given or "--no-" + flag(name)[2:] in given:
            raise ValueError(f"{flag(name)}: an option for texts, but {data} is a table: leave it out")
    written = {
        item.name: getattr(group, item.name) for group in groups for item in fields(group) if flag(item.name) in given
    }

    def chosen(kind: type, **defaults: Any) -> Any:
        names = {item.name for item in fields(kind)}
        return kind(**(defaults | {name: value for name, value in written.items() if name in names}))

    return TableRunConfig(
        source=str(data),
        validation=None if validation is None else str(validation),
        data=chosen(TableDataOptions, header=header),
        types=parse_types(types),
        table={},
        options=chosen(TableOptions),
        extent=extent,
        training=chosen(OptimisationOptions, **TRAINING),
    )


def parse_types(text: str) -> dict[str, str]:
    """The kinds of columns that a user named.

    >>> parse_types("age=real, zip=categorical")
    {'age': 'real', 'zip': 'categorical'}
    """
    pairs = [pair.rpartition("=") for pair in text.split(",") if pair.strip()]
    for name, _, kind in pairs:
        if not name.strip() or not kind.strip():
            raise ValueError(f"--types: expected COLUMN=KIND, separated by commas, got {name or kind!r}")
    return {name.strip(): kind.strip() for name, _, kind in pairs}


def train_table(
    asked: TableRunConfig, out: Path, given: frozenset[str], *, resume: bool, overwrite: bool, json: bool
) -> int:
    """Prepare or reopen a run and train it."""
    began = monotonic()
    from chainrule.data.tables import TableBatches, table_evaluation
    from chainrule.training.loop import train
    from chainrule.training.options import TrainingOptions
    from chainrule.training.parallel import processes

    before = TableRun.open(out).config if resume else None
    with processes((asked if before is None or "--device" in given else before).training.device) as team:
        if team.first:
            _resume(asked, out, given) if resume else _create(asked, out, overwrite=overwrite)
        team.agree([0.0])  # the others wait for the first
        run = TableRun.open(out)
        table, training = run.table(), run.config.training
        network = run.new_model(training.seed)
        batches = TableBatches(table.train, training.batch_size, training.seed, (team.rank, team.world))
        if team.first:
            _introduce(run, sum(weight.numel() for weight in network.parameters()))

        def preview(trained: Any, step: int) -> str:
            import torch

            device = next(trained.parameters()).device
            drawn = trained.sample(_SHOWN, generator=torch.Generator(device).manual_seed(step))
            return "\n".join(", ".join(map(_short, row)) for row in run.schema.decode(drawn.cpu().numpy()))

        settings = asdict(run.config.extent) | asdict(training)
        del settings["watch_gradients"]
        if settings["budget"] is not None:  # starting up counts, but a huge table must leave time to train on it
            settings["budget"] -= min(monotonic() - began, settings["budget"] / 2)
        try:
            result = train(
                network, batches, lambda: table_evaluation(table.valid, _ROWS), TrainingOptions(**settings), run.path,
                resume=resume, on_validation=preview,
            )  # fmt: skip
        except ValueError:
            if team.first and before is not None:  # refused, so the run stays as it was
                TableRun(out, before).write_config()
            raise
    if team.first:
        _conclude(run, result, json=json)
    return 0


def _create(asked: TableRunConfig, out: Path, *, overwrite: bool) -> None:
    """A new run, its table prepared. It takes its place, and an old run goes, only when nothing can fail any more."""
    from chainrule.cli.preparing import adopt, discard
    from chainrule.data.tables import prepare_table

    refuse_taken(out, overwrite=overwrite)
    whole = out.resolve()
    draft_path = whole.with_name(f"{whole.name}.preparing")
    discard(draft_path)  # left by a run that was killed while it prepared its table
    draft = TableRun.create(draft_path, asked)
    try:
        data = asked.data
        table = prepare_table(
            asked.source,
            draft.path / TABLE,
            types=asked.types,  # type: ignore[arg-type]  # which kinds there are is checked there
            header={"auto": None, "yes": True, "no": False}[data.header],
            validation=asked.validation,
            validation_fraction=data.validation_fraction,
            min_count=data.min_count,
            seed=asked.training.seed,
        )
        draft.config = replace(asked, table=table.manifest)
        draft.write_config()
        draft.new_model(asked.training.seed)
        remove(out)
        if out.exists():
            adopt(draft.path, out)
        else:
            draft.path.rename(out)
    except BaseException:
        discard(draft.path)
        raise


def _resume(asked: TableRunConfig, out: Path, given: frozenset[str]) -> None:
    run = TableRun.open(out)
    other = sorted(given - {flag(name) for name in _FREE} - {"--out", "--resume", "--json", "DATA"})
    if other:
        raise ValueError(f"--resume: {out} goes on with its own options: leave {other[0]} out, or begin another run")
    if "DATA" in given:
        from chainrule.data.source import fingerprint

        now, began = fingerprint(asked.source), run.config.table["source"]
        if now["sha256"] != began["sha256"]:
            raise ValueError(f"--resume: DATA changed since the run began with {began['name']}: restore it")
    training = {
        name: getattr(asked.training, name) for name in _FREE if flag(name) in given and hasattr(asked.training, name)
    }
    extended = {flag(item.name) for item in fields(Extent)} & given
    extent = asked.extent if extended else run.config.extent
    run.config = replace(run.config, training=replace(run.config.training, **training), extent=extent)
    run.write_config()


def columns_table(table: dict[str, Any]) -> list[str]:
    """The columns as they were found, a line each."""
    rows = [("column", "kind", "different", "missing")]
    for column in table["columns"]:
        kind = column["kind"] if column["kind"] == column["found"] else f"{column['kind']} (not {column['found']})"
        rows.append((column["name"], kind, column["distinct"], f"{column['missing']:,}"))
    name, kind, count = (max(len(row[place]) for row in rows) for place in range(3))
    return [f"{row[0]:<{name}}  {row[1]:<{kind}}  {row[2]:>{count}}  {row[3]:>7}" for row in rows]


def _introduce(run: TableRun, parameters: int) -> None:
    table = run.config.table
    lines = [
        f"{table['source']['name']}, read as a table (--level char reads it as text): "
        f"{table['rows']['train']:,} rows to train on, {table['rows']['valid']:,} held out, "
        + ("with a header" if run.schema.header else "without a header"),
        *("  " + line for line in columns_table(table)),
        f"made with {parameters:,} parameters, in {run.path}",
    ]
    print("\n".join(lines), file=sys.stderr, flush=True)


def _conclude(run: TableRun, result: "TrainingResult", *, json: bool) -> None:
    best, width = result.best, len(run.schema.kept)
    if json:
        summary = {
            "run": str(run.path),
            "steps": result.step,
            "elements": result.elements,
            "seconds": result.elapsed,
            "ended_by": result.ended_by,
            "best_step": result.best_step,
            "nats_per_element": best.nats_per_element,
            "nats_per_row": best.nats_per_element * width,
            "validation_elements": best.elements,
        }
        print(json_format.dumps(summary))
        return
    part = (
        ""
        if best.elements >= width * run.config.table["rows"]["valid"]
        else f"first {best.elements // width:,} of the "
    )
    source = shlex.quote(run.config.source)
    print(
        f"\n{result.step:,} steps in {format_duration(result.elapsed)}\n"
        f"best: {best.nats_per_element * width:.4f} nats per row on the {part}held-out rows "
        f"({width} columns), at step {result.best_step:,}\n"
        f"run:  {run.path}\n"
        f"next: chainrule sample {quoted(run.path)} -n 16 --out rows.csv\n"
        f"      chainrule score {quoted(run.path)} {source} --sort\n"
        f"      {resume_command(run.path)} --budget ...  (a longer total trains on)"
    )


def _short(cell: str) -> str:
    """A real number in five digits: a preview is to be read, a sample written to a file keeps them all."""
    return f"{float(cell):.5g}" if len(cell) > 8 and re.fullmatch(r"-?[0-9.]+(e[-+]?[0-9]+)?", cell) else cell
