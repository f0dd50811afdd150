"""PixelCNN++ behind the contract: coupled colours, coarser resolutions, samples from caches."""

import pytest
import torch

from chainrule.kernels._mixture_scan import PyramidScan
from chainrule.models import PixelCNNPP
from chainrule.state import load_state, save_state, select
from chainrule.testing._dependence import check_full_context


def made(**options):
    sizes = {"image_shape": (1, 5, 5), "levels": 2, "channels": 6, "layers": 1, "resolutions": 2, "components": 2}
    return PixelCNNPP(**{**sizes, **options})


def strong(shape=(3, 5, 6), levels=5, **options):
    """Conditionals that depend strongly on what was read."""
    model = made(image_shape=shape, levels=levels, **options).double().eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=(2 if "output" in name else 1) * parameter[0].numel() ** -0.5)
    return model


@pytest.mark.parametrize("options", [{}, {"image_shape": (3, 3, 4)}, {"image_shape": (1, 6, 7), "resolutions": 3}])
def test_every_earlier_element_is_visible_within_reach(options):
    model = made(layers=2, **options)
    time = model.sequence_length
    assert torch.equal(model.visible_past(time), torch.ones(time, time, dtype=torch.bool).tril(-1))


def test_beyond_its_reach_it_declares_to_see_nothing():
    model = made(image_shape=(1, 9, 8), resolutions=1)
    seen = model.visible_past(72)[8 * 8 + 7].view(9, 8).int()  # of the last pixel
    assert seen.sum(1).tolist() == [0, 7, 7, 7, 7, 7, 7, 7, 5]
    assert seen[8].tolist() == [0, 0, 1, 1, 1, 1, 1, 0]
    report = check_full_context(model, torch.randint(2, (2, 1, 9, 8)))
    assert report.ok, report.detail


def test_a_pixel_is_scored_at_once_as_colour_by_colour():
    model = strong(num_classes=3)
    x, labels = torch.randint(5, (2, 3, 5, 6)), torch.tensor([2, 0])
    each = model(x, labels).log_prob(x)
    assert each.shape == x.shape
    torch.testing.assert_close(model.log_prob(x, labels), each.flatten(1).sum(1), rtol=0, atol=1e-10)
    lengths = torch.tensor([90, 90])
    torch.testing.assert_close(model.log_prob(x, labels), model.log_prob(x, labels, lengths), rtol=0, atol=1e-10)


def recomputed(model, n, labels, generator, prefix=None):
    """`sample` by one whole pass over the image for each element."""
    x = torch.zeros(n, model.sequence_length, dtype=torch.long)
    start = 0 if prefix is None else prefix.shape[1]
    x[:, :start] = 0 if prefix is None else prefix
    for t in range(start, model.sequence_length):
        each = model(model.from_sequence(x), labels)
        inside = [torch.stack([model.to_sequence(k) for k in part.unbind(-1)], -1)[:, t] for part in each.parameters]
        x[:, t] = each.with_parameters(*inside).sample(generator=generator)
    return model.from_sequence(x)


@torch.no_grad()
@pytest.mark.parametrize(("shape", "resolutions"), [((1, 5, 4), 3), ((3, 4, 3), 2)])
def test_a_sample_is_value_for_value_the_one_of_full_recomputation(shape, resolutions):
    model, labels = strong(shape, 200, resolutions=resolutions, num_classes=3), torch.tensor([0, 2, 1, 1])
    x = model.sample(4, labels, generator=torch.Generator().manual_seed(7))
    assert torch.equal(x, recomputed(model, 4, labels, torch.Generator().manual_seed(7)))
    assert len(x.unique()) > 20


@torch.no_grad()
def test_a_completion_is_value_for_value_the_one_of_full_recomputation():
    model, x = strong((3, 3, 3)), torch.randint(5, (4, 3, 3, 3))
    for known in (1, 9, 14, 18, 26):
        prefix = model.to_sequence(x)[:, :known]
        completed = model.sample(4, prefix=prefix, generator=torch.Generator().manual_seed(7))
        assert torch.equal(completed, recomputed(model, 4, None, torch.Generator().manual_seed(7), prefix))


@pytest.mark.kernel
def test_known_rows_are_read_in_one_pass_and_a_pixel_asks_the_network_once(monkeypatch):
    model, x = strong((3, 6, 4)), torch.randint(5, (1, 3, 6, 4))
    asked = []
    pixel = PyramidScan.pixel
    monkeypatch.setattr(PyramidScan, "pixel", lambda self, *rest: asked.append(self.coarser) or pixel(self, *rest))
    model.unroll(model.to_sequence(x), model.initial_state(1))
    assert not asked
    model.unroll(model.to_sequence(x)[:, :-1], model.initial_state(1))
    assert sum(coarser is not None for coarser in asked) == 4  # those of the last row, which is not whole
    assert sum(coarser is None for coarser in asked) == 0  # which is an odd one: coarse features are known
    asked.clear()
    model.sample(1)
    assert [sum((coarser is None) == coarse for coarser in asked) for coarse in (False, True)] == [24, 6]


def test_a_stepper_is_step_and_leaves_the_state_it_was_given_alone():
    model = strong((2, 3, 3))
    stepper, x = model.prepare().step, model.to_sequence(torch.randint(5, (2, 2, 3, 3)))
    state, x_prev = model.initial_state(2), None
    with torch.no_grad():
        for t in range(x.shape[1]):
            expected, following = model.step(x_prev, state)
            for _ in range(2):  # twice from one state
                got, state_after = stepper(x_prev, state)
                assert all(torch.equal(*pair) for pair in zip(got.parameters, expected.parameters, strict=True))
            state, x_prev = (following if t % 2 else state_after), x[:, t]


@torch.no_grad()
def test_a_state_can_be_forked_and_saved_anywhere(tmp_path):
    model, x = strong((2, 5, 3), resolutions=3), torch.randint(5, (2, 2, 5, 3))
    x = model.to_sequence(x)
    for known in (1, 6, 7, 13, 20):
        state = model.unroll(x[:, :known], model.initial_state(2))[1]
        save_state(state, tmp_path / "state.safetensors")
        rows = torch.tensor([1, 0, 1])
        forked = select(load_state(tmp_path / "state.safetensors"), rows)
        expected = model.unroll(x[:, known:], state, x[:, known - 1])[0].log_prob(x[:, known:])
        got = model.unroll(x[rows, known:], forked, x[rows, known - 1])[0].log_prob(x[rows, known:])
        torch.testing.assert_close(got, expected[rows], rtol=0, atol=1e-10)


def test_a_pixel_is_drawn_colour_by_colour_as_the_mixture_has_it():
    model = strong((4, 1, 2), channels=8)  # of four colours the coefficients of no colour stand side by side
    x, state, x_prev = torch.randint(5, (3, 4, 1, 2)), model.initial_state(3), None
    each = model(x)
    for t, element in enumerate(model.to_sequence(x).unbind(1)):
        conditional, state = model.step(x_prev, state)
        means = each.means[:, t % 4, 0, t // 4]
        torch.testing.assert_close(conditional.means, means, rtol=0, atol=1e-12)
        x_prev = element


def test_in_bfloat16_the_mixture_is_that_of_float32():
    model, x = made(image_shape=(3, 4, 4), levels=256).eval(), torch.randint(256, (2, 3, 4, 4))
    with torch.autocast("cpu", torch.bfloat16):
        each = model(x)
    assert {part.dtype for part in each.parameters} == {torch.float32}
    # bfloat16 has 8 bits: features are off by some thousandths, and the mixture follows.
    torch.testing.assert_close(each.log_prob(x), model(x).log_prob(x), rtol=0.01, atol=0.02)


def test_a_label_changes_every_conditional():
    model = strong((1, 4, 4), num_classes=10)
    x = torch.randint(5, (1, 1, 4, 4)).expand(2, -1, -1, -1)
    terms = model(x, torch.tensor([3, 4])).log_prob(x)
    assert (terms[0] != terms[1]).all()


@pytest.mark.parametrize("name", ["resolutions", "components", "layers", "channels", "levels"])
def test_wrong_sizes_are_named(name):
    with pytest.raises(ValueError, match=f"{name}: expected (at least 2|an integer >= 1)"):
        made(**{name: 0})


def test_a_step_under_autocast_has_the_head_of_a_pass():
    model, x = made(image_shape=(1, 1, 1), levels=256).eval(), torch.zeros(1, 1, 1, 1, dtype=torch.long)
    torch.nn.init.zeros_(model.output.weight)
    torch.nn.init.constant_(model.output.bias, 0.123456)  # lies between two numbers in bfloat16
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        conditional, _ = model.prepare().step(None, model.initial_state(1))
        assert torch.equal(conditional.means, model(x).means[:, 0, 0, 0])
