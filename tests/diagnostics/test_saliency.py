"""Classifiers whose answer depends on one corner of an image alone: each method has to look there."""

import pytest
import torch

from chainrule.diagnostics import saliency_maps
from chainrule.diagnostics._attention_maps import rollout
from chainrule.models import ConvNet, SwinTransformer, VisionTransformer
from chainrule_app.pages.attention_figures import half_share, saliency_method

SIDE, LIGHT = 16, 255
CORNERS = [(0, 0), (0, -1), (-1, 0)]


def silence(block):
    """A block that adds nothing."""
    for linear in block.last_products():
        torch.nn.init.zeros_(linear.weight)
        torch.nn.init.zeros_(linear.bias)


def vit(corner):
    """The class token reads the patch in the corner in the first block, and nothing in the second."""
    model = VisionTransformer((1, SIDE, SIDE), 2, model_size=8, num_layers=2, num_heads=2, pooling="token")
    places = 1 + torch.arange(len(model.positions) - 1).view(model.grid())
    with torch.no_grad():
        model.positions.zero_()
        model.patches.weight[0], model.patches.bias[0] = 0, 0
        model.positions[places[corner], 0] = 10
        projection = model.blocks[0].mixer
        projection.in_proj_weight[:16] = 0
        projection.in_proj_bias[:8] = 10  # of queries
        projection.in_proj_weight[8:16, 0] = 10  # of keys
    silence(model.blocks[1])
    return model


@torch.no_grad()
def detector(model):
    """Make a network answer label 1 where a place, read by itself, is light, and nothing where it is dark."""
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d) and module.kernel_size == (3, 3):
            outer = torch.ones(3, 3, dtype=torch.bool)
            outer[1, 1] = False
            module.weight[:, :, outer] = 0
        if hasattr(module, "last_products"):
            silence(module)
    flat = torch.tensor([-1.0, 1.0]).view(2, 1, 1, 1).expand(2, 1, SIDE, SIDE)
    dark, light = model.eval().feature_map(flat).mean((2, 3))
    model.output.weight[1] = light - dark * (light @ dark) / (dark @ dark).clamp(min=1e-9)
    return model


def cnn(corner):
    return detector(ConvNet((1, SIDE, SIDE), 2, channels=8, stages=3))


def swin(corner):
    return detector(SwinTransformer((1, SIDE, SIDE), 2, model_size=8, num_heads=2, window=4))


@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.parametrize("make", [vit, cnn, swin])
def test_it_looked_where_the_answer_comes_from(make, corner):
    torch.manual_seed(0)
    model = make(corner)
    if make is vit:
        torch.nn.init.normal_(model.output.weight)
    model.eval()
    image = torch.zeros(1, 1, SIDE, SIDE, dtype=torch.uint8)
    quarter = image.view(4, 4, 4, 4).transpose(1, 2)  # (rows, columns) of 4×4 squares, the memory of the image
    if make in (cnn, swin):  # they find it by what is there
        quarter[corner] = LIGHT
    before = model(image).logits
    quarter[2, 2] = 100
    elsewhere = model(image).logits
    quarter[2, 2] = 0
    quarter[corner] = 200
    there = model(image).logits
    assert (there - before).abs().max() > 1e-4
    if make is vit:
        assert (elsewhere - before).abs().max() < 1e-6
    found = saliency_maps(model, image, torch.tensor([1]))
    assert found.sum().item() == pytest.approx(1)
    coarse = torch.nn.functional.adaptive_avg_pool2d(found, 4)[0] * found[0].numel() / 16
    assert coarse[corner] > 0.5
    assert coarse.argmax() == torch.arange(16).view(4, 4)[corner]


@pytest.mark.parametrize(
    "make",
    [lambda: ConvNet((1, 16, 16), 3, channels=4), lambda: SwinTransformer((1, 16, 16), 3, model_size=8, num_heads=2)],
)
def test_the_map_of_a_feature_map_is_grad_cam(make):
    """The average gradient of a logit, not the weights of the last layer, is what Grad-CAM is defined by."""
    torch.manual_seed(1)
    model = make().eval()
    torch.nn.init.normal_(model.output.weight)
    images = torch.randint(256, (2, 1, 16, 16))
    features = model.feature_map(model.scaled(images)).detach().requires_grad_()
    logits = model.output(features.mean((2, 3)))
    labels = logits.argmax(1)
    torch.testing.assert_close(logits.softmax(1), model(images).probs)
    (gradient,) = torch.autograd.grad(logits[[0, 1], labels].sum(), features)
    expected = (gradient.mean((2, 3), keepdim=True) * features).sum(1).relu()
    assert (expected.sum((1, 2)) > 0).all()
    torch.testing.assert_close(saliency_maps(model, images, labels), expected / expected.sum((1, 2), keepdim=True))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16], ids=str)
def test_labels_may_have_any_integer_dtype(dtype):
    """torch reads a uint8 index as a mask: with as many images as classes, the weights were those of other classes."""
    model, labels = ConvNet((1, 8, 8), 4, channels=4, stages=2).eval(), torch.tensor([1, 2, 3, 1])
    torch.nn.init.normal_(model.output.weight)
    images = torch.randint(256, (4, 1, 8, 8))
    assert torch.equal(saliency_maps(model, images, labels.to(dtype)), saliency_maps(model, images, labels))


def test_rollout_multiplies_the_blocks_each_mixed_with_the_identity():
    generator = torch.Generator().manual_seed(0)
    first, second = torch.rand(2, 1, 3, 4, 4, generator=generator).softmax(-1)
    pooling = torch.tensor([[1.0, 0, 0, 0]])
    mixed = [(weights.mean(1)[0] + torch.eye(4)) / 2 for weights in (first, second)]
    torch.testing.assert_close(rollout([first, second], pooling), (mixed[1] @ mixed[0])[:1])


def test_every_place_is_pooled_alike_without_a_class_token():
    model = VisionTransformer((1, 8, 8), 2, model_size=8, num_layers=1, num_heads=2, pooling="mean").eval()
    assert model.pooling_weights(torch.zeros(2, 1, 8, 8)).tolist() == [[0.25] * 4] * 2
    assert saliency_maps(model, torch.zeros(2, 1, 8, 8), torch.tensor([0, 1])).shape == (2, 2, 2)


def test_half_of_a_map_is_on_its_greatest_places():
    assert half_share(torch.tensor([[[0.1, 0.2], [0.3, 0.4]]])).tolist() == [0.5]


def test_a_model_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="classifier of images, got Linear"):
        saliency_maps(torch.nn.Linear(1, 1), torch.zeros(1, 1, 8, 8), torch.tensor([0]))
    assert "Grad-CAM" in saliency_method(cnn((0, 0)))
    assert "rollout" in saliency_method(vit((0, 0)))
