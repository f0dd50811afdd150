"""`chainrule train` on pictures: a folder, an array or an idx file becomes a run directory."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from cyclopts import Parameter

from chainrule.cli.command_line import quoted
from chainrule.cli.ladder import Ladder
from chainrule.cli.options import DATA, MODEL, RUN, TRAINING, RunFlags
from chainrule.cli.trainer import Shard, Trainer, train_run
from chainrule.runs.config import RunConfig
from chainrule.runs.image import SAMPLES, ImageData, ImageOptions, ImageRun, ImageTraining, settled
from chainrule.runs.run import DATA as DATA_FOLDER

if TYPE_CHECKING:
    from chainrule.training import TrainingBatches, ValidationBatches
    from chainrule.training.loop import TrainingResult
    from chainrule.training.validation import OnValidation

_LADDER = Ladder(
    "pixels",
    ({"channels": 16, "layers": 5}, {"channels": 8, "layers": 3}),
    steps=1000,
)
Model = Literal["gated-pixelcnn", "pixelcnn", "pixelcnn++", "row-lstm", "diagonal-bilstm"]
_ELEMENTS = 1 << 16  # of the pictures that are validated on together
_SAMPLES = 16
_LINE = 90  # characters in which the preview on the terminal has to fit


def train(
    data: str | None = None,
    /,
    *,
    run: Annotated[RunFlags, Parameter(name="*", group=RUN)] = RunFlags(),
    validation: Annotated[str | None, Parameter(group=DATA)] = None,
    images: Annotated[ImageData, Parameter(name="*", group=DATA)] = ImageData(),
    model: Annotated[Model, Parameter(group=MODEL)] = "gated-pixelcnn",
    options: Annotated[ImageOptions, Parameter(name="*", group=MODEL)] = ImageOptions(),
    training: Annotated[ImageTraining, Parameter(name="*", group=TRAINING)] = ImageTraining(),
    given: Annotated[frozenset[str], Parameter(parse=False)],
) -> int:
    """Train an autoregressive model of pictures: exact likelihoods, samples, completions.

    Args:
        data: A folder of picture files, labelled by its sub-folders if there are any; x.npz, or x.npz:ARRAY; x.npy; or
            an idx file such as train-images-idx3-ubyte.gz, labels beside it.
        validation: Pictures to hold out in place of some of DATA; of an npz file with arrays train and valid, the
            latter is held out where nothing is said.
        model: The architecture.
    """
    if data is None and not run.resume:
        raise ValueError("DATA: expected pictures to train on, got none")
    _ = images.reading  # a size that is none is refused before anything is read
    asked = RunConfig(
        sources={"source": data, "validation": validation},
        data=images,
        facts={},
        model=model,
        options=options,
        extent=run.extent("10m"),
        training=training,
    )
    return train_run(ImageTrainer(), asked, run.out or _usual_place(data, model), run, given)


def _usual_place(data: str | None, model: str) -> Path:
    name = Path(data).resolve().name.partition(".")[0] if data else "images"
    return Path("runs") / f"{name}-{model}"


class ImageTrainer(Trainer[ImageRun]):
    """How pictures are prepared and trained on."""

    RUN = ImageRun
    LADDERS: ClassVar[dict[str, Ladder]] = {"gated-pixelcnn": _LADDER}

    def settle(self, asked: RunConfig) -> RunConfig:
        ImageRun.check_config(asked)
        return replace(asked, options=settled(asked.model, asked.options))

    def prepare(self, draft: ImageRun) -> dict[str, Any]:
        from chainrule.data.images import prepare_images

        data, sources = draft.data, draft.config.sources
        assert sources["source"] is not None
        images = prepare_images(
            sources["source"],
            draft.path / DATA_FOLDER,
            bits=data.bits,
            binarise=None if data.binarise == "no" else data.binarise,
            labelled=data.labels,
            reading=data.reading,
            skip_bad=data.skip_bad,
            validation=sources["validation"],
            validation_fraction=data.validation_fraction,
            seed=draft.config.training.seed,
        )
        return images.manifest

    def fingerprint(self, path: str | None) -> dict[str, Any]:
        from chainrule.data.images import source_fingerprint

        assert path is not None
        return source_fingerprint(path)

    def is_prepared(self, run: ImageRun) -> bool:
        return (run.path / DATA_FOLDER / "images.json").is_file()

    def batches(self, run: ImageRun, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule.data.images import ImageBatches, image_evaluation

        images, training = run.images(), run.config.training
        drawn = images.reduction if images.reduction.binarise == "per-epoch" else None
        batches = ImageBatches(images.train, images.train_labels, training.batch_size, training.seed, shard, drawn)
        rows = max(1, _ELEMENTS // images.valid[0].size)
        return batches, lambda: image_evaluation(images.valid, images.valid_labels, rows)

    def introduce(self, run: ImageRun) -> Iterable[str]:
        from chainrule.data.images import said_shape

        facts = run.config.facts
        counts = facts["pictures"]
        yield f"{facts['name']}: pictures of {said_shape(run.shape)}; {run.reduction}; {said_labels(run.classes)}"
        held_out = facts["validation"]["name"] if facts["validation"] else f"drawn, seed {run.config.training.seed}"
        yield f"{counts['train']:,} pictures to train on, {counts['valid']:,} held out ({held_out})"
        for count, what in (
            (facts["scaled_to_8_bits"], "of 16 bits, scaled to 8"),
            (facts["put_on_white"], "transparent, put on white"),
        ):
            if count:
                yield f"{count:,} pictures are {what}"
        left_out = facts["left_out"]
        if left_out["count"]:
            names = ", ".join(left_out["names"][:5]) + (", ..." if left_out["count"] > 5 else "")
            yield f"{left_out['count']} picture files cannot be read and are left out: {names}"

    def on_validation(self, run: ImageRun) -> "OnValidation":
        from chainrule.cli.image.drawing import Drawing
        from chainrule.data.atomic import write_bytes
        from chainrule.data.images import block_picture, grid, png

        def preview(trained: Any, step: int, seconds: float) -> str:
            drawing = Drawing(run, trained)
            pictures = drawing.sketches(_SAMPLES, drawing.labels_in_turn(_SAMPLES), step, seconds)
            write_bytes(run.path / SAMPLES, png(grid(pictures)))
            shown = max(1, _LINE // (min(run.shape[2], 32) + 2))
            return block_picture(pictures[:shown])

        return preview

    def summary(self, run: ImageRun, result: "TrainingResult") -> tuple[dict[str, Any], str]:
        best, size, count = result.best, int(run.images().valid[0].size), run.config.facts["pictures"]["valid"]
        part = "" if best.elements >= size * count else f"first {best.elements // size:,} of the "
        nats = best.nats_per_element * size
        given = ", given their labels" if run.classes else ""
        return (
            {"nats_per_picture": nats, "bits_per_dimension": best.bits_per_element, "values": str(run.reduction)},
            f"{nats:.2f} nats per picture, {best.bits_per_element:.4f} bits/dim on the {part}held-out pictures{given} "
            f"({run.reduction})",
        )

    def next_steps(self, run: ImageRun) -> Sequence[str]:
        path = quoted(run.path)
        return [
            f"chainrule sample {path} -n 16 --out grid.png",
            f"chainrule score {path} {quote(str(run.config.sources['source']))} --top 10",
            f"chainrule inspect {path}",
        ]


def said_labels(classes: tuple[str, ...] | None) -> str:
    """
    >>> said_labels(("cat", "dog")), said_labels(None)
    ('2 labels: cat, dog', 'no labels')
    """
    if classes is None:
        return "no labels"
    return f"{len(classes)} labels: {', '.join(classes[:10])}" + (", ..." if len(classes) > 10 else "")
