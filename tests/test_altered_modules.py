"""What `forward` calls is obeyed by `step`, `unroll` and `prepare`, whatever is done to modules.

Prepared steps read weights past the modules that hold them: a hook, or LoRA around a layer, changed the likelihood and
not the samples.
"""

import copy

import pytest
import torch
from small_models import SEQUENCES
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils.parametrize import register_parametrization

from chainrule import models
from chainrule.layers import GRU, Map, Serial
from chainrule.layers._sequence_layer import stepping
from chainrule.models import RecurrentLM
from chainrule.state import map_state


def changed(output):
    """A module's output, its first tensor changed in each number alone."""
    if isinstance(output, tuple):
        return changed(output[0]), *output[1:]
    return 1.5 * output + 0.1 if isinstance(output, torch.Tensor) and output.is_floating_point() else output


class Around(nn.Module):
    """As PEFT wraps a layer: it has the attributes of the layer, and computes more."""

    def __init__(self, base):
        super().__init__()
        self.base = base

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("base"), name)

    def forward(self, *arguments):
        return changed(self.base(*arguments))


class Larger(nn.Module):
    def forward(self, weight):
        return 1.3 * weight + 0.05


def hooked(model, name):
    model.get_submodule(name).register_forward_hook(lambda module, inputs, output: changed(output))


def hooked_before(model, name):
    model.get_submodule(name).register_forward_pre_hook(lambda module, inputs: changed(inputs))


def wrapped(model, name):
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, Around(model.get_submodule(name)))


def followed(model, name):
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, nn.Sequential(model.get_submodule(name), nn.Hardtanh(-0.3, 0.3)))


def overridden(model, name):
    module = model.get_submodule(name)
    module.forward = lambda *arguments, forward=module.forward: changed(forward(*arguments))


def subclassed(model, name):
    module = model.get_submodule(name)
    kind = type(module)
    module.__class__ = type(
        kind.__name__, (kind,), {"forward": lambda self, *inputs: changed(kind.forward(self, *inputs))}
    )


def parametrised(model, name):
    for weight in [weight for weight, _ in model.get_submodule(name).named_parameters(recurse=False)]:
        register_parametrization(model.get_submodule(name), weight, Larger())


ALTERATIONS = (hooked, wrapped, overridden, parametrised, subclassed, hooked_before, followed)
READ = 3  # elements


def terms(model, x, context):
    """log p of the first elements of the first row, (1, T), by everything that computes it."""
    x, context = x[:1], map_state(lambda leaf: leaf[:1], context)
    sequence = model.to_sequence(x)
    found = {"forward": model.to_sequence(model(x, context).log_prob(x))[:, :READ]}
    sequence = sequence[:, :READ]
    found["unroll"] = model.unroll(sequence, model.initial_state(1, context))[0].log_prob(sequence)
    for name, step in (("step", model.step), ("prepare", model.prepare().step)):
        state, x_prev, parts = model.initial_state(1, context), None, []
        for x_t in sequence.unbind(1):
            conditional, state = step(x_prev, state)
            parts.append(conditional.log_prob(x_t))
            x_prev = x_t
        found[name] = torch.stack(parts, 1)
    return found


MORE = {
    "RecurrentLM with embeddings": lambda: (
        RecurrentLM(9, "lstm", 5, hidden_size=8, num_layers=2, ngram_order=2, cutoffs=[4]),
        (torch.randint(9, (1, 6)),),
    ),
    "TransformerLM after norm": lambda: (
        models.TransformerLM(
            4, model_size=8, num_layers=1, num_heads=2, norm="rms", norm_first=False, position="learned"
        ),
        (torch.randint(4, (1, 6)),),
    ),
    "TransformerLM with another mixer": lambda: (
        models.TransformerLM(4, model_size=8, num_layers=1, num_heads=2, attention="min-gru"),
        (torch.randint(4, (1, 6)),),
    ),
    "Seq2Seq with input feeding": lambda: (
        models.Seq2Seq(5, 4, hidden_size=8, embedding_size=6, input_feeding=True),
        (torch.randint(4, (1, 5)), {"tokens": torch.randint(5, (1, 4)), "lengths": torch.tensor([4])}),
    ),
    "PixelRNN by rows": lambda: (
        models.PixelRNN((1, 3, 3), 2, "row", channels=8, layers=1, first_kernel_size=3),
        (torch.randint(2, (1, 1, 3, 3)),),
    ),
}
MODELS = {**SEQUENCES, **MORE}


@torch.no_grad()
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "PixelCNNPP" else name for name in MODELS]
)
def test_every_way_to_compute_a_model_obeys_its_modules(name):
    model, (x, *others) = MODELS[name]()
    context = others[0] if others else None
    for parameter in model.eval().parameters():
        parameter += 0.1 * torch.randn_like(parameter)
    names = [part for part, _ in model.named_modules()][1:]
    seen = 0
    for number, part in enumerate(names * (1 if len(names) > 12 else 2)):
        altered = copy.deepcopy(model)
        try:
            ALTERATIONS[number % len(ALTERATIONS)](altered, part)
            altered(x, context).log_prob(x)
        except (AttributeError, TypeError, ValueError, RuntimeError):  # a module that cannot be altered so
            continue
        found = terms(altered, x, context)
        expected = found.pop("forward")
        for kind, value in found.items():
            torch.testing.assert_close(value, expected, atol=2e-4, rtol=1e-3, msg=f"{kind}, altered {part}")
        seen += 1
    assert seen or not names


@torch.no_grad()
def test_a_global_hook_is_obeyed():
    model, (x, *_) = SEQUENCES["TransformerLM"]()
    model.eval()
    before = terms(model, x, None)["forward"]
    with register_module_forward_hook(lambda module, inputs, output: changed(output)):
        found = terms(model, x, None)
    expected = found.pop("forward")
    assert not torch.allclose(expected, before)
    for value in found.values():
        torch.testing.assert_close(value, expected)


@torch.no_grad()
def test_samples_are_drawn_with_the_hooks():
    model = RecurrentLM(5, hidden_size=8).eval()
    model.recurrent.register_forward_hook(lambda module, inputs, output: (0 * output[0], output[1]))
    model.bias_ho.copy_(torch.tensor([0.0, 0.0, 50.0, 0.0, 0.0]))
    assert (model.sample(3, length=4) == 2).all()


class Halved(GRU):
    """A layer whose step, inherited, knows nothing of its `forward`."""

    def forward(self, x, state=None, lengths=None):
        y, state = super().forward(x, state, lengths)
        return y / 2, state


@torch.no_grad()
def test_a_layer_that_changes_forward_alone_is_called():
    layer, x = Serial(Halved(3, 4), Map(nn.Linear(4, 2))), torch.randn(2, 3)
    expected = layer(x.unsqueeze(1))[0].squeeze(1)
    for step in (layer.step, layer.prepare(), stepping(layer)):
        torch.testing.assert_close(step(x, layer.initial_state(2))[0], expected)
