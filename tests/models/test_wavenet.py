"""WaveNet behind the contract."""

from functools import partial

import pytest
import torch
from torch.nn.utils.prune import l1_unstructured

from chainrule.heads import Categorical
from chainrule.kernels._cached_steps import ROOM, PreparedDilatedStack
from chainrule.layers._dilated_stack import level_centres
from chainrule.models import WaveNet
from chainrule.state import load_state, save_state, select

VARIANTS = {
    "two blocks": {"blocks": 2, "layers_per_block": 2},
    "three taps, labels": {"blocks": 1, "layers_per_block": 2, "kernel_size": 3, "num_classes": 3},
    "one layer": {"blocks": 1, "layers_per_block": 1},
    "logistics": {"blocks": 1, "layers_per_block": 2, "components": 2},
    "one logistic, labels, three taps": {"layers_per_block": 1, "kernel_size": 3, "components": 1, "num_classes": 3},
}


def made(**options):
    return WaveNet(**{"levels": 5, "channels": 6, "skip_channels": 7, **VARIANTS["two blocks"], **options})


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_keeps_the_contract(keeps_contract, variant):
    model = made(**VARIANTS[variant])
    labels = None if model.num_classes is None else torch.tensor([0, 1, 2])
    keeps_contract(model, torch.randint(5, (3, 12)), labels, torch.tensor([12, 5, 1]))


def test_the_receptive_field_is_that_of_the_equations_and_what_is_declared():
    model = made(blocks=2, layers_per_block=3, kernel_size=3)
    assert model.receptive_field == 1 + 2 * 2 * (1 + 2 + 4)
    assert made(blocks=3, layers_per_block=10).receptive_field == 1 + 3 * 1023
    assert model.visible_past(40)[35].nonzero().flatten().tolist() == list(range(6, 35))


@pytest.mark.parametrize("options", [{}, {"components": 3}, {"kernel_size": 3}], ids=str)
def test_a_sample_is_value_for_value_the_one_of_full_recomputation(options):
    model, labels = made(num_classes=2, **options).double().eval(), torch.tensor([0, 1, 1])
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    drawn = model.sample(3, labels, length=30, generator=torch.Generator().manual_seed(7))
    generator, x = torch.Generator().manual_seed(7), torch.zeros(3, 30, dtype=torch.long)
    with torch.no_grad():
        for t in range(30):
            x[:, t] = at(model(x, labels), t).sample(generator=generator)
    assert torch.equal(drawn, x)


def at(conditionals, t):
    if isinstance(conditionals, Categorical):
        return Categorical(conditionals.logits[:, t])
    return conditionals.with_parameters(*(parameter[:, t] for parameter in conditionals.parameters))


def scored(step, x, state, x_prev=None):
    """The scores of the elements of x one by one, (B, T, V), and the state after them."""
    scores = []
    for x_t in x.unbind(1):
        conditional, state = step(x_prev, state)
        scores.append(conditional.logits)
        x_prev = x_t
    return torch.stack(scores, 1), state


@pytest.mark.parametrize("in_numpy", [True, False])
def test_a_stepper_is_the_pass_beyond_the_room_of_its_queues(monkeypatch, in_numpy):
    monkeypatch.setattr(
        "chainrule.layers._dilated_stack.PreparedDilatedStack", partial(PreparedDilatedStack, in_numpy=in_numpy)
    )
    model, x = made(kernel_size=3, num_classes=3).double().eval(), torch.randint(5, (2, 3 * ROOM))
    labels, stepper = torch.tensor([2, 0]), model.prepare().step
    with torch.no_grad():
        scores, _ = scored(stepper, x, model.initial_state(2, labels))
        torch.testing.assert_close(scores, model(x, labels).logits, rtol=0, atol=1e-12)  # sums in another order


def test_a_stepper_leaves_every_state_it_was_given_alone():
    model = made().double().eval()
    stepper, x = model.prepare().step, torch.randint(5, (2, 2 * ROOM))
    with torch.no_grad():
        x_prev, state, states = None, model.initial_state(2), []
        for x_t in x.unbind(1):
            states.append((x_prev, state, stepper(x_prev, state)[0].logits))
            state, x_prev = stepper(x_prev, state)[1], x_t
        for x_prev, state, logits in states:
            assert torch.equal(stepper(x_prev, state)[0].logits, logits)


def test_a_state_of_a_stepper_may_be_forked_joined_with_others_saved_and_read_by_everything(tmp_path):
    model, x = made().double().eval(), torch.randint(5, (2, 40))
    stepper = model.prepare().step
    with torch.no_grad():
        whole = model(x).logits
        after = {t: scored(stepper, x[:, :t], model.initial_state(2))[1] for t in (9, 17)}
        forked = select(after[17], torch.tensor([1, 0, 1]))
        scores, _ = scored(stepper, x[[1, 0, 1], 17:], forked, x[[1, 0, 1], 16])
        torch.testing.assert_close(scores, whole[[1, 0, 1], 17:], rtol=0, atol=1e-12)
        save_state(after[9], tmp_path / "state.safetensors")
        for state in (after[9], load_state(tmp_path / "state.safetensors")):
            scores = model.unroll(x[:, 9:], state, x[:, 8])[0].logits
            torch.testing.assert_close(scores, whole[:, 9:], rtol=0, atol=1e-12)
        # Rows of different age side by side: they may come from different streams.
        mixed = {name: torch.cat([after[9][name][:1], after[17][name][1:]]) for name in ("past", "end")}
        mixed, previous = {**mixed, "bias": None}, torch.stack([x[0, 8], x[1, 16]])
        following = torch.stack([x[0, 9:20], x[1, 17:28]])
        for step in (stepper, model.step):
            scores, _ = scored(step, following, mixed, previous)
            torch.testing.assert_close(scores, torch.stack([whole[0, 9:20], whole[1, 17:28]]), rtol=0, atol=1e-12)


def test_means_of_a_mixture_are_counted_from_the_element_before():
    model, x = made(components=2, levels=256).double(), torch.tensor([[10, 200, 30]])
    for parameter in model.head.output.parameters():
        torch.nn.init.zeros_(parameter)
    torch.testing.assert_close(model(x).means[0, :, 0].tolist(), [0.0, 21 / 256 - 1, 401 / 256 - 1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": 1}, "levels: expected at least 2"),
        ({"kernel_size": 1}, "kernel_size: expected at least 2"),
        ({"blocks": 0}, "blocks: expected an integer >= 1, got 0"),
        ({"num_classes": -1}, "num_classes"),
        ({"components": 0}, "components: expected an integer >= 1, got 0"),
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


def test_levels_stay_apart_in_half_precision():
    model = made(levels=256, components=2).bfloat16()
    centres = level_centres(torch.arange(256), 256, model.stack.residual.dtype)
    assert len(centres.unique()) == 256
    x = torch.randint(256, (2, 6))
    assert model(x).logits.isfinite().all()
    assert model.vectors(x).dtype == torch.bfloat16


def test_a_stepper_reads_bytes_as_symbols_on_any_path():
    model, prefix = made(blocks=1).bfloat16(), torch.tensor([[1, 0], [0, 1]])  # no NumPy in bfloat16
    drawn = model.sample(2, length=5, prefix=prefix.to(torch.uint8), temperature=0.0)
    assert torch.equal(drawn, model.sample(2, length=5, prefix=prefix, temperature=0.0))


def test_every_weight_of_a_single_layer_gets_a_gradient():
    """Several processes stopped at the second step: they wait for the gradient of each weight that has one."""
    model = WaveNet(levels=4, channels=4, blocks=1, layers_per_block=1, skip_channels=4)
    model.log_prob(torch.randint(4, (2, 5))).sum().backward()
    assert all(weight.grad is not None for weight in model.parameters() if weight.requires_grad)
    assert "stack.residual" in model.state_dict()


def test_a_waveform_of_fractions_has_no_likelihood():
    with pytest.raises(ValueError, match=r"value: expected integers in \[0, 5\), got 0\.25: quantise the values"):
        made().log_prob(torch.full((2, 9), 0.25))
    assert (made(components=2).log_prob(torch.full((2, 9), 0.25)) == -torch.inf).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_batch_without_rows_has_no_likelihood(variant):
    model, none = made(**VARIANTS[variant]), torch.zeros(0, 9, dtype=torch.long)
    assert model.log_prob(none, None if model.num_classes is None else none[:, 0]).shape == (0,)


def test_a_pruned_convolution_trains():
    """The hook that masks its weight never ran, and the second backward pass raised."""
    model = WaveNet(5, channels=4, blocks=1, layers_per_block=2, skip_channels=4)
    layer = model.stack.convolutions[0]
    l1_unstructured(layer, "weight", 0.5)
    for _ in range(2):
        model.log_prob(torch.arange(5).unsqueeze(0)).sum().backward()
    assert torch.equal(layer.weight_orig.grad != 0, layer.weight_mask != 0)


def test_no_logistic_is_narrower_than_its_gradient_allows():
    model = made(levels=256, components=2).double()
    with torch.no_grad():
        model.head.output.weight.zero_()
        model.head.output.bias[4:] = -50.0
    finest = torch.full((1, 3, 2), 2 / 256, dtype=torch.float64).log() - 3.5
    torch.testing.assert_close(model(torch.tensor([[10, 200, 30]])).log_scales, finest)
