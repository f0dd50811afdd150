"""What a model is and its state_dict does not hold is found."""

import numpy
import pytest
import torch
from sound_models import FixedColumns, Tiny
from torch import nn

from chainrule.testing import check_model
from chainrule.testing._invariance import check_save_load

X = torch.randint(5, (3, 8), generator=torch.Generator().manual_seed(0))


class Added(Tiny):
    """Adds `self.extra()` to the scores."""

    def conditional(self, h):
        conditional = super().conditional(h)
        return type(conditional)(conditional.logits + self.extra())


class InAList(Added):
    def head(self):
        super().head()
        self.biases = [{"first": (torch.randn(5),)}]

    def extra(self):
        return self.biases[0]["first"][0]


class OfNumpy(Added):
    def head(self):
        super().head()
        self.bias = numpy.random.normal(size=5)

    def extra(self):
        return torch.from_numpy(self.bias)


class HiddenModule(Added):
    """A module in a plain list is none of the model's modules."""

    def head(self):
        super().head()
        self.layers = [nn.Linear(1, 5)]

    def extra(self):
        return self.layers[0](torch.ones(1))


class InAnObject(Added):
    def head(self):
        super().head()

        class Settings:
            bias = None

        self.settings = Settings()
        self.settings.bias = torch.randn(5)

    def extra(self):
        return self.settings.bias


class Transient(Added):
    """A random buffer that is left out on purpose."""

    def head(self):
        super().head()
        self.register_buffer("bias", torch.randn(5), persistent=False)

    def extra(self):
        return self.bias


class RandomOrder(Added):
    """A permutation drawn in the constructor."""

    def head(self):
        super().head()
        self.order = torch.tensor([2, 0, 4, 1, 3])

    def conditional(self, h):
        conditional = Tiny.conditional(self, h)
        return type(conditional)(conditional.logits[..., self.order])

    def __init__(self, order):  # cannot be called again: nothing is known of its argument
        super().__init__()


class Learned(Added):
    """A value that was set after construction."""

    def head(self):
        super().head()
        self.bias = torch.zeros(5)

    def extra(self):
        return self.bias


class LeavesOut(Tiny):
    """Forgets a parameter on the way to the file."""

    def state_dict(self, *arguments, **options):
        state = super().state_dict(*arguments, **options)
        state.pop("output.bias", None)
        return state


class LeavesOutInSilence(LeavesOut):
    def load_state_dict(self, state_dict, strict=True, assign=False):
        super().load_state_dict(state_dict, strict=False)
        return nn.modules.module._IncompatibleKeys([], [])


class Prepared(Tiny):
    """Keeps a product of its weights that loading does not renew."""

    prepared = None

    def conditional(self, h):
        if self.prepared is None:
            self.prepared = self.output.weight.detach() * 1.0
        return type(super().conditional(h))(h @ self.prepared.t() + self.output.bias)


@pytest.mark.parametrize(
    "broken",
    [
        *(InAList, OfNumpy, InAnObject, Transient, lambda: RandomOrder(None), HiddenModule),  # outside the state_dict
        *(LeavesOut, LeavesOutInSilence, Prepared),  # which restores another model
    ],
)
def test_state_that_is_not_restored_is_named(broken):
    assert not check_save_load(broken(), X).ok


def test_state_outside_the_state_dict_breaks_this_rule_alone():
    assert [result.name for result in check_model(InAList(), X).failures] == ["save_load"]


def test_a_value_set_after_construction_is_named_and_the_constant_it_was_is_not():
    model = Learned()
    assert check_save_load(model, X).ok
    model.bias = torch.tensor([0.0, 0.5, 0.0, 2.0, 0.0])
    result = check_save_load(model, X)
    assert not result.ok
    assert "bias" in result.detail


class Waves(Added):
    """A table that the constructor computes, registered or not, is a constant."""

    def __init__(self, size=5):
        self.size = size
        super().__init__()

    def head(self):
        super().head()
        self.table = torch.sin(torch.arange(5) * 1.7)
        self.register_buffer("registered", torch.cos(torch.arange(5) * 1.7), persistent=False)

    def __setattr__(self, name, value):
        if name == "size":
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)

    def extra(self):
        return self.table + self.registered


def test_constants_of_the_constructor_are_no_state():
    assert check_save_load(Waves(), X).ok
    assert check_save_load(FixedColumns(), X[:, :4] % 3).ok


def test_tied_weights_are_saved_once_and_loaded():
    from chainrule.models import RecurrentLM

    model = RecurrentLM(5, embedding_size=8, hidden_size=8)
    assert check_save_load(model, X).ok

    class Tied(Tiny):
        def head(self):
            super().head()
            self.again = self.output

    assert check_save_load(Tied(), X).ok
