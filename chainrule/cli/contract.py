"""What `chainrule check` says of a model of any kind."""

import json as json_format
from typing import TYPE_CHECKING

from chainrule.base import AutoregressiveModel, Context, LikelihoodModel

if TYPE_CHECKING:
    from torch import Tensor


def check_contract(
    model: LikelihoodModel,
    x: "Tensor",
    context: Context = None,
    lengths: "Tensor | None" = None,
    *,
    seed: int,
    json: bool,
) -> int:
    """Check a model on a few rows and print a line a check; 0 if every one holds, else 1."""
    from chainrule.testing import check_model

    assert isinstance(model, AutoregressiveModel)  # the kinds that have this verb have such models
    report = check_model(model, x, context=context, lengths=lengths, seed=seed)
    if json:
        for result in report.results:
            record = {"name": result.name, "ok": result.ok, "applies": result.applies, "detail": result.detail}
            print(json_format.dumps(record))
    else:
        print(report)
    return 0 if report.ok else 1
