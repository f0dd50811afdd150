"""Decorator that turns a function into a check of one rule, and the results of checks."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from html import escape
from typing import Any, Protocol, cast

from torch import Tensor

from chainrule._base import Context, TrainableModel
from chainrule.modes import device_of
from chainrule.testing._isolation import Widened, isolated
from chainrule.testing._row_subjects import LabelSubject, LatentSubject
from chainrule.testing._sequence_subject import SequenceSubject
from chainrule.testing._subject import DoesNotApply, Subject, Violation


@dataclass(frozen=True)
class Result:
    """Result of a check.

    Attributes:
        name: name of the rule.
        ok: true if the model keeps the rule, or if the rule does not apply.
        detail: the tested cases, or the violation, in one line.
        applies: false if the rule does not apply to this model.
    """

    name: str
    ok: bool
    detail: str
    applies: bool = True


@dataclass(frozen=True, repr=False)
class Report:
    """Table of the results of several checks.

    Attributes:
        results: the results.
        subject: title line with the model and the rows; empty for no title.

    >>> print(Report([Result("causality", True, "nothing"), Result("samples", False, "7 was drawn")]))
    causality  pass  nothing
    samples    FAIL  7 was drawn
    """

    results: Sequence[Result]
    subject: str = ""

    @property
    def ok(self) -> bool:
        """True if the model keeps every rule."""
        return all(result.ok for result in self.results)

    @property
    def failures(self) -> list[Result]:
        """Results of the broken rules."""
        return [result for result in self.results if not result.ok]

    def __str__(self) -> str:
        width = max((len(result.name) for result in self.results), default=0)
        lines = [f"{result.name:<{width}}  {_verdict(result)}  {result.detail}" for result in self.results]
        return "\n".join([*filter(None, [self.subject]), *lines])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        rows = "".join(
            f"<tr><td><code>{escape(result.name)}</code></td><td>{_verdict(result).strip()}</td>"
            f'<td style="text-align:left">{escape(result.detail)}</td></tr>'
            for result in self.results
        )
        head = "<tr><th>rule</th><th>verdict</th><th>detail</th></tr>"
        caption = f"<caption>{escape(self.subject)}</caption>" if self.subject else ""
        return f"<table>{caption}<thead>{head}</thead><tbody>{rows}</tbody></table>"


def _verdict(result: Result) -> str:
    if not result.applies:
        return " -- "
    return "pass" if result.ok else "FAIL"


Kind = type[Subject[Any]]
KINDS: tuple[Kind, ...] = (SequenceSubject, LatentSubject, LabelSubject)  # the first that fits a model is used


class Check(Protocol):
    """Protocol of a check of one rule, for some kinds of models."""

    __name__: str
    kinds: tuple[Kind, ...]
    examine: Callable[..., Result]  # with the arguments of `__call__`, `thorough`, and a context instead of `Widened`

    def __call__(
        self, model: TrainableModel, x: Tensor, context: Context = None, lengths: Tensor | None = None, *, seed: int = 0
    ) -> Result: ...


def contract_check(*kinds: Kind) -> Callable[[Callable[[Any], str]], Check]:
    """Turn a function into a check: it returns a line of detail, or raises `Violation` or `DoesNotApply`."""

    def make(body: Callable[[Any], str]) -> Check:
        name = body.__name__.removeprefix("check_")

        def check(
            model: TrainableModel, x: Tensor, context: Context = None, lengths: Tensor | None = None, *, seed: int = 0
        ) -> Result:
            return examine(model, x, context, lengths, seed, True, Widened())

        def examine(
            model: TrainableModel,
            x: Tensor,
            context: Context,
            lengths: Tensor | None,
            seed: int,
            thorough: bool,
            widening: AbstractContextManager,
        ) -> Result:
            kind: Any = kind_of(model, *kinds)
            kind.check_arguments(model, x, context, lengths)
            with isolated(seed, device_of(model), widening):
                try:
                    subject = kind(model, x, context, lengths, seed)
                    subject.thorough = thorough
                    return Result(name, True, body(subject))
                except DoesNotApply as reason:
                    return Result(name, True, f"does not apply: {reason}", applies=False)
                except Violation as violation:
                    return Result(name, False, str(violation))
                except Exception as error:
                    message = " ".join(str(error).split())
                    return Result(name, False, f"the model raised {type(error).__name__}: {message}")

        check.__name__, check.__qualname__, check.__module__ = body.__name__, body.__name__, body.__module__
        check.__doc__ = body.__doc__
        vars(check).update(kinds=kinds, examine=examine)
        return cast(Check, check)

    return make


def all_results(checks: Sequence[Check], probing: Sequence[Check], *arguments: Any) -> list[Result]:
    """Return the results of the checks in their order.

    `Widened` is only in force during the `probing` checks, if the model asks for no narrower dtype there. A check that
    fails without it is repeated with it, since the model may ask elsewhere.
    """
    widened = Widened()
    results = {check: check.examine(*arguments, widened) for check in checks if check in probing}
    for check in (check for check in checks if check not in results):
        result = None if widened.replaced else check.examine(*arguments, nullcontext())
        results[check] = result if result and result.ok else check.examine(*arguments, widened)
    return [results[check] for check in checks]


def kind_of(model: TrainableModel, *kinds: Kind) -> Kind:
    """Return the first class of subjects for a model."""
    chosen = next((kind for kind in KINDS if isinstance(model, kind.models)), None)
    if chosen is None or chosen not in kinds:
        expected = " or ".join(kind.named for kind in kinds)
        raise ValueError(f"model: expected {expected}, got {type(model).__name__}")
    return chosen
