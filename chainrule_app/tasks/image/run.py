"""Runs on images, with their verbs."""

from typing import TYPE_CHECKING, Any

from chainrule.files import write_bytes
from chainrule_app.readers import images as image_reader
from chainrule_app.tasks.frequencies import place_frequencies
from chainrule_app.tasks.image import codes, verbs
from chainrule_app.tasks.image.task import ImageTask

if TYPE_CHECKING:
    from chainrule_app.tasks.baseline import Baseline
    from chainrule_app.tasks.preview import OnValidation

SAMPLES = "samples.png"
_PREVIEWED = 16
_LINE = 90  # characters in which the preview on the terminal has to fit


class ImageRun(ImageTask):
    Scoring, score = verbs.ImageScoring, verbs.score_images
    Sampling, sample = verbs.ImageSampling, verbs.sample_images
    Inspection, inspect = codes.ImageInspection, codes.inspect_images
    Embedding, embed = codes.ImageEmbedding, codes.embed_images
    Reconstruction, reconstruct = codes.ImageReconstruction, codes.reconstruct_images
    Interpolation, interpolate = codes.ImageInterpolation, codes.interpolate_images

    def baseline(self, model: Any, seconds: float) -> "Baseline | None":
        if self.basis.quantity != "nats":
            return None
        levels = self.reduction.levels
        return place_frequencies(
            self, model, seconds, name="pixel frequencies", measure="nats per value", levels=levels
        )

    def on_validation(self) -> "OnValidation":
        from chainrule.training import Preview
        from chainrule_app.readers.images.source import grid, png

        def preview(trained: Any, step: int, seconds: float) -> Preview:
            if self.has_code:
                images = codes.preview_images(self, trained, step)
            else:
                sampler = verbs.Sampler(self, trained)
                images = sampler.sketches(_PREVIEWED, sampler.labels(_PREVIEWED), step, seconds)
            drawn = png(grid(images))
            write_bytes(self.path / SAMPLES, drawn)
            count = max(1, _LINE // (min(self.shape[2], 32) + 2))
            return Preview(image_reader.block_image(images[:count]), drawn)

        return preview
