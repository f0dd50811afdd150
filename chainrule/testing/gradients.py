"""Every parameter receives a gradient."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from chainrule.base import AutoregressiveModel
from chainrule.testing.contract_check import contract_check
from chainrule.testing.subject import DoesNotApply, Subject, Violation
from chainrule.testing.weights import biased, fresh, jittered, remembering, uneven, weighted

Attempt: TypeAlias = tuple[nn.Module, Sequence[tuple[str, Tensor]], bool]
LONGEST = 16
SHORTEST = 3  # the recurrent weights need a state that has read something


@contract_check
def check_gradients_reach_parameters(subject: Subject) -> str:
    """Training can move every parameter: `log_prob` gives each a gradient that is not all zero, and so does `unroll`.

    Gradients at several x and weights count together, since a unit may be saturated at one of them. At the weights as
    they are, gradients must be finite. Parameters that do not require gradients are left out.
    """
    if subject.support is not None and len(subject.support) == 1:
        raise DoesNotApply("the support is a single value, of probability 1 whatever the parameters")

    def attempts() -> Iterator[Attempt]:
        x = _long_enough(subject)
        for number, model in enumerate(_models(subject)):
            yield model, [(way, _total(subject, model, x, way)) for way in ("log_prob", "unroll")], number == 0
            x = subject.altered(x)

    return f"{require_gradients(subject.model, attempts())}, through log_prob and through unroll"


def require_gradients(model: nn.Module, attempts: Iterable[Attempt], *, all_of_them: bool = False) -> str:
    """Raise `Violation` unless each way gives every parameter a gradient that is not all zero at one of the attempts.

    Args:
        model: the one that is checked.
        attempts: models with its parameters, each with scalars that depend on them by the names of the ways, and
            whether their gradients must be finite.
        all_of_them: go on to the last attempt, even when every gradient was found.
    """
    wanted = [name for name, weight in model.named_parameters() if weight.requires_grad and weight.numel()]
    if not wanted:
        raise DoesNotApply("no parameter requires a gradient")
    missing: dict[str, set[str]] = {}
    for other, totals, finite in attempts:
        weights = {name: weight for name, weight in other.named_parameters() if weight.requires_grad}
        for way, total in totals:
            absent = missing.setdefault(way, set(wanted))
            if not total.requires_grad:
                continue
            gradients = torch.autograd.grad(total, list(weights.values()), allow_unused=True)
            for name, gradient in zip(weights, gradients, strict=True):
                if gradient is not None and finite and not gradient.isfinite().all():
                    raise Violation(f"the gradient of {way} with respect to {name} is not finite")
                if gradient is not None and gradient.any():
                    absent.discard(name)
        if not all_of_them and not any(missing.values()):
            break
    for way, absent in missing.items():
        if absent:
            names = ", ".join(sorted(absent)[:3]) + (f" and {len(absent) - 3} more" if len(absent) > 3 else "")
            raise Violation(f"{way} gives no gradient to {len(absent)} of {len(wanted)} parameters: {names}")
    return f"all {len(wanted)} parameters"


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


def _total(subject: Subject, model: AutoregressiveModel, x: Tensor, way: str) -> Tensor:
    if way == "log_prob":
        return model.log_prob(x, subject.context).sum()
    return model.unroll(x, model.initial_state(len(x), subject.context))[0].log_prob(x).sum()
