"""The rules also hold in the modes in which a model is trained and called."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn

from chainrule._base import AutoregressiveModel
from chainrule.testing._agreement import require_equal, require_sum
from chainrule.testing._causality import require_past, swung
from chainrule.testing._contract_check import contract_check
from chainrule.testing._isolation import as_called, reseed
from chainrule.testing._sequence_subject import SequenceSubject
from chainrule.testing._subject import Batch
from chainrule.testing._values import values


@dataclass(frozen=True)
class Setting:
    """How a model is called.

    Attributes:
        model: a copy, in its number type and mode.
        batch: the rows.
        own_type: whether the model has its own number type; else float64.
        gradients: whether autograd records.
    """

    model: AutoregressiveModel
    batch: Batch
    own_type: bool
    gradients: bool

    def __str__(self) -> str:
        mode, switch = ("training" if self.model.training else "evaluation"), ("on" if self.gradients else "off")
        number_type = "its own number type" if self.own_type else "float64"
        return f"in {mode} mode, gradients {switch}, {number_type}, {len(self.batch.x)} rows: "

    def of(self, x: Tensor, ask: Callable[[Batch], Tensor]) -> Tensor:
        """Numbers that the model gives for x, from one state of the global random generators."""
        reseed(4000)
        with as_called() if self.own_type else nullcontext(), torch.set_grad_enabled(self.gradients):
            return ask(self.batch._replace(x=x)).detach().double()  # conditionals may compute when they are asked


@contract_check(SequenceSubject)
def check_conditions(subject: SequenceSubject) -> str:
    """Causality and `log_prob` hold as the model is used: while training, in its own number type, on the whole batch.

    The other checks see a few rows in float64 and in evaluation mode, mostly without gradients. Here elements from a
    position on are replaced, and `log_prob` is compared with the sum of the conditionals, in training mode (dropout set
    to 0) and in evaluation mode, with gradients recorded and not, in the number type that the model has on all rows
    given, and in float64. Rows of the whole batch must not influence each other either, as batch statistics do.
    """
    settings = list(_settings(subject))
    for setting in settings:
        _examine(subject, setting)
    ways = "training or evaluation, gradients on or off, own type or float64"
    return f"{len(settings)} ways to call it: {ways}, {len(subject.given.x)} rows"


def _settings(subject: SequenceSubject) -> Iterator[Setting]:
    for own_type, training in product((True, False), (True, False)):
        model = subject.copy(own_type=own_type).train(training)
        for part in model.modules() if training else ():
            if isinstance(part, nn.modules.dropout._DropoutNd):
                part.p = 0.0
            elif isinstance(getattr(part, "dropout", None), float):
                part.dropout = 0.0  # type: ignore[assignment]  # an attribute found on this very module
        for gradients in (True, False):
            if own_type or training or gradients:  # the other checks call it in the one way left
                yield Setting(model, subject.given if own_type else subject.batch(), own_type, gradients)


def _examine(subject: SequenceSubject, setting: Setting) -> None:
    model, x = setting.model, setting.batch.x
    probes = subject.probes.to(x)  # made in float64, so outside the setting
    allowed = max(1e-9, min(200 * torch.finfo(subject.own_type).eps, 0.05)) if setting.own_type else 1e-9

    def numbers(x: Tensor) -> Tensor:
        return setting.of(x, lambda batch: values(model(*batch), probes, 2))

    before, time = numbers(x), x.shape[1]
    other = subject.altered(x).to(x)
    if len(x) > 1:  # first, as rows that influence each other influence the past of each other too
        alone = numbers(torch.cat([x[:1], other[1:]]))[:1]
        message = f"{setting}the conditionals of the first row moved by {{gap}} nats when the other rows were replaced"
        require_equal(alone, before[:1], allowed, message)
    for cut in sorted({0, time // 2, time - 1}):
        after = numbers(torch.cat([x[:, :cut], other[:, cut:]], 1))
        require_past(before, after, cut, allowed, str(setting))
    # What looks at a whole batch, as a maximum over it does, needs a swing of all of it.
    low, high = swung(x, time // 2, subject.extremes)
    require_past(numbers(low), numbers(high), time // 2, allowed, str(setting))
    expected = setting.of(x, lambda batch: model(*batch).log_prob(batch.x).double().flatten(1).sum(1))
    require_sum(setting.of(x, lambda batch: model.log_prob(*batch)), expected, 10 * allowed, str(setting))
