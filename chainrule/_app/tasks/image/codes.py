"""Models of images with a code: bounds of their likelihood, samples, use of the code, a page about it."""

from collections.abc import Iterator
from math import sqrt
from typing import TYPE_CHECKING, Any

from chainrule._app.heavy import modes, np, torch
from chainrule._app.results import Column, Report
from chainrule._app.tasks.display import counted
from chainrule._app.tasks.image.inspection import bright
from chainrule._app.tasks.likelihood_record import Basis, Tally
from chainrule._app.tasks.output import inspect_again, page_report

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule._app.tasks.image.inspection import ImageInspection
    from chainrule._app.tasks.image.task import ImageTask
    from chainrule._latent import CodeModel, LatentModel
    from chainrule.data._images.source import Pixels
    from chainrule.diagnostics import LatentUse
    from chainrule.training._validation import Findings

DEFAULT_SAMPLES = 100  # default K
_SEED = 4  # of the draws: the same data have the same bound
_DRAWN, _PAIRS = 16, 8  # images of a preview
_LOOKED_AT = 1024  # held-out images whose codes are looked at
_SHOWN, _REBUILT = 16, 64  # pairs on the page, and images whose error is
DIMENSIONS, STEPS = 12, 7  # of the traversals
REACH = 2.5  # standard deviations of the prior


class BoundMeter(Tally):
    """Sums of importance-weighted bounds (the mean of two estimates with K draws), and their standard error."""

    COLUMNS = (
        Column("nats_at_most", 3, heading="nats ≤"),
        Column("negative_elbo", 3, heading="-ELBO"),
        Column("kl", 3, heading="KL"),
    )

    def __init__(self, model: "LatentModel", samples: int | None):
        super().__init__(standard_error=0.0)
        self._model, self.samples = model, samples or DEFAULT_SAMPLES
        self._device = modes.device_of(model)
        self._generator = torch.Generator(self._device).manual_seed(_SEED)
        self.elbo, self.kl, self._squares = 0.0, 0.0, 0.0

    def measure(self, x: "Tensor") -> Iterator[tuple[float, float, float]]:
        """Yield nats, ELBO and KL divergence of each image, from 2 K + 1 draws, and add them up."""
        model, samples, generator, x = self._model, self.samples, self._generator, x.to(self._device)
        with torch.no_grad():
            first = -model.importance_bound(x, samples, generator).cpu().double()
            second = -model.importance_bound(x, samples, generator).cpu().double()
            elbo = -model.elbo(x, 1, generator).cpu().double()
            kl = model.kl(x, generator).cpu().double()
        nats = (first + second) / 2
        for row in nats.tolist():
            self.add(row, x[0].numel())
        self.elbo += float(elbo.sum())
        self.kl += float(kl.sum())
        # Half the difference of two estimates, squared, is an unbiased estimate of the variance of their mean.
        self._squares += float((((first - second) / 2) ** 2).sum())
        self.standard_error = sqrt(self._squares)
        return zip(nats.tolist(), elbo.tolist(), kl.tolist(), strict=True)

    def figures(self, unit: str, basis: Basis) -> dict[str, Any]:
        bounds = {
            f"{name}_at_most" if "_per_" in name else name: value
            for name, value in super().figures(unit, basis).items()
        }
        return bounds | {"negative_elbo": self.elbo / self.rows, "kl": self.kl / self.rows}


def draw_codes(run: "ImageTask", model: "CodeModel", n: int, generator: "torch.Generator", *, mean: bool) -> "Pixels":
    """Draw images from the prior, (n, C, H, W) of 8 bits; `mean` shows the expected image of each code."""
    from chainrule._latent import LatentModel

    if not isinstance(model, LatentModel):
        raise ValueError(
            f"sample: the model {run.config.model} has no distribution to draw from: "
            "use `chainrule embed` and `run.model.from_codes`"
        )
    with torch.no_grad():
        if mean:
            return shown(run, model.from_codes(model.prior_sample(n, generator), generator=generator))
        return shown(run, model.sample(n, generator))


def shown(run: "ImageTask", x: "Tensor") -> "Pixels":
    """Convert levels, or expected levels, (N, C, H, W) to 8 bits."""
    scale = 255 / (run.reduction.levels - 1)
    pixels: Pixels = (x.cpu().double().numpy() * scale).round().clip(0, 255).astype(np.uint8)
    return pixels


def preview_images(run: "ImageTask", model: "CodeModel", step: int) -> "Pixels":
    """Draw preview images: samples of a variational model, reconstructions of another."""
    from chainrule._latent import LatentModel

    device = modes.device_of(model)
    if isinstance(model, LatentModel):
        return draw_codes(run, model, _DRAWN, torch.Generator(device).manual_seed(step), mean=False)
    x = run.held_out_batch(_PAIRS).x.to(device)
    return np.concatenate(list(np.stack([shown(run, x), shown(run, model.from_codes(model.codes(x)))], 1)))


def code_findings(model: "CodeModel", x: "Tensor") -> "Findings":
    """Measure active units and the KL divergence per image of held-out images; empty for fewer than two."""
    from chainrule.diagnostics import active_units
    from chainrule.training._validation import Findings

    if len(x) < 2:
        return Findings({})
    use = active_units(model, x)
    figures: dict[str, float] = {"active_units": use.count}
    if use.kl is not None:
        figures["kl"] = float(use.kl.sum())
    return Findings(figures, str(use), f"the posterior collapsed: {use.remedies[0]}" if use.collapsed else "")


def inspect_codes(run: "ImageTask", options: "ImageInspection", *, seed: int) -> Report:
    from chainrule._app.pages.code_page import code_sections
    from chainrule._app.pages.page import Page
    from chainrule.diagnostics import active_units

    if options.pixel is not None:
        raise ValueError("--pixel: only models without a code have a receptive field: leave it out")
    model = run.code_model("cpu", "inspect")
    x = run.held_out_batch(_LOOKED_AT).x
    use = active_units(model, x)
    generator = torch.Generator().manual_seed(seed)
    pairs, error, mean = _rebuilt(run, model, x, generator)
    parameters = sum(weight.numel() for weight in model.parameters())
    read = f"{run.facts.name}, {run.reduction}; {counted(len(x), 'held-out image')}"
    about = f"{run.config.model} with {counted(parameters, 'parameter')}, {model.latent_size} dimensions; {read}"
    error_words = (
        f"The mean over {min(len(x), _REBUILT)} held-out images, black for 0 and white for {float(error.max()):.3g}, "
        f"of values from 0 to 1; {mean:.6f} on average."
    )
    traversals = _traversal_words(use), _traversals(run, model, use, generator)
    sections = code_sections(use, pairs, (error_words, bright(error)), traversals, _labels(run, len(x)))
    figures: dict[str, Any] = {
        "images": len(x),
        "mean_squared_error": mean,
        "collapsed": use.collapsed,
        "remedies": list(use.remedies),
        "active": use.ranked,
        "kl": None if use.kl is None else use.kl.tolist(),
        "variance": use.variances.tolist(),
    }
    lines = [str(use), *use.remedies]
    for index in use.ranked[:DIMENSIONS]:
        nats = "" if use.kl is None else f"{float(use.kl[index]):.3f} nats, "
        lines.append(f"dimension {index}: {nats}variance of its mean {float(use.variances[index]):.4f}")
    lines.append(f"mean squared error of reconstructions: {mean:.6f} of values from 0 to 1")
    command = inspect_again(run, seed=seed)
    return page_report(run, Page(f"The code of {run.path}", about, sections, command), figures, lines)


def _rebuilt(
    run: "ImageTask", model: "CodeModel", x: "Tensor", generator: "torch.Generator"
) -> "tuple[Pixels, Tensor, float]":
    """Return pairs in a grid, the squared error of each pixel (H, W) on a scale from 0 to 1, and its mean."""
    from chainrule.data import grid

    x = x[:_REBUILT]
    with torch.no_grad():
        rebuilt = model.from_codes(model.codes(x), generator=generator)
    error = ((rebuilt - x).cpu().double() / (run.reduction.levels - 1)) ** 2
    pairs = np.stack([shown(run, x[:_SHOWN]), shown(run, rebuilt[:_SHOWN])], 1)
    return grid(np.concatenate(list(pairs)), 8), error.mean((0, 1)), float(error.mean())


def _traversals(
    run: "ImageTask", model: "CodeModel", use: "LatentUse", generator: "torch.Generator"
) -> "dict[int, Pixels]":
    """Draw a strip of images for each active dimension, with the other dimensions at their means."""
    from chainrule.data import grid

    centre, strips, weight = use.codes.mean(0), {}, next(model.parameters())
    for index in use.ranked[:DIMENSIONS]:
        if use.kl is None:
            values = use.codes[:, index].quantile(torch.linspace(0.02, 0.98, STEPS, dtype=use.codes.dtype))
        else:
            values = torch.linspace(-REACH, REACH, STEPS, dtype=use.codes.dtype)
        codes = centre.repeat(STEPS, 1)
        codes[:, index] = values
        with torch.no_grad():
            drawn = model.from_codes(codes.to(weight), generator=generator)
        strips[index] = grid(shown(run, drawn), STEPS)
    return strips


def _traversal_words(use: "LatentUse") -> str:
    """Explain the traversals."""
    if not use.ranked:
        return "No dimension is active, so no traversals are shown."
    few = len(use.ranked) > DIMENSIONS
    which = f"The first {DIMENSIONS} of {len(use.ranked)} active dimensions" if few else "All active dimensions"
    ends = (
        "from its 2% to its 98% quantile over the images"
        if use.kl is None
        else f"from −{REACH} to {REACH} standard deviations of the prior"
    )
    return f"{which}: each strip changes one dimension {ends}, with the others at their means."


def _labels(run: "ImageTask", count: int) -> list[str] | None:
    numbers, classes = run.images().valid_labels, run.classes
    if numbers is None or classes is None:
        return None
    return [classes[number] for number in numbers[:count].tolist()]
