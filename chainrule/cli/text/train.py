"""`chainrule train text.txt`: a text becomes a run directory."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from cyclopts import Parameter

from chainrule.cli.command_line import quoted
from chainrule.cli.durations import format_duration
from chainrule.cli.options import DATA, MODEL, RUN, TRAINING, RunFlags
from chainrule.cli.text.text_figures import describe, text_figures
from chainrule.cli.trainer import Shard, Trainer, train_run
from chainrule.runs.config import RunConfig
from chainrule.runs.run import CORPUS
from chainrule.runs.text import PLANNED, ModelName, RecurrentOptions, TextData, TextRun, TextTraining

if TYPE_CHECKING:
    from chainrule.cli.text.plan import Shape, Speed
    from chainrule.training import TrainingBatches, ValidationBatches, Watch
    from chainrule.training.loop import TrainingResult
    from chainrule.training.validation import OnValidation

_ELEMENT = {"char": "character", "byte": "byte", "word": "word", "bpe": "token"}
_SAMPLE_LENGTH = {"char": 200, "byte": 200, "word": 40, "bpe": 60}


def train(
    data: Path | None = None,
    /,
    *,
    run: Annotated[RunFlags, Parameter(name="*", group=RUN)] = RunFlags(),
    validation: Annotated[Path | None, Parameter(group=DATA)] = None,
    text: Annotated[TextData, Parameter(name="*", group=DATA)] = TextData(),
    model: Annotated[ModelName, Parameter(group=MODEL)] = "lstm",
    options: Annotated[RecurrentOptions, Parameter(name="*", group=MODEL)] = RecurrentOptions(),
    training: Annotated[TextTraining, Parameter(name="*", group=TRAINING)] = TextTraining(),
    given: Annotated[frozenset[str], Parameter(parse=False)],
) -> int:
    """Train a model on data of any kind; shown are the options for a text.

    `chainrule train DATA --help` shows those for DATA, and so does --task KIND.

    Args:
        data: A text, UTF-8 of any size; the text built into Python if not given. Other kinds of data: a table (.csv,
            .tsv, .parquet), and what `chainrule train --help` says of --task.
        validation: A file to hold out in place of the tail of DATA.
        model: The recurrent layer.
    """
    if "--watch-every" in given and not (training.watch_gradients or run.resume):
        raise ValueError("--watch-every: says how often --watch-gradients looks, which was not asked for: give both")
    if training.watch_gradients and text.reading == "stream" and training.chunk_length < 2:
        raise ValueError(
            "--chunk-length: expected at least 2 with --watch-gradients: nothing flows back through one step"
        )
    asked = RunConfig(
        sources={
            "source": None if data is None else str(data),
            "validation": None if validation is None else str(validation),
        },
        data=text,
        facts={},
        model=model,
        options=options,
        extent=run.extent("3m"),
        training=training,
    )
    out = run.out or Path("runs") / f"{data.stem if data else 'python-help'}-{text.level}-{model}"
    return train_run(TextTrainer(), asked, out, run, given)


class TextTrainer(Trainer[TextRun]):
    """How a text is prepared and trained on."""

    RUN = TextRun
    FREE: ClassVar[frozenset[str]] = Trainer.FREE | {"watch_gradients", "watch_every"}

    def settle(self, asked: RunConfig) -> RunConfig:
        from chainrule.cli.text.preparing import usual_fraction

        if asked.data.validation_fraction is not None:
            return asked
        fraction = usual_fraction(asked.sources["source"])
        return replace(asked, data=replace(asked.data, validation_fraction=fraction))

    def prepare(self, draft: TextRun) -> dict[str, Any]:
        from chainrule.cli.text.preparing import prepared

        manifest = prepared(draft).manifest
        return {name: manifest[name] for name in ("source", "validation", "train", "valid")}

    def plan(self, draft: TextRun, given: frozenset[str]) -> RunConfig:
        from chainrule.cli.text.plan import plan_text
        from chainrule.cli.text.preparing import batches_of, corpus_of
        from chainrule.cli.text.speed import measure_speed

        config, corpus = draft.config, corpus_of(draft)

        def measure(shapes: Sequence["Shape"], batch_size: int) -> "Speed":
            sized = TextRun(draft.path, replace(config, training=replace(draft.training, batch_size=batch_size)))
            return measure_speed(config, shapes, batches_of(sized, corpus, (0, 1))[0].at(0))

        plan = plan_text(config.model, draft.options, draft.training, config.extent, corpus, measure)
        left_open = [name for name, value in asdict(draft.options).items() if value is None]
        left_open += [name for name in PLANNED if getattr(draft.training, name) is None]
        chosen = {"options": left_open, "passes": plan.symbols / len(corpus.train), "elements_per_second": plan.rate}
        return replace(
            config,
            options=plan.options,
            training=replace(config.training, batch_size=plan.batch_size, learning_rate=plan.learning_rate),
            facts=config.facts | {"chosen": chosen},
        )

    def is_prepared(self, run: TextRun) -> bool:
        return (run.path / CORPUS / "corpus.json").is_file()

    def batches(self, run: TextRun, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule.cli.text.preparing import batches_of, corpus_of

        return batches_of(run, corpus_of(run), shard)

    def introduce(self, run: TextRun) -> Iterable[str]:
        facts = run.config.facts
        yield (
            f"{facts['source']['name']}: {facts['train']['elements']:,} symbols to train on, "
            f"{facts['valid']['elements']:,} held out, {len(run.vocabulary):,} different ({run.data.level})"
        )

    def choice(self, run: TextRun) -> str:
        chosen, options, extent = run.config.facts["chosen"], run.options, run.config.extent
        size = f"{options.num_layers} × {options.hidden_size} units, dropout {options.dropout:g}"
        passes = f"{chosen['passes']:.2g} pass{'es' * (chosen['passes'] != 1)} over the text"
        if chosen["elements_per_second"] is None or extent.budget is None:
            return f"{passes}: {size}"
        speed = f"{chosen['elements_per_second']:,.0f} {_ELEMENT[run.data.level]}s/s here"
        return f"{speed}; {format_duration(extent.budget)} is about {passes}: {size}"

    def on_validation(self, run: TextRun) -> "OnValidation":
        from chainrule.cli.text.drawing import Drawing

        vocabulary = run.vocabulary
        ends = vocabulary.eos if run.data.reading == "lines" else None

        def sample(trained: Any, step: int, seconds: float) -> str:
            drawing = Drawing(trained, vocabulary, eos=ends)
            return drawing.texts(1, vocabulary.encode(""), _SAMPLE_LENGTH[run.data.level], step)[0][0]

        return sample

    def watch(self, run: TextRun) -> "Watch | None":
        if not run.training.watch_gradients:
            return None
        from chainrule.diagnostics.gradient_profile import gradient_profile

        return gradient_profile

    def summary(self, run: TextRun, result: "TrainingResult") -> tuple[dict[str, Any], str]:
        best, counts = result.best, run.config.facts["valid"]
        held_out = counts["elements"]
        figures = text_figures(best.nats_per_element * held_out, counts)
        # A validation that would take too much of the run reads a part, the same each time.
        part = "" if best.elements >= held_out else f"first {best.elements:,} of {held_out:,} symbols of the "
        return (
            {"bits_per_element": best.bits_per_element, "perplexity": best.perplexity} | figures,
            f"{best.bits_per_element:.4f} bits ({best.nats_per_element:.4f} nats) per {_ELEMENT[run.data.level]} "
            f"on the {part}held-out text, perplexity {best.perplexity:.4g}; {describe(figures)}",
        )

    def next_steps(self, run: TextRun) -> Sequence[str]:
        path = quoted(run.path)
        return [f"chainrule sample {path}", f"chainrule score {path} FILE --per line --sort"]
