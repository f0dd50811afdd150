"""Models with a latent code, in any task: bounds of their likelihood, use of the code, a page about it."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from math import sqrt
from typing import TYPE_CHECKING, Any, cast

from chainrule.option_error import OptionError
from chainrule_app.heavy import modes, torch
from chainrule_app.printing import counted
from chainrule_app.results import Column, Report
from chainrule_app.tasks.likelihood_record import Basis
from chainrule_app.tasks.output import page_report
from chainrule_app.tasks.tally import Tally
from chainrule_app.tasks.task import M, Task

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule import CodeModel, LatentModel
    from chainrule.diagnostics import LatentUse
    from chainrule.training import Findings
    from chainrule_app.pages.code_page import Exhibit, Labels
    from chainrule_app.tasks.preview import Observe

DEFAULT_SAMPLES = 100  # default K
MOST_SAMPLES = 1 << 20
_SEED = 4  # of the draws: the same data have the same bound


def refuse_samples(samples: int | None, model: str) -> None:
    """Refuse --samples for a model whose likelihood is exact."""
    if samples is not None:
        raise OptionError("samples", f"the likelihood of a {model} is exact and needs no samples", "leave it out")


class CodedTask(Task[M]):
    """Run of a task in which some models have a latent code."""

    def code_model(self, device: str, verb: str) -> Any:
        """Return the trained model of a run with a latent code."""
        if not self.has_code:
            coded = ", ".join(self.CODED)
            raise ValueError(f"{verb}: a run of {self.config.model} has no latent code: expected a run of {coded}")
        return self.model(device)

    def lacking(self) -> tuple[str, ...]:
        return () if self.has_code else ("embed", "reconstruct", "interpolate")

    @abstractmethod
    def coded_rows(self) -> "Tensor":
        """Return held-out rows whose codes are measured during training."""

    def observe(self) -> "Observe | None":
        if not self.has_code:
            return None
        return lambda model: code_findings(cast("CodeModel", model), self.coded_rows())


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
        """Yield nats, ELBO and KL divergence of each row, from 2 K + 1 draws, and add them up."""
        model, samples, generator = self._model, self.samples, self._generator
        x = x.to(self._device)
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


def code_findings(model: "CodeModel", x: "Tensor") -> "Findings":
    """Measure active units and the KL divergence per row of held-out rows (N, ...); empty for fewer than two."""
    from chainrule.diagnostics import active_units
    from chainrule.training import Findings

    if len(x) < 2:
        return Findings({})
    use = active_units(model, x)
    figures: dict[str, float] = {"active_units": use.count}
    if use.kl is not None:
        figures["kl"] = float(use.kl.sum())
    return Findings(figures, str(use), f"the posterior collapsed: {use.remedies[0]}" if use.collapsed else "")


DIMENSIONS, STEPS = 12, 7  # of the traversals
REACH = 2.5  # standard deviations of the prior


def code_report(
    run: Task[Any],
    model: "CodeModel",
    use: "LatentUse",
    noun: str,
    *,
    pairs: "tuple[str, Exhibit]",
    error: "tuple[str, Exhibit]",
    traversals: "tuple[str, Mapping[int, Exhibit]]",
    labels: "Labels | None" = None,
    facts: dict[str, Any],
    lines: Iterable[str] = (),
    read: str,
    command: str,
) -> Report:
    """Build the report of a model with a latent code; `read` describes the rows, and `noun` names one."""
    from chainrule_app.pages.code_page import code_sections
    from chainrule_app.pages.page import Page

    parameters = sum(weight.numel() for weight in model.parameters())
    about = f"{run.config.model} with {counted(parameters, 'parameter')}, {model.latent_size} dimensions; {read}"
    how, strips = traversals
    sections = code_sections(use, noun, pairs, error, (traversal_words(use, noun, how), strips), labels)
    figures: dict[str, Any] = {
        **facts,
        "collapsed": use.collapsed,
        "remedies": list(use.remedies),
        "active": use.ranked,
        "kl": None if use.kl is None else use.kl.tolist(),
        "variance": use.variances.tolist(),
    }
    report_lines = [str(use), *use.remedies]
    for index in use.ranked[:DIMENSIONS]:
        nats = "" if use.kl is None else f"{float(use.kl[index]):.3f} nats, "
        report_lines.append(f"dimension {index}: {nats}variance of its mean {float(use.variances[index]):.4f}")
    return page_report(run, Page(f"The code of {run.path}", about, sections, command), figures, [*report_lines, *lines])


def traversals_of(use: "LatentUse") -> "Iterator[tuple[int, list[str], Tensor]]":
    """Yield each active dimension with STEPS values, and codes (STEPS, L) in which the others are at their means."""
    centre = use.codes.mean(0)
    for index in use.ranked[:DIMENSIONS]:
        if use.kl is None:
            values = use.codes[:, index].quantile(torch.linspace(0.02, 0.98, STEPS, dtype=use.codes.dtype))
        else:
            values = torch.linspace(-REACH, REACH, STEPS, dtype=use.codes.dtype)
        codes = centre.repeat(STEPS, 1)
        codes[:, index] = values
        yield index, [f"{round(value, 2) + 0.0:+.2f}" for value in values.tolist()], codes  # no -0.00


def traversal_words(use: "LatentUse", noun: str, how: str) -> str:
    """Explain the traversals; `how` tells how an input is decoded."""
    if not use.ranked:
        return "No dimension is active, so no traversals are shown."
    few = len(use.ranked) > DIMENSIONS
    which = f"The first {DIMENSIONS} of {len(use.ranked)} active dimensions" if few else "All active dimensions"
    ends = (
        f"from its 2% to its 98% quantile over the {noun}s"
        if use.kl is None
        else f"from −{REACH} to {REACH} standard deviations of the prior"
    )
    return f"{which}: each strip changes one dimension {ends}, with the others at their means.{how}"
