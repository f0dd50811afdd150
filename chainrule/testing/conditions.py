"""A model keeps the rules as it is trained and called too, not only as it is examined."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chainrule.base import AutoregressiveModel, Context
from chainrule.testing.contract_check import contract_check
from chainrule.testing.isolation import as_called, reseed
from chainrule.testing.subject import Subject, Violation
from chainrule.testing.values import distance, values


@dataclass(frozen=True)
class Setting:
    """How the model is called.

    Attributes:
        name: in words.
        model: a copy, in its number type and mode.
        x: (B, T, ...) in visiting order.
        context: its rows.
        own_type: whether the model has its own number type; else float64.
        gradients: whether autograd records.
        tolerance: relative, for rounding.
    """

    name: str
    model: AutoregressiveModel
    x: Tensor
    context: Context
    own_type: bool
    gradients: bool
    tolerance: float

    def numbers(self, subject: Subject, x: Tensor) -> Tensor:
        """(B, T, K) conditionals of `forward` as numbers, from one state of the global random generators."""
        with self._called():  # conditionals may compute when they are asked
            return values(self.model(x, self.context), subject.probes.to(x), 2).detach().double()

    def sum_of_terms(self, x: Tensor) -> Tensor:
        """(B,) the sum of the log-probabilities that the conditionals give x."""
        with self._called():
            return self.model(x, self.context).log_prob(x).detach().double().flatten(1).sum(1)

    def log_prob(self, x: Tensor) -> Tensor:
        """(B,) what the model's own `log_prob` gives, from the same state of the random generators."""
        with self._called():
            return self.model.log_prob(x, self.context).detach().double()

    @contextmanager
    def _called(self) -> Iterator[None]:
        reseed(4000)
        with as_called() if self.own_type else nullcontext(), torch.set_grad_enabled(self.gradients):
            yield


@contract_check
def check_conditions(subject: Subject) -> str:
    """Causality and `log_prob` hold as the model is used: while training, in its own number type, on the whole batch.

    The other checks see a few rows in float64 and in evaluation mode, mostly without gradients. Here elements from a
    position on are replaced, and `log_prob` is compared with the sum of the conditionals, in training mode (dropout set
    to 0) and in evaluation mode, with gradients recorded and not, in the number type that the model has on all rows
    given, and in float64. In evaluation mode, rows of the whole batch must not influence each other either.
    """
    tried = 0
    for setting in _settings(subject):
        _replace(subject, setting)
        _compare_log_prob(setting)
        if not setting.model.training:
            _compare_rows(subject, setting)
        tried += 1
    rows = len(subject.given)
    return f"{tried} ways to call it: training or evaluation, gradients on or off, own type or float64, {rows} rows"


def _settings(subject: Subject) -> Iterator[Setting]:
    for own in (True, False):
        for training in (True, False):
            model = subject.copy(own_type=own)
            model.train(training)
            if training:
                _without_dropout(model)
            x, context = (subject.given, subject.given_context) if own else (subject.x, subject.context)
            for gradients in (True, False):
                if not own and not training and not gradients:
                    continue  # as all other checks call it
                name = (
                    f"in {'training' if training else 'evaluation'} mode, gradients {'on' if gradients else 'off'}, "
                    f"{'its own number type' if own else 'float64'}, {len(x)} rows"
                )
                yield Setting(name, model, x, context, own, gradients, _tolerance(subject) if own else 1e-9)


def _tolerance(subject: Subject) -> float:
    return max(1e-9, min(200 * torch.finfo(subject.own_type).eps, 0.05))


def _without_dropout(model: AutoregressiveModel) -> None:
    for part in model.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = 0.0
        elif isinstance(getattr(part, "dropout", None), float):
            part.dropout = 0.0  # type: ignore[assignment]  # an attribute found on this very module


def _replace(subject: Subject, setting: Setting) -> None:
    x, time = setting.x, setting.x.shape[1]
    before = setting.numbers(subject, x)
    low, high = (end.to(x) for end in subject.extremes)
    for cut in sorted({0, time // 2, time - 1}):
        future = x.clone()
        future[:, cut:] = subject.altered(x)[:, cut:].to(x)
        pairs = [(before, future)]
        if cut == time // 2:  # what looks at a whole batch, as a maximum over it does, needs a swing of all of it
            base, other = x.clone(), x.clone()
            base[:, cut:], other[:, cut:] = low, high
            pairs.append((setting.numbers(subject, base), other))
        for first, other in pairs:
            gap = distance(first, setting.numbers(subject, other))[:, : cut + 1]
            if (gap > setting.tolerance).any():
                t = int((gap > setting.tolerance).any(0).nonzero()[0])
                raise Violation(
                    f"{setting.name}: p(x_{t} | x_<{t}) moved by {float(gap[:, t].max()):.3g} nats "
                    f"when only elements from {cut} on were replaced"
                )


def _compare_log_prob(setting: Setting) -> None:
    total = setting.log_prob(setting.x)
    expected = setting.sum_of_terms(setting.x)
    gap = (total - expected).abs() / (1 + expected.abs())
    wrong = (gap > 10 * setting.tolerance) | (total.isnan() != expected.isnan())
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise Violation(
            f"{setting.name}: log_prob of row {row} is {float(total[row]):.6g}, "
            f"the sum of its conditional log-probabilities {float(expected[row]):.6g}"
        )


def _compare_rows(subject: Subject, setting: Setting) -> None:
    """The first row among others than those given."""
    if len(setting.x) < 2:
        return
    other = torch.cat([setting.x[:1], subject.altered(setting.x)[1:].to(setting.x)])
    gap = distance(setting.numbers(subject, setting.x)[:1], setting.numbers(subject, other)[:1])
    if (gap > setting.tolerance).any():
        raise Violation(
            f"{setting.name}: the conditionals of the first row moved by {float(gap.max()):.3g} nats "
            "when the other rows were replaced"
        )
