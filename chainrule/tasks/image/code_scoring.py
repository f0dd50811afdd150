"""Images scored by a model with a code: bounds of the likelihood, or the error of the reconstruction."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.image.code_images import code_model
from chainrule.tasks.image.reading import NamedImages, named_images, source_of
from chainrule.tasks.image.scoring import ImageScoring, basis_of, printable_name, protocol
from chainrule.tasks.ledger import LedgerEntry

if TYPE_CHECKING:
    from chainrule.data.images import ImageSource
    from chainrule.latent import LatentModel
    from chainrule.models import Autoencoder
    from chainrule.tasks.image.task import ImageTask


def score_by_codes(run: "ImageTask", data: str, options: ImageScoring, *, device: str) -> Answer:
    """Score images, a record each."""
    from chainrule.latent import LatentModel
    from chainrule.models import Autoencoder
    from chainrule.tasks.bounds import checked_samples

    if run.config.model == "autoencoder" and options.samples is not None:
        raise ValueError("--samples: an autoencoder has no likelihood to bound: leave it out")
    samples = checked_samples(options.samples)
    source = source_of(run, data, skip_bad=options.skip_bad)
    model = code_model(run, device, "score")
    if isinstance(model, LatentModel):
        return _score_by_bounds(run, model, source, samples)
    assert isinstance(model, Autoencoder)
    return _score_by_errors(run, model, source)


def _score_by_bounds(run: "ImageTask", model: "LatentModel", source: "ImageSource", samples: int) -> Answer:
    from chainrule.tasks.bounds import BoundMeter
    from chainrule.training import units

    total = BoundMeter(model, samples)
    basis = replace(basis_of(run, source), samples=samples)
    size = run.dimensions

    def records() -> Iterator[Record]:
        for images in named_images(run, source):
            for (name, label), (nats, elbo, kl) in zip(_named(images), total.measure(images.x), strict=True):
                bits = units.bits(nats) / size
                values = {"image": name, "nats_at_most": nats, "bits_per_dimension": bits}
                values |= {"negative_elbo": elbo, "kl": kl, "label": label}
                yield Record(
                    values, f"{nats:>10.2f} {bits:>9.4f} {elbo:>10.2f} {kl:>8.2f}  {printable_name(name)}", nats
                )

    def closing() -> Iterable[str]:
        bits = units.bits(total.nats) / size / total.rows
        yield f"{total.rows:,} images, {total.said('image')}"
        yield f"{bits:.4f} bits/dim at most ({protocol(run, source)})"

    def entry() -> LedgerEntry:
        return LedgerEntry(basis, total.nats, total.rows * size, "", total.standard_error)

    heading = f"{'nats ≤':>10} {'bits/dim':>9} {'-ELBO':>10} {'KL':>8}  image"
    return Answer(records(), heading, closing, entry, basis)


def _score_by_errors(run: "ImageTask", model: "Autoencoder", source: "ImageSource") -> Answer:
    import torch

    place, size = next(model.parameters()).device, run.dimensions
    basis, count, total = basis_of(run, source), 0, 0.0

    def records() -> Iterator[Record]:
        nonlocal count, total
        for images in named_images(run, source):
            with torch.no_grad():
                errors = model.squared_error(images.x.to(place)).double().tolist()
            for (name, label), error in zip(_named(images), errors, strict=True):
                count, total = count + 1, total + error
                values = {"image": name, "squared_error": error, "mean_squared_error": error / size, "label": label}
                yield Record(values, f"{error:>13.4f} {error / size:>10.6f}  {printable_name(name)}", error)

    def closing() -> Iterable[str]:
        yield (
            f"{count:,} images, mean squared error {total / count / size:.6f} of values from 0 to 1 "
            f"({protocol(run, source)})"
        )

    heading = f"{'squared error':>13} {'mean':>10}  image"
    return Answer(records(), heading, closing, lambda: LedgerEntry(basis, total, count * size, ""), basis)


def _named(images: NamedImages) -> Iterator[tuple[str, str | None]]:
    return zip(images.names, images.labels, strict=True)
