"""Multi-scale PixelCNN behind the contract: groups of pixels at once, with an exact likelihood."""

from itertools import islice, product

import pytest
import torch

from chainrule.heads import PixelLogisticMixture
from chainrule.models import MultiScalePixelCNN
from chainrule.state import load_state, save_state, select
from chainrule.testing._dependence import check_full_context


def made(**options):
    sizes = {"image_shape": (1, 5, 5), "levels": 2, "channels": 6, "layers": 1, "components": 2}
    return MultiScalePixelCNN(**{**sizes, **options})


def strong(shape=(2, 4, 5), levels=5, **options):
    """Conditionals that depend strongly on what was read."""
    model = made(image_shape=shape, levels=levels, **options).double().eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=2 * parameter[0].numel() ** -0.5)
    return model


def test_pixels_of_a_group_do_not_see_each_other_and_the_others_do():
    model = made(image_shape=(2, 3, 3))
    seen = model.visible_past(18).view(9, 2, 9, 2)
    assert seen.any(3).any(1).int().tolist() == [
        [1, 0, 0, 0, 0, 0, 0, 0, 0],  # the corner: its second colour sees its first
        [1, 1, 0, 0, 0, 0, 0, 0, 0],  # two to the right, two below, the opposite corner
        [1, 1, 1, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 0, 0, 0, 0],  # between them: two at once
        [1, 1, 1, 1, 0, 1, 0, 0, 0],
        [1, 1, 1, 1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 1, 0, 1, 0],
        [1, 1, 1, 1, 1, 1, 1, 1, 1],  # the middle
    ]


def test_beyond_its_reach_it_declares_to_see_nothing():
    model = made(image_shape=(1, 1, 17))
    assert int(model.visible_past(17)[16].sum()) < 16
    report = check_full_context(model, torch.randint(2, (2, 1, 1, 17)))
    assert report.ok, report.detail


def test_coarser_pixels_come_first():
    model, x = made(image_shape=(1, 4, 4), levels=16), torch.arange(16).view(1, 1, 4, 4)
    assert model.to_sequence(x).tolist() == [[0, 2, 8, 10, 1, 3, 9, 11, 4, 6, 12, 14, 5, 7, 13, 15]]
    assert torch.equal(model.from_sequence(model.to_sequence(x)), x)
    assert made(image_shape=(3, 32, 32)).sequential_steps == 16


def test_a_pixel_is_scored_at_once_as_colour_by_colour():
    model = strong(num_classes=3)
    x, labels = torch.randint(5, (2, 2, 4, 5)), torch.tensor([2, 0])
    each = model(x, labels).log_prob(x)
    assert each.shape == x.shape
    torch.testing.assert_close(model.log_prob(x, labels), each.flatten(1).sum(1), rtol=0, atol=1e-10)
    lengths = torch.tensor([40, 40])
    torch.testing.assert_close(model.log_prob(x, labels), model.log_prob(x, labels, lengths), rtol=0, atol=1e-10)


def every_image():
    """All images (2, 2, 2) of bits, and a model of them."""
    torch.manual_seed(1)
    model = strong((2, 2, 2), levels=2)
    return model, torch.tensor(list(product(range(2), repeat=8))).view(-1, 2, 2, 2)


def misfit(drawn, probability):
    """The largest number of standard deviations by which the count of an image, among draws (N,) of indices, is off."""
    count = torch.bincount(drawn, minlength=len(probability)).double()
    expected = len(drawn) * probability
    return float(((count - expected).abs() / (expected * (1 - probability)).sqrt().clamp_min(1)).max())


def indices(x):
    return (x.flatten(1) * 2 ** torch.arange(7, -1, -1)).sum(1)


@torch.no_grad()
def test_groups_drawn_at_once_have_the_probabilities_of_all_images():
    model, images = every_image()
    probability = model.log_prob(images).exp()
    assert abs(float(probability.sum()) - 1) < 1e-12
    x = model.sample(8000, generator=torch.Generator().manual_seed(0))
    assert misfit(indices(x), probability) < 5  # of 256 counts, the largest deviation
    for known in (1, 3, 6):  # inside pixels, between them, inside a group
        prefix = model.to_sequence(images[137:138])[:, :known]
        fits = (model.to_sequence(images)[:, :known] == prefix).all(1)
        conditional = torch.where(fits, probability, 0) / probability[fits].sum()
        x = model.sample(8000, prefix=prefix, generator=torch.Generator().manual_seed(1))
        assert misfit(indices(x), conditional) < 5


@torch.no_grad()
def test_colours_drawn_apart_are_seen_by_this_test(monkeypatch):
    model, images = every_image()
    probability, right = model.log_prob(images).exp(), PixelLogisticMixture.conditional
    monkeypatch.setattr(PixelLogisticMixture, "conditional", lambda self, earlier: right(self, earlier * 0))
    x = model.sample(8000, generator=torch.Generator().manual_seed(0))
    assert misfit(indices(x), probability) > 10


@torch.no_grad()
def test_what_is_drawn_from_is_what_step_and_forward_give(monkeypatch):
    """Draws of a group and single steps use up a generator differently; the conditionals are the same numbers."""
    model, asked = strong((2, 3, 4), num_classes=2), []
    right, labels = PixelLogisticMixture.conditional, torch.tensor([1, 0, 1])

    def watched(self, earlier):
        conditional = right(self, earlier)
        asked.append(conditional)
        return conditional

    monkeypatch.setattr(PixelLogisticMixture, "conditional", watched)
    x = model.sample(3, labels, generator=torch.Generator().manual_seed(0))
    assert len(asked) == 2 * model.sequential_steps
    groups = list(zip(asked[::2], asked[1::2], strict=True))  # both colours of all pixels of each
    logits = torch.cat([torch.stack([one.logits, two.logits], 2).flatten(1, 2) for one, two in groups], 1)
    means = torch.cat([torch.stack([one.means, two.means], 2).flatten(1, 2) for one, two in groups], 1)
    sequence, state, x_prev = model.to_sequence(x), model.initial_state(3, labels), None
    for t, element in enumerate(sequence.unbind(1)):
        conditional, state = model.step(x_prev, state)
        torch.testing.assert_close(means[:, t], conditional.means, rtol=0, atol=1e-11)
        torch.testing.assert_close(logits[:, t], conditional.logits, rtol=0, atol=1e-11)
        x_prev = element
    forward = model(x, labels).means.movedim(-1, 0)
    rows = torch.stack([model.to_sequence(mean) for mean in forward], -1)
    torch.testing.assert_close(means, rows, rtol=0, atol=1e-11)


def test_a_coarse_image_is_made_finer():
    model, x = strong((2, 4, 5)), torch.randint(5, (3, 2, 4, 5))
    known = model.to_sequence(x)[:, : 2 * 2 * 3]  # every second row and column
    finer = model.sample(3, prefix=known, generator=torch.Generator().manual_seed(0))
    assert torch.equal(finer[:, :, ::2, ::2], x[:, :, ::2, ::2])
    assert not torch.equal(finer, x)


def test_a_stream_gives_the_elements_of_a_sample():
    model = strong()
    elements = list(islice(model.stream(2, generator=torch.Generator().manual_seed(1)), 40))
    whole = model.to_sequence(model.sample(2, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(torch.stack(elements, 1), whole)
    assert len(list(model.stream(1, prefix=torch.zeros(33, dtype=torch.long)))) == 7


@torch.no_grad()
def test_a_state_can_be_forked_and_saved_anywhere(tmp_path):
    model, x = strong(), torch.randint(5, (2, 2, 4, 5))
    x = model.to_sequence(x)
    for known in (1, 7, 16, 33):
        state = model.unroll(x[:, :known], model.initial_state(2))[1]
        save_state(state, tmp_path / "state.safetensors")
        rows = torch.tensor([1, 0, 1])
        forked = select(load_state(tmp_path / "state.safetensors"), rows)
        expected = model.unroll(x[:, known:], state, x[:, known - 1])[0].log_prob(x[:, known:])
        got = model.unroll(x[rows, known:], forked, x[rows, known - 1])[0].log_prob(x[rows, known:])
        torch.testing.assert_close(got, expected[rows], rtol=0, atol=1e-10)


def test_in_bfloat16_the_mixture_is_that_of_float32():
    model, x = made(image_shape=(3, 4, 4), levels=256).eval(), torch.randint(256, (2, 3, 4, 4))
    with torch.autocast("cpu", torch.bfloat16):
        assert {part.dtype for part in model(x).parameters} == {torch.float32}


def test_what_is_no_whole_image_is_refused():
    model = made()
    with pytest.raises(ValueError, match=r"x: expected whole images of shape \(B, 1, 5, 5\), got \(2, 1, 3, 5\)"):
        model.to_sequence(torch.zeros(2, 1, 3, 5))
    with pytest.raises(ValueError, match=r"sequence: expected \(B, 25\), all elements of an image, got \(1, 24\)"):
        model.from_sequence(torch.zeros(1, 24))
    with pytest.raises(ValueError, match="components: expected an integer >= 1"):
        made(components=0)


def test_a_prefix_of_other_values_is_refused():
    model = MultiScalePixelCNN((1, 4, 4), 4, channels=8, layers=1, components=2)
    with pytest.raises(ValueError, match="prefix: expected integers from 0 to 3"):
        model.sample(2, prefix=torch.tensor([9]))
