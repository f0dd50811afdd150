"""What turns the body of a check into a public function."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from chainrule.base import AutoregressiveModel, Context
from chainrule.state import leaves
from chainrule.testing.isolation import isolated
from chainrule.testing.report import Result
from chainrule.testing.subject import DoesNotApply, Subject, Violation, device_of


class Check(Protocol):
    """A check of one rule."""

    __name__: str

    def __call__(
        self,
        model: AutoregressiveModel,
        x: Tensor,
        context: Context = None,
        lengths: Tensor | None = None,
        *,
        seed: int = 0,
    ) -> Result: ...


def contract_check(body: Callable[[Subject], str]) -> Check:
    """Make a check of a function that examines a `Subject`.

    The body returns what it tried, raises `Violation` where the rule is broken, and `DoesNotApply` where it says
    nothing. A model that raises an error of its own breaks the rule.
    """
    name = body.__name__.removeprefix("check_")

    def check(
        model: AutoregressiveModel,
        x: Tensor,
        context: Context = None,
        lengths: Tensor | None = None,
        *,
        seed: int = 0,
    ) -> Result:
        check_arguments(model, x, context, lengths)
        with isolated(seed, device_of(model)):
            try:
                return Result(name, True, body(Subject(model, x, context, lengths, seed)))
            except DoesNotApply as reason:
                return Result(name, True, f"does not apply: {reason}", applies=False)
            except Violation as violation:
                return Result(name, False, str(violation))
            except Exception as error:
                return Result(name, False, f"the model raised {type(error).__name__}: {' '.join(str(error).split())}")

    check.__name__, check.__qualname__, check.__module__ = body.__name__, body.__name__, body.__module__
    check.__doc__ = body.__doc__
    return check


def check_arguments(model: AutoregressiveModel, x: Tensor, context: Context, lengths: Tensor | None) -> None:
    """Raise ValueError for arguments that no model could be checked with."""
    if not isinstance(model, AutoregressiveModel):
        raise ValueError(f"model: expected an AutoregressiveModel, got {type(model).__name__}")
    if not isinstance(x, Tensor) or x.dim() < 2 or 0 in x.shape[:2]:
        got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x: expected a tensor of shape (B, T) with B, T >= 1, got {got}")
    if any(leaf.dim() < 1 or leaf.shape[0] not in (1, x.shape[0]) for leaf in leaves(context)):
        shapes = ", ".join(str(tuple(leaf.shape)) for leaf in leaves(context))
        raise ValueError(f"context: expected {x.shape[0]} rows as in x, or 1, got shape {shapes}")
    if lengths is None:
        return
    if lengths.shape != x.shape[:1] or lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise ValueError(
            f"lengths: expected {x.shape[0]} integers, one a row, got shape {tuple(lengths.shape)} of {lengths.dtype}"
        )
    time = model.to_sequence(x).shape[1]
    if not 0 <= int(lengths.min()) <= int(lengths.max()) <= time or not lengths.any():
        raise ValueError(
            f"lengths: expected values in [0, {time}], not all 0, got {int(lengths.min())} to {int(lengths.max())}"
        )
