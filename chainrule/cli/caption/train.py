"""`chainrule train pictures.zip --captions captions.txt --task caption`: captioned pictures become a run directory."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args

from cyclopts import Parameter

from chainrule.cli.command_line import quoted
from chainrule.cli.judged_part import judged_part
from chainrule.cli.ladder import Ladder
from chainrule.cli.options import DATA, MODEL, RUN, TRAINING, RunFlags
from chainrule.cli.trainer import Shard, Trainer, train_run
from chainrule.runs.caption import CaptionData, CaptionOptions, CaptionRun, CaptionTraining, CellName
from chainrule.runs.config import RunConfig
from chainrule.runs.run import DATA as PREPARED

if TYPE_CHECKING:
    from chainrule.training import Judge, TrainingBatches, ValidationBatches
    from chainrule.training.judge import Rows
    from chainrule.training.loop import TrainingResult

_LADDER = Ladder("words", ({"hidden_size": 128, "embedding_size": 128, "picture_features": 64},), passes=5)
_JUDGED = 300  # held-out pictures whose captions are compared at each validation
_SHOWN = 2


def train(
    data: Path | None = None,
    /,
    *,
    run: Annotated[RunFlags, Parameter(name="*", group=RUN)] = RunFlags(),
    captions: Annotated[Path | None, Parameter(group=DATA)] = None,
    validation: Annotated[Path | None, Parameter(group=DATA)] = None,
    validation_captions: Annotated[Path | None, Parameter(group=DATA)] = None,
    reading: Annotated[CaptionData, Parameter(name="*", group=DATA)] = CaptionData(),
    model: Annotated[CellName, Parameter(group=MODEL)] = "lstm",
    options: Annotated[CaptionOptions, Parameter(name="*", group=MODEL)] = CaptionOptions(),
    backbone_weights: Annotated[Path | None, Parameter(group=MODEL)] = None,
    training: Annotated[CaptionTraining, Parameter(name="*", group=TRAINING)] = CaptionTraining(),
    given: Annotated[frozenset[str], Parameter(parse=False)],
) -> int:
    """Train a captioner: a convolutional network, and a recurrent one that looks at it word by word.

    Args:
        data: The pictures: a zip file or a folder.
        captions: Their captions, a line each: NAME, a tab, and the caption; NAME#0, NAME#1 where there are several.
        validation: Pictures to hold out, if they are not among DATA.
        validation_captions: Captions of the pictures to hold out; some pictures are drawn if not given.
        model: The recurrent layer.
        backbone_weights: A safetensors file with the weights of --backbone; they stay as they are.
    """
    if not run.resume and (data is None or captions is None):
        raise ValueError("DATA and --captions: expected pictures and their captions: give both")
    if validation is not None and validation_captions is None:
        raise ValueError("--validation: expected --validation-captions beside it")
    if not run.resume and (backbone_weights is None) != (options.backbone == "none"):
        raise ValueError("--backbone and --backbone-weights: expected a network and a file with its weights: give both")
    if backbone_weights is not None:
        from chainrule.data.text import check_file

        check_file(backbone_weights)
    named = {"source": data, "captions": captions, "validation": validation, "dev_captions": validation_captions}
    asked = RunConfig(
        sources={name: None if path is None else str(path) for name, path in named.items()},
        data=reading,
        facts={},
        model=model,
        options=options,
        extent=run.extent("10m"),
        training=training,
    )
    out = run.out or Path("runs") / f"{data.stem if data else 'pictures'}-caption-{model}"
    return train_run(CaptionTrainer(backbone_weights), asked, out, run, given)


class CaptionTrainer(Trainer[CaptionRun]):
    """How captioned pictures are prepared and trained on.

    Args:
        backbone_weights: of the picture network, copied into the run.
    """

    RUN = CaptionRun
    LADDERS: ClassVar[dict[str, Ladder]] = dict.fromkeys(get_args(CellName), _LADDER)
    NEEDS: ClassVar[dict[str, str]] = {"sacrebleu": "metrics"}

    def __init__(self, backbone_weights: Path | None = None):
        self._backbone_weights = backbone_weights

    def prepare(self, draft: CaptionRun) -> dict[str, Any]:
        from chainrule.data.captions import prepare_captions

        data, sources = draft.data, draft.config.sources
        assert sources["source"] is not None
        assert sources["captions"] is not None
        prepared = prepare_captions(
            draft.path / PREPARED,
            sources["source"],
            sources["captions"],
            dev_pictures=sources["validation"],
            dev_captions=sources["dev_captions"],
            size=data.picture_size,
            fit=data.fit,
            min_count=data.min_count,
            max_length=data.max_length,
            lower_case=data.lower_case,
            validation_fraction=data.validation_fraction,
            seed=draft.config.training.seed,
        )
        if self._backbone_weights is not None:
            draft.keep_backbone(self._backbone_weights)
        return prepared.manifest

    def fingerprint(self, path: str | None) -> dict[str, Any]:
        from chainrule.data.captions import store_fingerprint

        assert path is not None
        return store_fingerprint(path)

    def is_prepared(self, run: CaptionRun) -> bool:
        from chainrule.data.captions import is_prepared

        return is_prepared(run.path / PREPARED)

    def batches(self, run: CaptionRun, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule.data.captions import CaptionBatches, caption_evaluation

        prepared, training = run.prepared, run.config.training
        batches = CaptionBatches(prepared.train, training.batch_size, training.seed, shard)
        return batches, lambda: caption_evaluation(prepared.valid)

    def introduce(self, run: CaptionRun) -> Iterable[str]:
        facts = run.config.facts
        train, valid = facts["counts"]["train"], facts["counts"]["valid"]
        yield (
            f"{facts['source']['name']}: {train['pictures']:,} pictures with {train['captions']:,} captions "
            f"to train on, {valid['pictures']:,} with {valid['captions']:,} held out, {facts['words']:,} words"
        )
        how = {"crop": "cropped", "pad": "padded", "stretch": "stretched"}
        others = " or ".join(f"--fit {name}" for name in how if name != run.data.fit)
        yield f"pictures are {how[run.data.fit]} to {facts['size']}×{facts['size']} pixels ({others} for another way)"

    def judge(self, run: CaptionRun) -> "Judge":
        """BLEU-4 of greedy captions of the first held-out pictures."""
        from chainrule.cli.caption.searching import search, words_of
        from chainrule.metrics.captions import caption_bleu
        from chainrule.training import Judge, Judgement

        vocabulary, valid = run.prepared.vocabulary, run.prepared.valid
        count = min(_JUDGED, len(valid))
        references = [
            [_text(valid, vocabulary, caption) for caption in valid.captions_of(picture)] for picture in range(count)
        ]

        def answer(model: Any, rows: "Rows") -> Sequence[str]:
            pictures = (valid.pictures[row] for row in rows)
            found = search(model, pictures, vocabulary, beam=1, max_length=run.data.max_length)
            return [words_of(each, vocabulary)[0] for each in found]

        def bleu(rows: "Rows", captions: Sequence[str], step: int) -> Judgement:
            true = [references[row] for row in rows]
            shown = [f"{caption}   ({row[0]})" for caption, row in list(zip(captions, true, strict=True))[:_SHOWN]]
            return Judgement("bleu", caption_bleu(captions, true).value, "\n".join(shown))

        return Judge(count, answer, bleu)

    def summary(self, run: CaptionRun, result: "TrainingResult") -> tuple[dict[str, Any], str]:
        pictures = run.config.facts["counts"]["valid"]["pictures"]
        return (
            {"bleu": result.best_value, "perplexity": result.best.perplexity},
            f"BLEU-4 {result.best_value:.2f} on {judged_part(result.best_rows, pictures)}held-out pictures (greedy), "
            f"perplexity of their captions "
            f"{result.best.perplexity:.4g}",
        )

    def next_steps(self, run: CaptionRun) -> Sequence[str]:
        path = quoted(run.path)
        return [
            f"chainrule caption {path} picture.jpg --beam 5 --attention look.png",
            f"chainrule evaluate {path} PICTURES --captions CAPTIONS --beam 5",
        ]


def _text(valid: Any, vocabulary: Any, caption: int) -> str:
    import numpy as np

    padded, lengths = valid.captions.padded(np.array([caption]))
    return str(vocabulary.decode(padded[0, : int(lengths[0])].tolist())).strip()
