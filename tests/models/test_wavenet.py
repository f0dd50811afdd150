"""WaveNet behind the contract."""

import pytest
import torch

from chainrule.heads import Categorical, draw
from chainrule.layers.causal_conv1d import CausalConv1d
from chainrule.models.wavenet import WaveNet
from chainrule.testing import check_causality, check_full_context, check_model, check_step_equals_forward

VARIANTS = {
    "two blocks": {"blocks": 2, "layers_per_block": 2},
    "three taps, labels": {"blocks": 1, "layers_per_block": 2, "kernel_size": 3, "num_classes": 3},
    "one layer": {"blocks": 1, "layers_per_block": 1},
}


def made(**options):
    return WaveNet(**{"levels": 5, "channels": 6, "skip_channels": 7, **VARIANTS["two blocks"], **options})


@pytest.mark.parametrize("variant", VARIANTS)
def test_keeps_the_contract(variant):
    model = made(**VARIANTS[variant])
    labels = None if model.num_classes is None else torch.tensor([0, 1, 2])
    report = check_model(model, torch.randint(5, (3, 12)), labels, torch.tensor([12, 5, 1]))
    assert report.ok, str(report)


def test_the_receptive_field_is_that_of_the_equations_and_what_is_declared():
    model = made(blocks=2, layers_per_block=3, kernel_size=3)
    assert model.receptive_field == 1 + 2 * 2 * (1 + 2 + 4)
    assert made(blocks=3, layers_per_block=10).receptive_field == 1 + 3 * 1023
    assert model.visible_past(40)[35].nonzero().flatten().tolist() == list(range(6, 35))


def test_a_receptive_field_declared_one_too_long_or_too_short_is_found():
    for error in (-1, 1):

        class Wrong(WaveNet):
            def visible_past(self, length, error=error):
                return torch.ones(length, length, dtype=torch.bool).tril(-1).triu(-self.receptive_field - error)

        model = Wrong(5, 6, 1, 2, skip_channels=7)
        assert not check_full_context(model, torch.randint(5, (2, 9))).ok


def test_a_convolution_that_reads_ahead_breaks_causality(monkeypatch):
    forward = CausalConv1d.forward
    monkeypatch.setattr(CausalConv1d, "forward", lambda self, x, state=None: forward(self, x.roll(-1, 1), state))
    assert not check_causality(made(), torch.randint(5, (2, 9))).ok


def test_a_queue_that_is_one_too_long_breaks_step(monkeypatch):
    model = made()
    initial = CausalConv1d.initial_state
    monkeypatch.setattr(CausalConv1d, "initial_state", lambda self, size: initial(self, size) + initial(self, size)[:1])
    assert not check_step_equals_forward(model, torch.randint(5, (2, 9))).ok


def test_a_sample_is_value_for_value_the_one_of_full_recomputation():
    model, labels = made(num_classes=2).double().eval(), torch.tensor([0, 1, 1])
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    drawn = model.sample(3, labels, length=30, generator=torch.Generator().manual_seed(7))
    generator, x = torch.Generator().manual_seed(7), torch.zeros(3, 30, dtype=torch.long)
    with torch.no_grad():
        for t in range(30):
            x[:, t] = draw(Categorical(model(x, labels).logits[:, t]), generator=generator)
    assert torch.equal(drawn, x)


def test_a_stepper_leaves_the_state_it_was_given_alone():
    model = made().double()
    stepper, x = model.stepper(), torch.randint(5, (2, 9))
    _, state = model.unroll(x, model.initial_state(2))
    lengths = [len(queue) for queue in state["queues"]]
    first = stepper(x[:, -1], state)[0].logits
    assert [len(queue) for queue in state["queues"]] == lengths
    assert torch.equal(stepper(x[:, -1], state)[0].logits, first)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": 1}, "levels: expected at least 2"),
        ({"kernel_size": 1}, "kernel_size: expected at least 2"),
        ({"blocks": 0}, "blocks: expected at least 1, got 0"),
        ({"num_classes": -1}, "num_classes"),
    ],
)
def test_wrong_sizes_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        made(**options)


def test_labels_are_checked():
    x = torch.zeros(2, 3, dtype=torch.long)
    with pytest.raises(ValueError, match="context: this model has no labels"):
        made()(x, torch.zeros(2).long())
    with pytest.raises(ValueError, match="context: expected 2 labels"):
        made(num_classes=3)(x)
    with pytest.raises(ValueError, match=r"context: expected labels in \[0, 3\), got 0 to 3"):
        made(num_classes=3)(x, torch.tensor([0, 3]))
