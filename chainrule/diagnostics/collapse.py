"""Whether the posterior of a latent code collapsed onto the prior, and the remedy that applies."""

from dataclasses import dataclass

from chainrule.diagnostics.code_figures import CodeFigures


@dataclass(frozen=True)
class CodeTraining:
    """How a model with a latent code was trained, as far as a collapse depends on it.

    Args:
        beta: weight of the KL divergence.
        free_bits: nats of each dimension that cost nothing.
        kl_warmup: part of the run in which the weight grew from 0.
        weakening: options that let the decoder see less of what it writes; empty where it sees nothing of it.
    """

    beta: float = 1.0
    free_bits: float = 0.0
    kl_warmup: float = 0.0
    weakening: str = ""


def code_verdict(figures: CodeFigures, training: CodeTraining) -> tuple[str, str]:
    """How much of the code is in use, in a sentence, and the remedy where it is none; else empty."""
    size, active = len(figures.variance), len(figures.active)
    carried = "" if figures.kl is None else f", {figures.total_kl:.2f} nats of KL"
    if figures.collapsed:
        few = "no dimension is" if not active else f"{active} of {size} dimensions {_are(active)}"
        said = f"Collapsed: {few} active{carried}: the decoder writes without the code."
        return said, _remedy(training)
    rest = "" if active == size else f"; the other {size - active} hold nothing"
    return f"Not collapsed: {active} of {size} dimensions {_are(active)} active{carried}{rest}.", ""


def _remedy(training: CodeTraining) -> str:
    if training.beta > 1:
        return f"--beta {training.beta:g} makes the code cost more than it tells: train with --beta 1."
    if training.weakening and not (training.free_bits or training.kl_warmup):
        return (
            "The decoder sees enough of what it writes to do without: train with --free-bits 0.1 or --kl-warmup 0.3, "
            f"or let it see less ({training.weakening})."
        )
    if training.weakening:
        return f"The decoder still sees enough of what it writes to do without: let it see less ({training.weakening})."
    if not training.kl_warmup:
        return "Train with --kl-warmup 0.3, so that the code is of use before it costs anything, or train longer."
    return "Train longer, or with another learning rate; data without anything in common leave a code nothing to hold."


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
