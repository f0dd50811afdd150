"""`chainrule train reviews.tsv --task classify`: texts with labels become a run directory."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from chainrule.cli.command_line import quoted
from chainrule.cli.judged_part import judged_part
from chainrule.cli.options import DATA, MODEL, RUN, TRAINING, RunFlags
from chainrule.cli.trainer import Shard, Trainer, train_run
from chainrule.runs.classify import ClassifierOptions, ClassifierTraining, ClassifyRun, LabelledData
from chainrule.runs.config import RunConfig
from chainrule.runs.run import DATA as DATA_FOLDER

if TYPE_CHECKING:
    from chainrule.training import Judge, TrainingBatches, ValidationBatches
    from chainrule.training.loop import TrainingResult

_ELEMENT = {"word": "words", "char": "characters", "byte": "bytes"}


def train(
    data: Path | None = None,
    /,
    *,
    run: Annotated[RunFlags, Parameter(name="*", group=RUN)] = RunFlags(),
    dev: Annotated[Path | None, Parameter(group=DATA)] = None,
    labelled: Annotated[LabelledData, Parameter(name="*", group=DATA)] = LabelledData(),
    options: Annotated[ClassifierOptions, Parameter(name="*", group=MODEL)] = ClassifierOptions(),
    training: Annotated[ClassifierTraining, Parameter(name="*", group=TRAINING)] = ClassifierTraining(),
    given: Annotated[frozenset[str], Parameter(parse=False)],
) -> int:
    """Train a classifier on texts with labels; the accuracy on texts held out decides which weights are kept.

    Args:
        data: Texts and labels: a line each with a tab between them, or .csv.
        dev: Texts to hold out, in place of some of DATA.
    """
    if data is None and not run.resume:
        raise ValueError("DATA: expected a file of texts and labels to train on, got none")
    asked = RunConfig(
        sources={"source": None if data is None else str(data), "dev": None if dev is None else str(dev)},
        data=labelled,
        facts={},
        model="classifier",
        options=options,
        extent=run.extent("1m"),
        training=training,
    )
    out = run.out or Path("runs") / f"{data.name.partition('.')[0] if data else 'texts'}-classifier"
    return train_run(ClassifyTrainer(), asked, out, run, given)


class ClassifyTrainer(Trainer[ClassifyRun]):
    """How labelled texts are prepared and trained on."""

    RUN = ClassifyRun

    def prepare(self, draft: ClassifyRun) -> dict[str, Any]:
        from chainrule.data.labelled import prepare_labelled

        data, sources = draft.data, draft.config.sources
        assert sources["source"] is not None
        texts = prepare_labelled(
            sources["source"],
            draft.path / DATA_FOLDER,
            dev=sources["dev"],
            dev_fraction=data.dev_fraction,
            text_column=data.text_column,
            label_column=data.label_column,
            level=data.level,
            lower=data.lower,
            ngrams=data.ngrams,
            min_count=data.min_count,
            limit=data.max_length,
            seed=draft.config.training.seed,
        )
        return texts.manifest

    def is_prepared(self, run: ClassifyRun) -> bool:
        return (run.path / DATA_FOLDER / "labelled.json").is_file()

    def batches(self, run: ClassifyRun, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule.data.labelled import LabelledBatches, labelled_evaluation
        from chainrule.runs.classify_judge import ROWS

        texts, training, limit = run.texts(), run.config.training, run.data.max_length
        batches = LabelledBatches(
            texts.train.texts, texts.train.labels, training.batch_size, limit, training.seed, shard
        )
        return batches, lambda: labelled_evaluation(texts.valid.texts, texts.valid.labels, ROWS, limit)

    def introduce(self, run: ClassifyRun) -> Iterable[str]:
        facts, element = run.config.facts, _ELEMENT[run.data.level]
        train, valid, columns = facts["train"], facts["valid"], facts["columns"]
        held_out = "held out" if facts["dev"] is None else f"held out ({facts['dev']['name']})"
        header = "with a header" if columns["header"] else "without a header"
        yield (
            f"{facts['source']['name']}, {header}, texts in column {columns['text'] + 1}, labels in "
            f"column {columns['label'] + 1}: {train['rows']:,} texts ({train['elements']:,} {element}) to train on, "
            f"{valid['rows']:,} {held_out}"
        )
        yield f"{len(run.labels)} labels: {labels_with_shares(facts['labels'])}"
        for part, what in ((train, "to train on"), (valid, "held out")):
            if part["empty"]:
                yield f"{part['empty']:,} of the texts {what} are empty: they are answered with these shares"
            if part["cut"]:
                limit = run.data.max_length
                yield f"{part['cut']:,} of the texts {what} are cut after {limit:,} {element} (--max-length)"

    def judge(self, run: ClassifyRun) -> "Judge":
        from chainrule.runs.classify_judge import classify_judge

        return classify_judge(run.texts(), run.data.max_length)

    def summary(self, run: ClassifyRun, result: "TrainingResult") -> tuple[dict[str, Any], str]:
        value, nats = result.best_value, result.best.nats_per_element
        assert value is not None
        counts = run.config.facts["labels"]
        usual = max(counts.values()) / sum(counts.values())
        part = judged_part(result.best_rows, run.config.facts["valid"]["rows"])
        return (
            {"accuracy": value, "nats_per_text": nats},
            f"accuracy {value:.2%} on {part}held-out texts, where the most frequent label alone has about {usual:.0%} "
            f"({nats:.4f} nats per text)",
        )

    def next_steps(self, run: ClassifyRun) -> Sequence[str]:
        path = quoted(run.path)
        return [f"echo 'a text' | chainrule classify {path} -", f"chainrule evaluate {path} TEST"]


def labels_with_shares(counts: dict[str, int], most: int = 12) -> str:
    """Labels with their share, the first few of many.

    >>> labels_with_shares({"bad": 1, "good": 3})
    'bad 25%, good 75%'
    """
    total = sum(counts.values())
    shown = [f"{name} {count / total:.0%}" for name, count in list(counts.items())[:most]]
    return ", ".join(shown) + (f", and {len(counts) - most} more" if len(counts) > most else "")
