"""The share of what a network is averaged with, told at each validation."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chainrule.training.validation import Findings, Observe


def share_of(name: str, told: str) -> "Observe":
    """An observer of a `CalibratedMixture`, whose companion has a name in figures, and one to show."""

    def share(trained: Any) -> "Findings":
        from chainrule.training.validation import Findings

        found = float(trained.share)
        return Findings({f"share_of_{name}": found}, f"{told}: {found:.0%} of the mean")

    return share
