"""Images scored by a trained model."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.codes import MOST_SAMPLES, BoundMeter, refuse_samples
from chainrule.tasks.config import CheckedOptions, within
from chainrule.tasks.display import counted
from chainrule.tasks.image.image_data import ImageFiles
from chainrule.tasks.image.reading import NamedImages, as_they_are, named_images, source_of
from chainrule.tasks.ledger import Basis, Tally

if TYPE_CHECKING:
    from chainrule.data.images import ImageSource
    from chainrule.latent import LatentModel
    from chainrule.models import Autoencoder
    from chainrule.tasks.image.task import ImageTask


@dataclass(frozen=True)
class ImageScoring(CheckedOptions, ImageFiles):
    """Score images: nats and bits per dimension of each, exact under the model.

    They are reduced to the levels of the model as those trained on were. A model that knows labels scores each image
    given its label. The likelihood of a variational autoencoder has no closed form: its nats are an upper bound, shown
    with the standard error of the draws, and with the ELBO. An autoencoder has no likelihood; its score is the squared
    error of the reconstruction.

    Args:
        data: A folder, an npz, npy or idx file, as for training.
        json: Print one JSON object an image.
    """

    samples: int | None = within(None, 1, MOST_SAMPLES)
    """K, codes drawn for the bound of a variational autoencoder, twice; 100 if not given. More bring it nearer."""


def score_images(run: "ImageTask", data: str, options: ImageScoring, *, ranked: bool, device: str) -> Answer:
    """Score images, a record each: by their likelihood, by bounds of it, or by the error of their reconstruction."""
    if not run.has_code:
        refuse_samples(options.samples, run.config.model)
        return _by_likelihood(run, source_of(run, data, skip_bad=options.skip_bad), device)
    from chainrule.latent import LatentModel
    from chainrule.models import Autoencoder

    if run.config.model == "autoencoder" and options.samples is not None:
        raise ValueError("--samples: an autoencoder has no likelihood to bound: leave it out")
    source = source_of(run, data, skip_bad=options.skip_bad)
    model = run.code_model(device, "score")
    if isinstance(model, LatentModel):
        return _by_bounds(run, model, source, options.samples)
    assert isinstance(model, Autoencoder)
    return _by_errors(run, model, source)


_EMPTY = "DATA: expected at least one image to score, got none"


def _by_likelihood(run: "ImageTask", source: "ImageSource", device: str) -> Answer:
    import torch

    from chainrule.training.evaluate import bits

    size, total, model = run.dimensions, Tally(), run.model(device)
    place = next(model.parameters()).device

    def records() -> Iterator[Record]:
        for images in named_images(run, source):
            context = None if images.context is None else images.context.to(place)
            with torch.no_grad():
                found = -model.log_prob(images.x.to(place), context).double()
            for (name, label), nats in zip(_named(images), found.tolist(), strict=True):
                total.add(nats, size)
                per_dimension = bits(nats) / size
                values = {"image": name, "nats": nats, "bits_per_dimension": per_dimension, "label": label}
                said = "" if label is None else f"{label:<10}  "
                yield Record(values, f"{nats:>10.2f} {per_dimension:>9.4f}  {said}{printable_name(name)}", nats)

    def closing() -> Iterable[str]:
        nats, per_dimension = total.nats / total.rows, bits(total.nats) / total.elements
        told = f"{counted(total.rows, 'image')}, {nats:.3f} nats per image, {per_dimension:.4f} bits/dim"
        yield f"{told} ({protocol(run, source)})"

    heading = f"{'nats':>10} {'bits/dim':>9}  " + (f"{'label':<10}  " if run.classes else "") + "image"
    return total.answer(records(), closing, heading=heading, basis=basis_of(run, source), empty=_EMPTY)


def _by_bounds(run: "ImageTask", model: "LatentModel", source: "ImageSource", samples: int | None) -> Answer:
    from chainrule.training.evaluate import bits

    total, size = BoundMeter(model, samples), run.dimensions

    def records() -> Iterator[Record]:
        for images in named_images(run, source):
            for (name, label), (nats, elbo, kl) in zip(_named(images), total.measure(images.x), strict=True):
                per_dimension = bits(nats) / size
                values = {"image": name, "nats_at_most": nats, "bits_per_dimension": per_dimension}
                values |= {"negative_elbo": elbo, "kl": kl, "label": label}
                line = f"{nats:>10.2f} {per_dimension:>9.4f} {elbo:>10.2f} {kl:>8.2f}  {printable_name(name)}"
                yield Record(values, line, nats)

    def closing() -> Iterable[str]:
        yield f"{counted(total.rows, 'image')}, {total.said('image')}"
        yield f"{bits(total.nats) / total.elements:.4f} bits/dim at most ({protocol(run, source)})"

    heading = f"{'nats ≤':>10} {'bits/dim':>9} {'-ELBO':>10} {'KL':>8}  image"
    basis = replace(basis_of(run, source), samples=total.samples)
    return total.answer(records(), closing, heading=heading, basis=basis, empty=_EMPTY)


def _by_errors(run: "ImageTask", model: "Autoencoder", source: "ImageSource") -> Answer:
    import torch

    place, size, total = next(model.parameters()).device, run.dimensions, Tally()

    def records() -> Iterator[Record]:
        for images in named_images(run, source):
            with torch.no_grad():
                errors = model.squared_error(images.x.to(place)).double().tolist()
            for (name, label), error in zip(_named(images), errors, strict=True):
                total.add(error, size)
                values = {"image": name, "squared_error": error, "mean_squared_error": error / size, "label": label}
                yield Record(values, f"{error:>13.4f} {error / size:>10.6f}  {printable_name(name)}", error)

    def closing() -> Iterable[str]:
        mean = total.nats / total.elements
        yield (
            f"{counted(total.rows, 'image')}, "
            f"mean squared error {mean:.6f} of values from 0 to 1 ({protocol(run, source)})"
        )

    heading = f"{'squared error':>13} {'mean':>10}  image"
    return total.answer(records(), closing, heading=heading, basis=basis_of(run, source), empty=_EMPTY)


def _named(images: NamedImages) -> Iterator[tuple[str, str | None]]:
    return zip(images.names, images.labels, strict=True)


def basis_of(run: "ImageTask", source: "ImageSource") -> Basis:
    """How images of a source are measured."""
    return replace(run.basis, base_measure="2 levels") if as_they_are(run, source) else run.basis


def protocol(run: "ImageTask", source: "ImageSource") -> str:
    """Describe how the values were reduced before scoring, which every figure depends on."""
    if as_they_are(run, source):
        return "2 levels, as they are stored"
    if run.reduction.draws:
        return f"binarised by one fixed draw, seed {run.config.training.seed}"
    return str(run.reduction)


def printable_name(name: str) -> str:
    return name if name.isprintable() else repr(name)[1:-1]
