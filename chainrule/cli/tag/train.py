"""`chainrule train sentences.conllu --task tag`: tagged sentences become a run directory."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from chainrule.cli.command_line import quoted
from chainrule.cli.judged_part import judged_part
from chainrule.cli.options import DATA, MODEL, RUN, TRAINING, RunFlags
from chainrule.cli.trainer import Shard, Trainer, train_run
from chainrule.runs.config import RunConfig
from chainrule.runs.run import DATA as DATA_FOLDER
from chainrule.runs.tag import TaggedData, TaggerOptions, TaggerTraining, TagRun

if TYPE_CHECKING:
    from chainrule.training import Judge, TrainingBatches, ValidationBatches
    from chainrule.training.loop import TrainingResult


def train(
    data: Path | None = None,
    /,
    *,
    run: Annotated[RunFlags, Parameter(name="*", group=RUN)] = RunFlags(),
    dev: Annotated[Path | None, Parameter(group=DATA)] = None,
    tagged: Annotated[TaggedData, Parameter(name="*", group=DATA)] = TaggedData(),
    options: Annotated[TaggerOptions, Parameter(name="*", group=MODEL)] = TaggerOptions(),
    training: Annotated[TaggerTraining, Parameter(name="*", group=TRAINING)] = TaggerTraining(),
    given: Annotated[frozenset[str], Parameter(parse=False)],
) -> int:
    """Train a tagger on sentences with a tag for every word.

    Args:
        data: Sentences in columns, a word a line, blank lines between them: CoNLL-U, or words and tags; .gz too.
        dev: Sentences to hold out, in place of some of DATA: they choose the weights that are kept.
    """
    if data is None and not run.resume:
        raise ValueError("DATA: expected a file of tagged sentences to train on, got none")
    asked = RunConfig(
        sources={"source": None if data is None else str(data), "dev": None if dev is None else str(dev)},
        data=tagged,
        facts={},
        model="tagger",
        options=options,
        extent=run.extent("3m"),
        training=training,
    )
    out = run.out or Path("runs") / f"{data.name.partition('.')[0] if data else 'sentences'}-tagger"
    return train_run(TagTrainer(), asked, out, run, given)


class TagTrainer(Trainer[TagRun]):
    """How tagged sentences are prepared and trained on."""

    RUN = TagRun

    def prepare(self, draft: TagRun) -> dict[str, Any]:
        from chainrule.data.tagged import prepare_tagged

        data, sources = draft.data, draft.config.sources
        assert sources["source"] is not None
        corpus = prepare_tagged(
            sources["source"],
            draft.path / DATA_FOLDER,
            column=data.column,
            dev=sources["dev"],
            dev_fraction=data.dev_fraction,
            max_length=data.max_length,
            repair=data.repair,
            seed=draft.config.training.seed,
        )
        return corpus.manifest

    def is_prepared(self, run: TagRun) -> bool:
        return (run.path / DATA_FOLDER / "corpus.json").is_file()

    def batches(self, run: TagRun, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule.data.tagged import TaggedBatches, tagged_evaluation

        corpus, training = run.corpus(), run.config.training
        batches = TaggedBatches(
            corpus.train, corpus.vocabulary.counts, training.batch_size, training.word_dropout, training.seed, shard
        )
        return batches, lambda: tagged_evaluation(corpus.valid)

    def introduce(self, run: TagRun) -> Iterable[str]:
        facts, tags = run.config.facts, run.vocabulary.tags
        form = "CoNLL-U" if facts["conllu"] else "columns"
        held_out = "held out" if facts["dev"] is None else f"held out ({facts['dev']['name']})"
        yield (
            f"{facts['source']['name']}, {form} with tags in column {facts['column']}: "
            f"{_counted(facts, 'train')} to train on, {_counted(facts, 'valid')} {held_out}"
        )
        shown = " ".join(tags[:20]) + (" ..." if len(tags) > 20 else "")
        yield f"{len(tags)} tags: {shown}"
        if facts["scheme"] is not None:
            mended = f"; impossible tags repaired in {facts['repaired']:,}" if facts["repaired"] else ""
            yield f"the tags mark spans in {facts['scheme'].upper()}: entity F1 decides which weights are kept{mended}"

    def judge(self, run: TagRun) -> "Judge":
        from chainrule.runs.tag_judge import tag_judge

        return tag_judge(run.corpus())

    def summary(self, run: TagRun, result: "TrainingResult") -> tuple[dict[str, Any], str]:
        name = "entity F1" if run.config.facts["scheme"] else "accuracy"
        value = result.best_value
        assert value is not None
        nats = result.best.nats_per_element
        part = judged_part(result.best_rows, run.config.facts["sentences"]["valid"])
        return (
            {name.replace(" ", "_").lower(): value, "nats_per_word": nats},
            f"{name} {value:.2%} on {part}held-out sentences ({nats:.4f} nats per word)",
        )

    def next_steps(self, run: TagRun) -> Sequence[str]:
        path = quoted(run.path)
        return [f"echo 'Time flies .' | chainrule tag {path} - --text", f"chainrule evaluate {path} TEST"]


def _counted(facts: dict[str, Any], part: str) -> str:
    return f"{facts['sentences'][part]:,} sentences ({facts['words'][part]:,} words)"
