"""Models that ask for float32 are checked in float64 all the same, and others without a detour."""

import pytest
import torch
from sound_models import Tiny

from chainrule import Executor
from chainrule.models import RecurrentLM
from chainrule.testing import check_model
from chainrule.testing._dependence import check_causality

X = torch.randint(5, (3, 6), generator=torch.Generator().manual_seed(0))


class Narrow(Tiny):
    """Adds a leak far below the rounding of float32 to features that it converts to float32."""

    leak = 0.0
    depths: set[int]

    def features(self, x, context=None):
        self.depths.add(torch._C._len_torch_function_stack())
        h = self.narrow(super().features(x, context))
        return h + self.leak * self.read(x)[..., :1]

    def narrow(self, h):
        return h.float().to(h.dtype)


class Masked(Narrow):
    def narrow(self, h):
        return h * torch.ones(h.shape[-1], dtype=torch.float32)


class Wide(Narrow):
    def narrow(self, h):
        return h * torch.ones(h.shape[-1], dtype=torch.promote_types(torch.float32, h.dtype))


@pytest.mark.parametrize(("kind", "always"), [(Narrow, True), (Masked, True), (Wide, False)])
def test_sound_models_pass_and_dtypes_are_replaced_only_where_a_model_asks_for_narrow_ones(kind, always):
    torch.manual_seed(0)
    kind.depths = set()
    report = check_model(kind(), X)
    assert report.ok, report
    assert max(kind.depths) == 1
    assert min(kind.depths) == (1 if always else 0)


@pytest.mark.parametrize("kind", [Narrow, Masked, Wide])
def test_a_leak_below_the_rounding_of_float32_is_found_by_a_single_check_too(kind):
    torch.manual_seed(0)
    model, kind.depths = kind(), set()
    model.leak = 1e-9
    result = check_causality(model, X)
    assert not result.ok
    assert float(result.detail.split("moved by ")[1].split()[0]) < 1e-8
    assert kind.depths == {1}


class NarrowLater(RecurrentLM):
    """Asks for float32 only in a prepared step, which the checks that look for it do not call."""

    def prepare(self):
        def step(x_prev, state):
            conditional, state = self.step(x_prev, state)
            return type(conditional)(conditional.logits.float().to(conditional.logits.dtype)), state

        return Executor(self, step)


def test_a_model_that_asks_for_narrow_types_elsewhere_is_not_accused():
    torch.manual_seed(0)
    report = check_model(NarrowLater(5, "gru", hidden_size=4), X)
    assert report.ok, report
