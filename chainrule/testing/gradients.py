"""Every parameter receives a gradient."""

from collections.abc import Iterator

import torch
from torch import Tensor

from chainrule.base import AutoregressiveModel
from chainrule.testing.contract_check import contract_check
from chainrule.testing.subject import DoesNotApply, Subject, Violation
from chainrule.testing.weights import biased, fresh, jittered, remembering, uneven, weighted

LONGEST = 16
SHORTEST = 3  # the recurrent weights need a state that has read something


@contract_check
def check_gradients_reach_parameters(subject: Subject) -> str:
    """Training can move every parameter: `log_prob` gives each a gradient that is not all zero, and so does `unroll`.

    Gradients at several x and weights count together, since a unit may be saturated at one of them. At the weights as
    they are, gradients must be finite. Parameters that do not require gradients are left out.
    """
    wanted = {
        name for name, parameter in subject.model.named_parameters() if parameter.requires_grad and parameter.numel()
    }
    if not wanted:
        raise DoesNotApply("no parameter requires a gradient")
    if subject.support is not None and len(subject.support) == 1:
        raise DoesNotApply("the support is a single value, of probability 1 whatever the parameters")
    x = _long_enough(subject)
    missing = {"log_prob": set(wanted), "unroll": set(wanted)}
    for attempt, model in enumerate(_models(subject)):
        for way, absent in missing.items():
            for name, gradient in _gradients(subject, model, x, way):
                if gradient is None:
                    continue
                if attempt == 0 and not gradient.isfinite().all():
                    raise Violation(f"the gradient of {way} with respect to {name} is not finite")
                if gradient.any():
                    absent.discard(name)
        if not missing["log_prob"] and not missing["unroll"]:
            break
        x = subject.altered(x)
    for way, absent in missing.items():
        if absent:
            names = ", ".join(sorted(absent)[:3]) + (f" and {len(absent) - 3} more" if len(absent) > 3 else "")
            raise Violation(f"{way} gives no gradient to {len(absent)} of {len(wanted)} parameters: {names}")
    return f"all {len(wanted)} parameters, through log_prob and through unroll"


def _models(subject: Subject) -> Iterator[AutoregressiveModel]:
    yield subject.model
    yield from (model for _, model in weighted(subject, (fresh, biased, jittered, remembering, uneven)))


def _long_enough(subject: Subject) -> Tensor:
    x = subject.beginning(LONGEST)
    if x.shape[1] >= SHORTEST:
        return x
    longer = torch.cat([x] * SHORTEST, 1)[:, :SHORTEST]
    try:
        subject.forward(longer)
    except Exception:
        return x
    return longer


def _gradients(
    subject: Subject, model: AutoregressiveModel, x: Tensor, way: str
) -> Iterator[tuple[str, Tensor | None]]:
    if way == "log_prob":
        total = model.log_prob(x, subject.context).sum()
    else:
        total = model.unroll(x, model.initial_state(len(x), subject.context))[0].log_prob(x).sum()
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not total.requires_grad:
        return iter(())
    gradients = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
    return zip(parameters, gradients, strict=True)
