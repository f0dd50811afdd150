"""`chainrule check RUN`: the contract of the library, tested on a trained model."""

from chainrule.cli.offered import offered
from chainrule.tasks.abilities import Checks
from chainrule.tasks.display import Switch, dump_json
from chainrule.tasks.task import Task


@offered(Checks)
def check(run: Checks, /, *, seed: int = 0, json: Switch = False) -> int:
    """Check that a trained model keeps the contract: causality, total probability, step = forward and more.

    Of a model of labels: total probability, rows that depend neither on each other nor on padding, and more. Of a
    model with a latent code: that its bounds are bounds, and more. Runs on a piece of the run's own data. Exit
    status 0 if every check holds, 1 if one fails.

    Args:
        seed: Seed of the perturbations and samples that the checks draw.
        json: Print one JSON object a check, with "name", "ok", "applies" and "detail".
    """
    import torch

    from chainrule.base import LikelihoodModel
    from chainrule.latent import LatentModel
    from chainrule.testing import check_model

    assert isinstance(run, Task)
    rows = run.checked_rows()
    if not isinstance(rows.model, LikelihoodModel | LatentModel):
        raise ValueError(f"check: a run of {run.config.model} has no likelihood, and no bound of one, to check")
    if rows.note and not json:
        print(rows.note)
    with torch.random.fork_rng(devices=[]):
        report = check_model(rows.model, rows.x, rows.context, rows.lengths, seed=seed)
    if not json:
        print(report)
    for result in report.results if json else ():
        names = ("name", "ok", "applies", "detail")
        print(dump_json({name: getattr(result, name) for name in names}))
    return 0 if report.ok else 1
