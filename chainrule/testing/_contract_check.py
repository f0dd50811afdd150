"""Make a check of one rule from its body."""

from collections.abc import Callable
from typing import Any, Protocol, cast

from torch import Tensor

from chainrule._base import Context, TrainableModel
from chainrule._modes import device_of
from chainrule.testing._isolation import isolated
from chainrule.testing._label_subject import LabelSubject
from chainrule.testing._latent_subject import LatentSubject
from chainrule.testing._report import Result
from chainrule.testing._sequence_subject import SequenceSubject
from chainrule.testing._subject import DoesNotApply, Subject, Violation

Kind = type[Subject[Any]]
KINDS: tuple[Kind, ...] = (SequenceSubject, LatentSubject, LabelSubject)  # of several, the first


class Check(Protocol):
    """A check of one rule, for some kinds of models."""

    __name__: str
    kinds: tuple[Kind, ...]

    def __call__(
        self, model: TrainableModel, x: Tensor, context: Context = None, lengths: Tensor | None = None, *, seed: int = 0
    ) -> Result: ...


def contract_check(*kinds: Kind) -> Callable[[Callable[[Any], str]], Check]:
    """Make a check of a function that examines subjects of some kinds.

    The function returns a line about the trial, raises `Violation` where the rule is broken, and `DoesNotApply` where
    it says nothing. A model that raises an error of its own breaks the rule.
    """

    def make(body: Callable[[Any], str]) -> Check:
        name = body.__name__.removeprefix("check_")

        def check(
            model: TrainableModel, x: Tensor, context: Context = None, lengths: Tensor | None = None, *, seed: int = 0
        ) -> Result:
            kind: Any = kind_of(model, *kinds)
            kind.check_arguments(model, x, context, lengths)
            with isolated(seed, device_of(model)):
                try:
                    return Result(name, True, body(kind(model, x, context, lengths, seed)))
                except DoesNotApply as reason:
                    return Result(name, True, f"does not apply: {reason}", applies=False)
                except Violation as violation:
                    return Result(name, False, str(violation))
                except Exception as error:
                    told = " ".join(str(error).split())
                    return Result(name, False, f"the model raised {type(error).__name__}: {told}")

        check.__name__, check.__qualname__, check.__module__ = body.__name__, body.__name__, body.__module__
        check.__doc__ = body.__doc__
        vars(check)["kinds"] = kinds
        return cast(Check, check)

    return make


def kind_of(model: TrainableModel, *kinds: Kind) -> Kind:
    """Choose how a model is examined.

    Raises:
        ValueError: it is of no such kind.
    """
    found = next((kind for kind in KINDS if isinstance(model, kind.models)), None)
    if found is None or found not in kinds:
        expected = " or ".join(kind.named for kind in kinds)
        raise ValueError(f"model: expected {expected}, got {type(model).__name__}")
    return found
