"""The weight of the companion in a `CalibratedMixture`, reported at each validation and for a run."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chainrule._app.tasks.task import Task
    from chainrule.training._validation import Findings, Observe


def share_of(name: str, told: str) -> "Observe":
    """An observer of the companion's weight in a `CalibratedMixture`: `name` is for figures, `told` for display."""

    def share(trained: Any) -> "Findings":
        from chainrule.training._validation import Findings

        found = float(trained.share)
        return Findings({f"share_of_{name}": found}, f"{told}: {found:.0%} of the mean")

    return share


def averaged_with(run: "Task[Any]", name: str, told: str) -> dict[str, str]:
    """The companion with which the network of a run is averaged, and its weight at the best validation."""
    key = f"share_of_{name}"
    shares = [record[key] for record in run.metrics() if record.get("best") and key in record]
    return {"averaged": f"with {told}" + (f", {shares[-1]:.0%} of the mean" if shares else "")}
