"""Every parameter receives a gradient."""

import torch
from torch import Tensor, nn

from chainrule.testing._contract_check import KINDS, contract_check
from chainrule.testing._subject import DoesNotApply, M, Subject, Violation
from chainrule.testing._weights import weighted


@contract_check(*KINDS)
def check_gradients_reach_parameters(subject: Subject[M]) -> str:
    """Training can move every parameter: `log_prob` gives each a gradient that is not all zero, and so does `unroll`.

    Of a model with a latent code, `training_objective` does. Gradients at several x and weights count together, since a
    unit may be saturated at one of them. At the weights as they are, gradients must be finite; with a latent code also
    at weights of other sizes. Parameters that do not require gradients are left out.
    """
    wanted = [name for name, weight in subject.model.named_parameters() if weight.requires_grad and weight.numel()]
    if not wanted:
        raise DoesNotApply("no parameter requires a gradient")
    missing: dict[str, set[str]] = {}
    for label, model in weighted(subject, *subject.gradient_draws):
        for way, total in subject.objectives(model):
            gradients = gradients_of(total, model, way if subject.finite_gradients or not label else "")
            absent = missing.setdefault(way, set(wanted))
            absent -= {name for name, gradient in gradients.items() if gradient.any()}
        if not any(missing.values()) and not subject.finite_gradients:
            break
    for way, absent in missing.items():
        if absent:
            names = ", ".join(sorted(absent)[:3]) + (f" and {len(absent) - 3} more" if len(absent) > 3 else "")
            raise Violation(f"{way} gives no gradient to {len(absent)} of {len(wanted)} parameters: {names}")
    return f"all {len(wanted)} parameters, through {' and '.join(missing)}"


def gradients_of(total: Tensor, model: nn.Module, way: str) -> dict[str, Tensor]:
    """The gradients that a scalar gives parameters; raises `Violation` for those that are not finite.

    way: how the scalar was made, for the message; empty where gradients need not be finite.
    """
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if not weights or not total.requires_grad:
        return {}
    gradients = torch.autograd.grad(total, list(weights.values()), allow_unused=True)
    found = {name: gradient for name, gradient in zip(weights, gradients, strict=True) if gradient is not None}
    for name, gradient in found.items():
        if way and not gradient.isfinite().all():
            raise Violation(f"the gradient of {way} with respect to {name} is not finite")
    return found
