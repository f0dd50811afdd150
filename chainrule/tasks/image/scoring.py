"""Images scored by a trained model."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.bounds import refuse_samples
from chainrule.tasks.display import Switch
from chainrule.tasks.image.reading import as_they_are, named_images, source_of
from chainrule.tasks.ledger import Basis, LedgerEntry

if TYPE_CHECKING:
    from chainrule.data.images import ImageSource
    from chainrule.tasks.image.task import ImageTask


@dataclass(frozen=True)
class ImageScoring:
    """Score images: nats and bits per dimension of each, exact under the model.

    They are reduced to the levels of the model as those trained on were. A model that knows labels scores each image
    given its label. The likelihood of a variational autoencoder has no closed form: its nats are a bound, at most so
    many, with the standard error of the draws, and the ELBO. Of an autoencoder, which has no likelihood, it
    is the squared error of the reconstruction.

    Args:
        data: A folder, an npz, npy or idx file, as for training.
        json: Print one JSON object an image.
    """

    skip_bad: Switch = False
    """Leave out image files that cannot be read, and say how many."""
    samples: int | None = None
    """K, codes drawn for the bound of a variational autoencoder, twice; 100 if not given. More bring it nearer."""


def score_images(run: "ImageTask", data: str, options: ImageScoring, *, device: str) -> Answer:
    """Score images, a record each."""
    from chainrule.training import units

    if run.has_code:
        from chainrule.tasks.image.code_scoring import score_by_codes

        return score_by_codes(run, data, options, device=device)
    refuse_samples(options.samples, run.config.model)
    source = source_of(run, data, skip_bad=options.skip_bad)
    size = run.shape[0] * run.shape[1] * run.shape[2]
    count, total = 0, 0.0

    def records() -> Iterator[Record]:
        nonlocal count, total
        for name, nats, label in _scored(run, source, device):
            count, total = count + 1, total + nats
            bits = units.bits(nats) / size
            values = {"image": name, "nats": nats, "bits_per_dimension": bits, "label": label}
            said = "" if label is None else f"{label:<10}  "
            yield Record(values, f"{nats:>10.2f} {bits:>9.4f}  {said}{printable_name(name)}", nats)

    def closing() -> Iterable[str]:
        bits = units.bits(total) / size / count
        yield (f"{count:,} images, {total / count:.3f} nats per image, {bits:.4f} bits/dim ({protocol(run, source)})")

    basis = basis_of(run, source)
    heading = f"{'nats':>10} {'bits/dim':>9}  " + (f"{'label':<10}  " if run.classes else "") + "image"
    return Answer(records(), heading, closing, lambda: LedgerEntry(basis, total, count * size, ""), basis)


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


def _scored(run: "ImageTask", source: "ImageSource", device: str) -> Iterator[tuple[str, float, str | None]]:
    """Name, nats and label of each image."""
    import torch

    model = run.model(device)
    place = next(model.parameters()).device
    for images in named_images(run, source):
        context = None if images.context is None else images.context.to(place)
        with torch.no_grad():
            nats = -model.log_prob(images.x.to(place), context).double()
        yield from zip(images.names, nats.tolist(), images.labels, strict=True)


def printable_name(name: str) -> str:
    return name if name.isprintable() else repr(name)[1:-1]
