"""Labels of images: `chainrule train images/ --task classify`, and a classifier that learns p(label | image).

data/train.pixels, valid.pixels    the images, (N, C, H, W) bytes
data/train.labels, valid.labels    their labels
data/images.json                   counts, names of labels, fingerprints
"""

from collections.abc import Iterable, Iterator, Sequence
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from chainrule.tasks.abilities import Answer, CheckedRows, Checks, Code, Embeds, Evaluates, Inspects, Predicts, Record
from chainrule.tasks.classify_images.options import (
    ImageClassifierEmbedding,
    ImageClassifierInspection,
    ImageClassifierTraining,
    ImageLabelEvaluation,
    ImageLabelling,
)
from chainrule.tasks.config import RunConfig
from chainrule.tasks.display import measured_part, quoted
from chainrule.tasks.image.image_data_task import ImageDataTask
from chainrule.tasks.image.options import ImageReading
from chainrule.tasks.ladder import Ladder
from chainrule.tasks.ledger import Basis
from chainrule.tasks.model import Model
from chainrule.tasks.run_directory import DATA
from chainrule.tasks.task import Shard, Source

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from chainrule.data.images import ImageSource, PreparedImages
    from chainrule.models.image_classifier import ImageClassifier
    from chainrule.training import TrainingBatches, ValidationBatches, ValidationMetric
    from chainrule.training.loop import TrainingResult

_ROWS = 128  # of a batch that is only read
_CHECKED_ROWS = 3


class ClassifyImagesTask(ImageDataTask["ImageClassifier"], Predicts, Evaluates, Checks, Inspects, Embeds):
    """A run on labelled images."""

    name = "classify-images"
    verb = "classify"
    help = "Train a classifier on images with labels; the accuracy on held-out images decides which weights are kept."
    SOURCES: ClassVar[dict[str, Source]] = {
        "source": Source(
            "A folder, .zip or .tar file with a sub-folder of image files for each label; x.npz with images and "
            "labels; or an idx file such as train-images-idx3-ubyte.gz, labels in the same folder.",
            needed="labelled images",
        ),
        "validation": Source("Images to hold out in place of some of DATA.", "--validation"),
    }
    Data = ImageReading
    Training = ImageClassifierTraining
    MODELS: ClassVar[dict[str, Model]] = {
        "cnn": Model("chainrule.models.conv_net:ConvNet", hidden=("levels",)),
        "vit": Model("chainrule.models.vision_transformer:VisionTransformer", hidden=("levels",)),
        "cct": Model("chainrule.models.compact_transformer:CompactTransformer", hidden=("levels",)),
        "swin": Model("chainrule.models.swin_transformer:SwinTransformer", hidden=("levels",)),
    }
    BUDGET = "5m"
    LADDERS: ClassVar[dict[str, Ladder]] = {
        "cnn": Ladder("images", ({"channels": 16},), passes=10, steps=8000),
        "vit": Ladder("images", ({"model_size": 64, "num_layers": 4},), passes=10, steps=8000),
        "cct": Ladder("images", ({"model_size": 64, "num_layers": 2},), passes=10, steps=8000),
        "swin": Ladder("images", ({"model_size": 32, "num_heads": 2},), passes=10, steps=8000),
    }
    Prediction = ImageLabelling
    Evaluation = ImageLabelEvaluation
    Inspection = ImageClassifierInspection
    Embedding = ImageClassifierEmbedding

    @classmethod
    def check_asked(cls, asked: RunConfig, given: frozenset[str]) -> None:
        super().check_asked(asked, given)
        _ = asked.data.reading  # an invalid size is rejected before anything is read

    @classmethod
    def check_facts(cls, facts: dict[str, Any]) -> None:
        super().check_facts(facts)
        if facts["classes"] is None:
            raise ValueError("facts.classes: expected names of labels, got null")

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the labels."""
        return tuple(self.config.facts["classes"])

    def prepare(self) -> dict[str, Any]:
        from chainrule.data.images import prepare_images

        data, sources = self.config.data, self.config.sources
        assert sources["source"] is not None
        images = prepare_images(
            sources["source"],
            self.path / DATA,
            labelled=True,
            reading=data.reading,
            skip_bad=data.skip_bad,
            validation=sources["validation"],
            validation_fraction=data.validation_fraction,
            seed=self.training.seed,
        )
        _check_labels(images)
        return images.manifest

    def build(self) -> "ImageClassifier":
        model = self.MODELS[self.config.model].build(
            self.config.options,
            image_shape=self.shape,
            num_classes=len(self.classes),
            levels=self.config.facts["found_levels"],
        )
        return cast("ImageClassifier", model)

    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule.data.images.batches import labelled_image_batches, labelled_image_evaluation

        images, training = self.images(), self.training
        labels, held_out = images.train_labels, images.valid_labels
        assert labels is not None
        assert held_out is not None
        augmentation = training.augmentation(self.config.facts["found_levels"])
        batches = labelled_image_batches(images.train, labels, training.batch_size, training.seed, shard, augmentation)
        return batches, lambda: labelled_image_evaluation(images.valid, held_out, _ROWS)

    def introduce(self) -> Iterable[str]:
        from chainrule.data.images import format_shape

        facts, names = self.config.facts, self.classes
        counts = facts["images"]
        yield f"{facts['name']}: images of {format_shape(self.shape)}, {len(names)} labels: {', '.join(names[:12])}"
        held_out = facts["validation"]["name"] if facts["validation"] else f"drawn, seed {self.training.seed}"
        yield f"{counts['train']:,} images to train on, {counts['valid']:,} held out ({held_out})"
        if facts["left_out"]["count"]:
            yield f"{facts['left_out']['count']} image files cannot be read and are left out"

    def validation_metric(self) -> "ValidationMetric":
        import torch

        from chainrule.data.images.batches import labelled_image_evaluation
        from chainrule.tasks.classify.validation_metric import label_metric

        images = self.images()
        labels = images.valid_labels
        assert labels is not None
        return label_metric(
            self.classes,
            torch.from_numpy(labels.copy()),
            lambda rows: labelled_image_evaluation(images.valid, labels, _ROWS, rows),
            lambda row: (f"held-out image {row}", ""),
        )

    def summary(self, result: "TrainingResult") -> tuple[dict[str, Any], str]:
        value, nats = result.best_value, result.best.nats_per_element
        assert value is not None
        part = measured_part(result.best_rows, self.config.facts["images"]["valid"])
        return (
            {"accuracy": value, "nats_per_image": nats},
            f"accuracy {value:.2%} on {part}held-out images ({nats:.4f} nats per image)",
        )

    def next_steps(self) -> Sequence[str]:
        path = quoted(self.path)
        return [f"chainrule classify {path} IMAGE", f"chainrule evaluate {path} TEST"]

    def describe(self, facts: dict[str, Any]) -> dict[str, str]:
        from chainrule.data.images import format_shape

        images, best = facts["facts"], facts["best"]
        counts, names = images["images"], self.classes
        rows = {
            "data": f"{images['name']}, images of {format_shape(self.shape)}",
            "labels": f"{len(names)}: {', '.join(names[:12])}" + (", ..." if len(names) > 12 else ""),
            "split": f"{counts['train']:,} images to train on, {counts['valid']:,} held out",
            "classify": f"chainrule classify {quoted(self.path)} IMAGE",
        }
        if best is not None:
            nats = f"{best['nats_per_element']:.4f} nats per image"
            rows["best"] = f"accuracy {best['accuracy']:.2%} ({nats}) at step {best['step']:,}"
        return rows

    def predict(self, data: list[str], options: ImageLabelling, *, out: Path | None, device: str, json: bool) -> Answer:
        if options.top < 1:
            raise ValueError(f"--top: expected a whole number >= 1, got {options.top}")
        names, top = self.classes, options.top

        def records() -> Iterator[Record]:
            for name, log_probs in self._labelled(data[0], device, skip_bad=options.skip_bad):
                shares = {label: exp(value) for label, value in zip(names, log_probs.tolist(), strict=True)}
                best = sorted(shares, key=lambda label: -shares[label])[:top]
                values = {"image": name, "label": best[0], "probability": shares[best[0]], "probabilities": shares}
                parts = [part for label in best for part in (label, f"{shares[label]:.4f}")]
                yield Record(values, "\t".join([*parts, name]))

        return Answer(records())

    @property
    def basis(self) -> Basis:
        return Basis("label", f"{len(self.classes)} labels", given="the image")

    def evaluate(self, data: str | None, options: ImageLabelEvaluation, *, device: str) -> Answer:
        import torch

        from chainrule.metrics.classification import classification_scores
        from chainrule.tasks.classify.evaluation import label_figures, label_lines
        from chainrule.tasks.classify.validation_metric import surest_mistakes

        if options.errors < 0:
            raise ValueError(f"--errors: expected a whole number >= 0, got {options.errors}")
        if data is None:
            raise ValueError("DATA: expected labelled images, got none")
        source = self._source(data, labelled=True, skip_bad=False)
        assert source.labels is not None
        true = torch.from_numpy(source.labels.among(self.classes, source.label))
        found = [row for _, row in self._labelled(data, device, skip_bad=False)]
        log_probs = torch.stack(found)
        figures = label_figures(classification_scores(log_probs, true, self.classes), "image")
        figures |= {"images": len(true), "errors": []}
        lines = list(label_lines(figures, self.classes, "image"))
        for row, given, share in surest_mistakes(log_probs, true, options.errors):
            right, name = self.classes[int(true[row])], source.called(row)
            figures["errors"].append({"image": name, "true": right, "given": self.classes[given], "probability": share})
            lines.append(f"  {name}: {self.classes[given]} {share:.1%}, is {right}")
        return Answer(iter([Record(figures, "\n".join(lines))]))

    def checked_rows(self) -> CheckedRows:
        import numpy as np
        import torch

        images = self.images()
        assert images.valid_labels is not None
        labels = torch.from_numpy(np.array(images.valid_labels[:_CHECKED_ROWS], np.int64))
        context = torch.from_numpy(np.array(images.valid[:_CHECKED_ROWS]))
        return CheckedRows(self.model(), labels, context, note=f"{len(labels)} held-out images")

    def embed(self, data: str, options: ImageClassifierEmbedding, *, device: str) -> Iterator[Code]:
        import torch

        model = self.model(device)
        place = next(model.parameters()).device
        for block, names in self._blocks(data, skip_bad=options.skip_bad):
            for start in range(0, len(block), _ROWS):
                x = torch.from_numpy(block[start : start + _ROWS].copy()).to(place)
                with torch.no_grad():
                    features = model.features(model.scaled(x)).float().cpu().tolist()
                yield from map(Code, names[start : start + _ROWS], features)

    def inspect(self, data: str | None, options: ImageClassifierInspection, *, out: Path | None, seed: int) -> Answer:
        from chainrule.tasks.classify_images.inspection import inspect_classifier

        if data is not None:
            raise ValueError(f"inspect: reads the held-out images of the run, got {data}: leave it out")
        return inspect_classifier(self, options, out=out)

    def _source(self, data: str, *, labelled: bool, skip_bad: bool) -> "ImageSource":
        from chainrule.data.images import check_alike, is_collection, open_source

        reading = self.config.data.reading if is_collection(Path(data)) else None
        source = open_source(data, labelled=labelled, reading=reading, skip_bad=skip_bad)
        check_alike(source, self.shape, self.config.facts["found_levels"])
        return source

    def _blocks(self, data: str, *, skip_bad: bool) -> "Iterator[tuple[npt.NDArray[np.uint8], list[str]]]":
        """Images and their names, of one image file or of many."""
        from chainrule.data.images.folder import SUFFIXES

        path = Path(data)
        if path.is_file() and path.suffix.lower() in SUFFIXES:
            pixels, _ = self.config.data.reading.image(path.read_bytes(), data)
            if pixels.shape != self.shape:
                from chainrule.data.images import format_shape

                channels, height, width = pixels.shape
                raise ValueError(
                    f"{data}: expected an image of {format_shape(self.shape)}, as those trained on, got "
                    f"{format_shape((channels, height, width))}: convert it"
                )
            yield pixels[None], [data]
            return
        source, start = self._source(data, labelled=False, skip_bad=skip_bad), 0
        for block in source.blocks():
            yield block, [source.called(start + place) for place in range(len(block))]
            start += len(block)

    def _labelled(self, data: str, device: str, *, skip_bad: bool) -> "Iterator[tuple[str, Tensor]]":
        """Each image with log p of every label."""
        import torch

        model = self.model(device)
        for block, names in self._blocks(data, skip_bad=skip_bad):
            yield from zip(names, self.label_log_probs(model, torch.from_numpy(block.copy())), strict=True)

    def label_log_probs(self, model: "ImageClassifier", images: "Tensor") -> "Tensor":
        """log p of every label of images (N, C, H, W), (N, K) in float64 on the CPU."""
        import torch

        place = next(model.parameters()).device
        with torch.no_grad():
            found = [model(part.to(place)).logits.log_softmax(-1).double().cpu() for part in images.split(_ROWS)]
        return torch.cat(found)


def _check_labels(images: "PreparedImages") -> None:
    """Raise ValueError for a label that nothing can be learned of, or that nothing can be told of."""
    import numpy as np

    assert images.train_labels is not None
    assert images.valid_labels is not None
    assert images.classes is not None
    counts = np.bincount(images.train_labels, minlength=len(images.classes))
    drawn = images.manifest["validation"] is None  # held out from the same images
    if drawn:
        counts += np.bincount(images.valid_labels, minlength=len(images.classes))
    few = [name for name, count in zip(images.classes, counts.tolist(), strict=True) if count < 1 + drawn]
    if few:
        wanted = "two images, one of them to hold out, got 1" if drawn else "an image to train on, got none"
        raise ValueError(
            f"{images.manifest['name']}: the label {few[0]!r}: expected at least {wanted}: add some, or leave it out"
        )
