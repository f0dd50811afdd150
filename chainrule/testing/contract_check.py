"""Make a check of one rule from its body."""

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from chainrule.base import AutoregressiveModel, Context, TrainableModel
from chainrule.state import leaves
from chainrule.testing.isolation import isolated
from chainrule.testing.report import Result
from chainrule.testing.subject import DoesNotApply, Subject, Violation, device_of

S = TypeVar("S")
M = TypeVar("M", bound=TrainableModel)
M_contra = TypeVar("M_contra", bound=TrainableModel, contravariant=True)


class Check(Protocol[M_contra]):
    """A check of one rule."""

    __name__: str

    def __call__(
        self,
        model: M_contra,
        x: Tensor,
        context: Context = None,
        lengths: Tensor | None = None,
        *,
        seed: int = 0,
    ) -> Result: ...


def contract_check(body: Callable[[Subject], str]) -> Check[AutoregressiveModel]:
    """Make a check of a function that examines a `Subject`; see `make_check`."""
    return make_check(body, Subject, check_arguments)


def make_check(
    body: Callable[[S], str],
    subject: Callable[[M, Tensor, Context, Tensor | None, int], S],
    check_arguments: Callable[[M, Tensor, Context, Tensor | None], None],
) -> Check[M]:
    """Make a check of a function that examines a subject.

    Args:
        body: returns a line about the trial, raises `Violation` where the rule is broken, and `DoesNotApply` where it
            says nothing. A model that raises an error of its own breaks the rule.
        subject: made of the arguments of the check.
        check_arguments: raises ValueError for arguments that no model could be checked with.
    """
    name = body.__name__.removeprefix("check_")

    def check(
        model: M,
        x: Tensor,
        context: Context = None,
        lengths: Tensor | None = None,
        *,
        seed: int = 0,
    ) -> Result:
        check_arguments(model, x, context, lengths)
        with isolated(seed, device_of(model)):
            try:
                return Result(name, True, body(subject(model, x, context, lengths, seed)))
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
    check_context(context, x.shape[0])
    if lengths is not None:
        check_lengths(lengths, x.shape[0], model.to_sequence(x).shape[1])


def check_context(context: Context, rows: int) -> None:
    """Raise ValueError unless every tensor of a context has one entry a row, or one for all rows."""
    if any(leaf.dim() < 1 or leaf.shape[0] not in (1, rows) for leaf in leaves(context)):
        shapes = ", ".join(str(tuple(leaf.shape)) for leaf in leaves(context))
        raise ValueError(f"context: expected {rows} rows as in x, or 1, got shape {shapes}")


def check_lengths(lengths: Tensor, rows: int, time: int) -> None:
    """Raise ValueError unless there is one length a row, within [0, T] and not all 0."""
    if lengths.shape != (rows,) or lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise ValueError(
            f"lengths: expected {rows} integers, one a row, got shape {tuple(lengths.shape)} of {lengths.dtype}"
        )
    if not 0 <= int(lengths.min()) <= int(lengths.max()) <= time or not lengths.any():
        raise ValueError(
            f"lengths: expected values in [0, {time}], not all 0, got {int(lengths.min())} to {int(lengths.max())}"
        )
