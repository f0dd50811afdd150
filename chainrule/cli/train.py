"""`chainrule train`: a text, or a table, becomes a run directory."""

import json as json_format
import sys
from dataclasses import asdict, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from chainrule.cli.command_line import quoted, resume_command
from chainrule.cli.durations import format_duration, parse_duration
from chainrule.config import DataOptions, Extent, ModelName, OptimisationOptions, RecurrentOptions, RunConfig

if TYPE_CHECKING:
    from chainrule.data import Corpus
    from chainrule.run import Run
    from chainrule.training.gradient_watch import Watch
    from chainrule.training.loop import TrainingResult

_RUN, _DATA, _MODEL, _TRAINING = (
    Group(name, sort_key=place) for place, name in enumerate(("Run", "Data", "Model", "Training"), start=1)
)
_DATA_DEFAULTS, _MODEL_DEFAULTS, _TRAINING_DEFAULTS = DataOptions(), RecurrentOptions(), OptimisationOptions()
_ELEMENT = {"char": "character", "byte": "byte", "word": "word", "bpe": "token"}
_SAMPLE_LENGTH = {"char": 200, "byte": 200, "word": 40, "bpe": 60}


def train(
    data: Path | None = None,
    /,
    *,
    out: Annotated[Path | None, Parameter(group=_RUN)] = None,
    budget: Annotated[str, Parameter(group=_RUN)] = "3m",
    steps: Annotated[int | None, Parameter(group=_RUN)] = None,
    epochs: Annotated[float | None, Parameter(group=_RUN)] = None,
    resume: Annotated[bool, Parameter(group=_RUN, negative=())] = False,
    overwrite: Annotated[bool, Parameter(group=_RUN, negative=())] = False,
    json: Annotated[bool, Parameter(group=_RUN, negative=())] = False,
    validation: Annotated[Path | None, Parameter(group=_DATA)] = None,
    types: Annotated[str, Parameter(group=_DATA)] = "",
    header: Annotated[Literal["auto", "yes", "no"], Parameter(group=_DATA)] = "auto",
    text: Annotated[DataOptions, Parameter(name="*", group=_DATA)] = _DATA_DEFAULTS,
    model: Annotated[ModelName, Parameter(group=_MODEL)] = "lstm",
    options: Annotated[RecurrentOptions, Parameter(name="*", group=_MODEL)] = _MODEL_DEFAULTS,
    training: Annotated[OptimisationOptions, Parameter(name="*", group=_TRAINING)] = _TRAINING_DEFAULTS,
    given: Annotated[frozenset[str], Parameter(parse=False)],
) -> int:
    """Train a language model on a text, or a MADE on the rows of a table.

    Args:
        data: A text, UTF-8 of any size, or a table (.csv, .csv.gz, .tsv, .parquet; a text if --level, --reading or
            --model is given); the text built into Python if not given.
        out: The run directory; runs/NAME-LEVEL-MODEL, or runs/NAME-made of a table, if not given.
        budget: Wall-clock time to train for, such as 90s, 3m or 1h30m; 1m for a table.
        steps: Weight updates to train for, in place of a budget.
        epochs: Passes over the data to train for, in place of a budget.
        resume: Go on with the run in --out, with its own options; --budget, --steps or --epochs may extend it.
        overwrite: Replace the run in --out.
        json: Print the closing summary as one JSON object, and nothing else, on standard output.
        validation: A file to hold out in place of the tail of DATA, or of some rows of a table.
        types: Kinds of a table's columns where those found are not meant: COLUMN=KIND,... with categorical, integer,
            real or skip.
        header: Whether the first row of a table is a header; auto looks.
        model: The recurrent layer.
    """
    from chainrule.training.errors import Interrupted

    if resume and overwrite:
        raise ValueError("--resume and --overwrite: one continues a run, the other deletes it: choose one")
    if "--watch-every" in given and not (training.watch_gradients or resume):
        raise ValueError("--watch-every: says how often --watch-gradients looks, which was not asked for: give both")
    if training.watch_gradients and text.reading == "stream" and training.chunk_length < 2:
        raise ValueError(
            "--chunk-length: expected at least 2 with --watch-gradients: nothing flows back through one step"
        )
    if _is_table(data, out, given, resume=resume):
        extent = _extent(budget if "--budget" in given else "1m", steps, epochs, given)
        return _train_table(
            data, out, validation, types, header, (text, options, training), extent, given,
            resume=resume, overwrite=overwrite, json=json,
        )  # fmt: skip
    for name in {"--types", "--header"} & given:
        raise ValueError(f"{name}: an option for tables, but {data} is read as a text: leave it out")
    if options.embedding_size is None and text.level in ("word", "bpe"):  # a wide vocabulary wants a narrow input
        options = replace(options, embedding_size=options.hidden_size)
    asked = RunConfig(
        source=None if data is None else str(data),
        validation=None if validation is None else str(validation),
        data=text,
        corpus={},
        model=model,
        options=options,
        extent=_extent(budget, steps, epochs, given),
        training=training,
    )
    out = out or Path("runs") / f"{data.stem if data else 'python-help'}-{text.level}-{model}"
    try:
        return _train(asked, out, given, resume=resume, overwrite=overwrite, json=json)
    except Interrupted as stop:
        raise KeyboardInterrupt(f"interrupted; step {stop.step} is saved, go on with: {resume_command(out)}") from None


def _is_table(data: Path | None, out: Path | None, given: frozenset[str], *, resume: bool) -> bool:
    from chainrule.data.tables.table_file import is_table
    from chainrule.run import kind_of

    if resume and out is not None and out.exists():
        return kind_of(out) == "table"
    return data is not None and is_table(data) and not given & {"--level", "--reading", "--model"}


def _train_table(
    data: Path | None,
    out: Path | None,
    validation: Path | None,
    types: str,
    header: str,
    groups: tuple[Any, ...],
    extent: Extent,
    given: frozenset[str],
    *,
    resume: bool,
    overwrite: bool,
    json: bool,
) -> int:
    from chainrule.cli.table_training import asked_for, train_table
    from chainrule.training.errors import Interrupted

    asked = asked_for(data, validation, types, header, groups, extent, given)
    out = out or Path("runs") / f"{data.name.partition('.')[0] if data else 'table'}-made"
    try:
        return train_table(asked, out, given, resume=resume, overwrite=overwrite, json=json)
    except Interrupted as stop:
        raise KeyboardInterrupt(f"interrupted; step {stop.step} is saved, go on with: {resume_command(out)}") from None


def _extent(budget: str, steps: int | None, epochs: float | None, given: frozenset[str]) -> Extent:
    seconds = parse_duration(budget) if "--budget" in given or (steps is None and epochs is None) else None
    return Extent(steps=steps, epochs=epochs, budget=seconds)


def _train(asked: RunConfig, out: Path, given: frozenset[str], *, resume: bool, overwrite: bool, json: bool) -> int:
    began = monotonic()
    from chainrule.cli import preparing
    from chainrule.cli.drawing import Drawing
    from chainrule.run import Run
    from chainrule.training.loop import train
    from chainrule.training.options import TrainingOptions
    from chainrule.training.parallel import processes

    before = Run.open(out).config if resume else None
    chosen = asked if before is None or "--device" in given else before
    with processes(chosen.training.device) as team:
        if team.first:
            if resume:
                preparing.resume(asked, out, given)
            else:
                preparing.create(asked, out, overwrite=overwrite)
        team.agree([0.0])  # the others wait for the first
        run = Run.open(out)
        corpus = preparing.corpus_of(run)
        network = run.new_model(run.config.training.seed)
        batches, held_out = preparing.batches(run.config, corpus, (team.rank, team.world))
        if team.first:
            _introduce(run, corpus, sum(weight.numel() for weight in network.parameters()))
        ends = corpus.vocabulary.eos if corpus.reading == "lines" else None

        def sample(trained: Any, step: int) -> str:
            drawing = Drawing(trained, corpus.vocabulary, eos=ends)
            return drawing.texts(1, corpus.vocabulary.encode(""), _SAMPLE_LENGTH[corpus.level], step)[0][0]

        settings = asdict(run.config.extent) | asdict(run.config.training)
        watch = _watch() if settings.pop("watch_gradients") else None
        if settings["budget"] is not None:  # starting up counts, but a huge text must leave time to train on it
            settings["budget"] -= min(monotonic() - began, settings["budget"] / 2)
        try:
            result = train(
                network, batches, held_out, TrainingOptions(**settings), run.path,
                resume=resume, on_validation=sample, watch=watch,
            )  # fmt: skip
        except ValueError:
            if team.first and before is not None:  # refused, so the run stays as it was
                Run(out, before).write_config()
            raise
    if team.first:
        _conclude(run, result, json=json)
    return 0


def _watch() -> "Watch":
    from chainrule.diagnostics.gradient_profile import gradient_profile

    return gradient_profile


def _introduce(run: "Run", corpus: "Corpus", parameters: int) -> None:
    facts = run.config.corpus
    lines = [
        f"{facts['source']['name']}: {facts['train']['elements']:,} symbols to train on, "
        f"{facts['valid']['elements']:,} held out, {len(corpus.vocabulary):,} different ({corpus.level})",
        f"{run.config.model} with {parameters:,} parameters, in {run.path}",
    ]
    print("\n".join(lines), file=sys.stderr, flush=True)


def _conclude(run: "Run", result: "TrainingResult", *, json: bool) -> None:
    best, level = result.best, run.config.data.level
    if json:
        summary = {
            "run": str(run.path),
            "steps": result.step,
            "elements": result.elements,
            "seconds": result.elapsed,
            "ended_by": result.ended_by,
            "best_step": result.best_step,
            "nats_per_element": best.nats_per_element,
            "bits_per_element": best.bits_per_element,
            "perplexity": best.perplexity,
            "validation_elements": best.elements,
        }
        print(json_format.dumps(summary))
        return
    held_out = run.config.corpus["valid"]["elements"]
    # A validation that would take too much of the run reads a part, the same each time.
    part = "" if best.elements >= held_out else f"first {best.elements:,} of {held_out:,} symbols of the "
    early = " (stopped early: no more improvement)" if result.ended_by == "patience" else ""
    print(
        f"\n{result.step:,} steps in {format_duration(result.elapsed)}{early}\n"
        f"best: {best.bits_per_element:.4f} bits ({best.nats_per_element:.4f} nats) per {_ELEMENT[level]} "
        f"on the {part}held-out text, perplexity {best.perplexity:.4g}, at step {result.best_step:,}\n"
        f"run:  {run.path}\n"
        f"next: chainrule sample {quoted(run.path)}\n"
        f"      chainrule score {quoted(run.path)} FILE --per line --sort\n"
        f"      {resume_command(run.path)} --budget ...  (a longer total trains on)"
    )
