"""The share of what a network is averaged with: told at each validation, and of a run."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chainrule.tasks.task import Task
    from chainrule.training.validation import Findings, Observe


def share_of(name: str, told: str) -> "Observe":
    """An observer of a `CalibratedMixture`, whose companion has a name in figures, and one to show."""

    def share(trained: Any) -> "Findings":
        from chainrule.training.validation import Findings

        found = float(trained.share)
        return Findings({f"share_of_{name}": found}, f"{told}: {found:.0%} of the mean")

    return share


def averaged_with(run: "Task[Any]", name: str, told: str) -> dict[str, str]:
    """What the network of a run is averaged with, and its share in the weights that are kept."""
    key = f"share_of_{name}"
    shares = [record[key] for record in run.metrics() if record.get("best") and key in record]
    return {"averaged": f"with {told}" + (f", {shares[-1]:.0%} of the mean" if shares else "")}
