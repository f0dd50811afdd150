"""`chainrule train pairs.tsv --task translate`: pairs of sentences become a run directory."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from cyclopts import Parameter

from chainrule.cli.command_line import quoted
from chainrule.cli.judged_part import judged_part
from chainrule.cli.ladder import Ladder
from chainrule.cli.options import DATA, MODEL, RUN, TRAINING, RunFlags
from chainrule.cli.trainer import Shard, Trainer, train_run
from chainrule.runs.config import RunConfig
from chainrule.runs.run import DATA as DATA_FOLDER
from chainrule.runs.translate import PairsData, TranslateRun, TranslatorOptions, TranslatorTraining

if TYPE_CHECKING:
    from chainrule.training import Judge, TrainingBatches, ValidationBatches
    from chainrule.training.loop import TrainingResult

_LADDER = Ladder(
    "symbols",
    (
        {"hidden_size": 192, "embedding_size": 192},
        {"hidden_size": 128, "embedding_size": 128},
    ),
    passes=4,
)


def train(
    data: Path | None = None,
    /,
    *,
    run: Annotated[RunFlags, Parameter(name="*", group=RUN)] = RunFlags(),
    source: Annotated[Path | None, Parameter(group=DATA)] = None,
    target: Annotated[Path | None, Parameter(group=DATA)] = None,
    dev_source: Annotated[Path | None, Parameter(group=DATA)] = None,
    dev_target: Annotated[Path | None, Parameter(group=DATA)] = None,
    pairs: Annotated[PairsData, Parameter(name="*", group=DATA)] = PairsData(),
    options: Annotated[TranslatorOptions, Parameter(name="*", group=MODEL)] = TranslatorOptions(),
    training: Annotated[TranslatorTraining, Parameter(name="*", group=TRAINING)] = TranslatorTraining(),
    given: Annotated[frozenset[str], Parameter(parse=False)],
) -> int:
    """Train a translator on pairs of sentences.

    Args:
        data: Pairs, a line each: the source, a tab, the target; .gz too.
        source: In place of DATA: source sentences, a line each, and with --target their translations.
        target: The translation of each line of --source.
        dev_source: Pairs to hold out, in place of some of the others: they choose the weights that are kept. Sources,
            or without --dev-target lines of source, tab, target.
        dev_target: The translation of each line of --dev-source.
    """
    if data is not None and source is not None:
        raise ValueError("DATA and --source: one names pairs, the other sources alone: leave one out")
    if source is not None and target is None:
        raise ValueError("--source: expected --target beside it, got none")
    if target is not None and source is None:
        raise ValueError("--target: expected --source beside it, got none")
    if dev_target is not None and dev_source is None:
        raise ValueError("--dev-target: expected --dev-source beside it, got none")
    first = data or source
    if first is None and not run.resume:
        raise ValueError("DATA: expected pairs of sentences to train on, or --source and --target, got none")
    sources = {"source": first, "target": target, "dev_source": dev_source, "dev_target": dev_target}
    asked = RunConfig(
        sources={name: None if path is None else str(path) for name, path in sources.items()},
        data=pairs,
        facts={},
        model="seq2seq",
        options=options,
        extent=run.extent("10m"),
        training=training,
    )
    out = run.out or Path("runs") / f"{first.name.partition('.')[0] if first else 'pairs'}-translator"
    return train_run(TranslateTrainer(), asked, out, run, given)


class TranslateTrainer(Trainer[TranslateRun]):
    """How pairs of sentences are prepared and trained on."""

    RUN = TranslateRun
    LADDERS: ClassVar[dict[str, Ladder]] = {"seq2seq": _LADDER}
    NEEDS: ClassVar[dict[str, str]] = {"sacrebleu": "metrics"}

    def prepare(self, draft: TranslateRun) -> dict[str, Any]:
        from chainrule.data.pairs import prepare_pairs

        data, sources = draft.data, draft.config.sources
        assert sources["source"] is not None
        prepared = prepare_pairs(
            draft.path / DATA_FOLDER,
            sources["source"],
            sources["target"],
            dev_source=sources["dev_source"],
            dev_target=sources["dev_target"],
            level=data.level,
            min_count=data.min_count,
            vocabulary_size=data.vocabulary_size,
            max_length=data.max_length,
            validation_fraction=data.dev_fraction,
            seed=draft.config.training.seed,
        )
        return prepared.manifest

    def is_prepared(self, run: TranslateRun) -> bool:
        return (run.path / DATA_FOLDER / "pairs.json").is_file()

    def batches(self, run: TranslateRun, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule.data.pairs import PairBatches, pair_evaluation

        pairs, training = run.pairs, run.config.training
        batches = PairBatches(
            pairs.train,
            training.batch_size,
            training.seed,
            shard,
            decay=training.scheduled_sampling,
            decay_steps=training.sampling_steps,
        )
        return batches, lambda: pair_evaluation(pairs.valid)

    def introduce(self, run: TranslateRun) -> Iterable[str]:
        facts = run.config.facts
        yield f"{names_of(facts)}: {counted(facts, 'train')} to train on, {counted(facts, 'valid')} held out"
        train = facts["counts"]["train"]
        for side in ("source", "target"):
            share = train[f"{side}_unknown"] / train[f"{side}_symbols"]
            rare = f", {share:.1%} of its words are <unk>" if run.data.level == "word" else ""
            yield f"{side}: {facts['symbols'][side]:,} symbols at level {run.data.level}{rare}"

    def judge(self, run: TranslateRun) -> "Judge":
        from chainrule.runs.translation_judge import translation_judge

        return translation_judge(run)

    def summary(self, run: TranslateRun, result: "TrainingResult") -> tuple[dict[str, Any], str]:
        value = result.best_value
        assert value is not None
        perplexity, pairs = result.best.perplexity, run.config.facts["counts"]["valid"]["pairs"]
        return (
            {"bleu": value, "perplexity": perplexity},
            f"BLEU {value:.2f} by greedy decoding of {judged_part(result.best_rows, pairs)}held-out sentences "
            f"(perplexity {perplexity:.2f})",
        )

    def next_steps(self, run: TranslateRun) -> Sequence[str]:
        path = quoted(run.path)
        return [f"chainrule translate {path} FILE", f"chainrule evaluate {path} --source FILE --target FILE"]


def names_of(facts: dict[str, Any]) -> str:
    """The files of the pairs."""
    source, target = facts["source"]["name"], facts["target"]
    return source if target is None else f"{source} and {target['name']}"


def counted(facts: dict[str, Any], part: str) -> str:
    """How many pairs a part has, and words of the target."""
    counts = facts["counts"][part]
    return f"{counts['pairs']:,} pairs ({counts['target_symbols']:,} symbols to predict)"
