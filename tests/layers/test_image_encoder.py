"""Encoders of images are what torch computes, and residual networks hold published weights."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

from chainrule.layers import ImageEncoder
from chainrule.layers._image_encoder import Backbone, ResidualBlock, ResNet, SqueezeExcitation, standardised


def test_excitation_is_its_equation():
    layer, x = SqueezeExcitation(8).double(), torch.randn(2, 8, 3, 5, dtype=torch.float64)
    inside = torch.relu(x.mean((2, 3)) @ layer.squeeze.weight.T + layer.squeeze.bias)
    scale = 1 / (1 + torch.exp(-(inside @ layer.excite.weight.T + layer.excite.bias)))
    torch.testing.assert_close(layer(x), x * scale[:, :, None, None])


def test_a_new_block_is_the_identity_of_what_is_positive():
    block, x = ResidualBlock(8, 8), torch.rand(2, 8, 4, 4)
    torch.testing.assert_close(block(x), x)
    nn.init.ones_(block.second_norm.weight)
    assert (block(x) - x).abs().max() > 0.01


@pytest.mark.parametrize(("size", "positions"), [((64, 64), 64), ((32, 64), 32), ((33, 33), 25)])
def test_the_grid_halves_with_each_stage(size, positions):
    grid = ImageEncoder((8, 8, 16))(torch.zeros(2, 3, *size, dtype=torch.uint8))
    assert grid.shape == (2, positions, 16)


def test_positions_of_the_grid_stand_row_by_row():
    encoder = ImageEncoder((8, 8, 16)).double()
    for block in encoder.stages:  # no position knows of the whole image
        block.excitation = nn.Identity()
    for module in encoder.modules():
        if isinstance(module, nn.GroupNorm):
            module.forward = lambda x: x
    image = torch.zeros(1, 3, 64, 64)
    lit = image.clone()
    lit[:, :, 20, 60] = 255  # row 2, column 7 of 8
    changed = (encoder(lit) - encoder(image)).abs().sum(2).flatten()
    assert int(changed.argmax()) in (2 * 8 + 7, 3 * 8 + 7)
    assert not changed.view(8, 8)[:, :4].any()
    assert not changed.view(8, 8)[6:].any()


def test_images_of_a_batch_do_not_influence_each_other():
    encoder = ImageEncoder((8, 16)).double()
    images = torch.randint(256, (3, 3, 16, 16))
    together = encoder(images)
    torch.testing.assert_close(together[1:2], encoder(images[1:2]))


def test_bytes_become_numbers_about_zero():
    images = torch.randint(256, (1, 3, 5, 4), dtype=torch.uint8)
    expected = (images.double() / 255 - torch.tensor([0.485, 0.456, 0.406]).double().view(3, 1, 1)) / torch.tensor(
        [0.229, 0.224, 0.225]
    ).double().view(3, 1, 1)
    torch.testing.assert_close(standardised(images, torch.zeros(1, dtype=torch.float64)), expected)
    with pytest.raises(ValueError, match=r"\(B, 3, H, W\)"):
        standardised(torch.zeros(1, 1, 5, 5), torch.zeros(1))


@pytest.mark.parametrize("channels", [(), (8, 0)])
def test_no_stage_is_refused(channels):
    with pytest.raises(ValueError, match="channels"):
        ImageEncoder(channels)


def norm_entries(name, channels):
    numbers = {f"{name}.{part}": (channels,) for part in ("weight", "bias", "running_mean", "running_var")}
    return numbers | {f"{name}.num_batches_tracked": ()}


def published(blocks, bottleneck, classes=7):
    """Names and shapes of a published file, written out from the tables of the paper; a few classes are enough."""
    shapes = {"conv1.weight": (64, 3, 7, 7), "fc.weight": (classes, 2048 if bottleneck else 512), "fc.bias": (classes,)}
    shapes |= norm_entries("bn1", 64)
    before = 64
    for layer, (repeats, width) in enumerate(zip(blocks, (64, 128, 256, 512), strict=True), start=1):
        for block in range(repeats):
            prefix, after = f"layer{layer}.{block}", 4 * width if bottleneck else width
            kernels = [(width, before, 1), (width, width, 3), (after, width, 1)]
            if not bottleneck:
                kernels = [(width, before, 3), (width, width, 3)]
            for number, (wide, narrow, side) in enumerate(kernels, start=1):
                shapes[f"{prefix}.conv{number}.weight"] = (wide, narrow, side, side)
                shapes |= norm_entries(f"{prefix}.bn{number}", wide)
            if before != after:  # in the first block of a layer; layer1 of the narrow networks needs none
                shapes[f"{prefix}.downsample.0.weight"] = (after, before, 1, 1)
                shapes |= norm_entries(f"{prefix}.downsample.1", after)
            before = after
    return shapes


def drawn(shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in shapes.items():
        if name.endswith("num_batches_tracked"):
            weights[name] = torch.tensor(3)
        elif name.endswith("running_var"):
            weights[name] = 0.5 + torch.rand(shape, generator=generator)
        else:
            fan = max(1, torch.Size(shape[1:]).numel())
            weights[name] = torch.randn(shape, generator=generator) / fan**0.5
    return weights


def by_operations(weights, x):
    """The 18 layers, by functions alone."""

    def norm(name, h):
        mean, variance, gain, offset = (
            weights[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return F.batch_norm(h, mean, variance, gain, offset)

    h = F.conv2d(x, weights["conv1.weight"], stride=2, padding=3)
    h = F.max_pool2d(F.relu(norm("bn1", h)), 3, 2, 1)
    for layer in (1, 2, 3, 4):
        for block in (0, 1):
            prefix, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            y = F.conv2d(h, weights[f"{prefix}.conv1.weight"], stride=stride, padding=1)
            y = F.conv2d(F.relu(norm(f"{prefix}.bn1", y)), weights[f"{prefix}.conv2.weight"], padding=1)
            if stride == 2:
                h = norm(f"{prefix}.downsample.1", F.conv2d(h, weights[f"{prefix}.downsample.0.weight"], stride=2))
            h = F.relu(h + norm(f"{prefix}.bn2", y))
    return h


@pytest.mark.parametrize(
    ("name", "blocks", "parameters"),
    # parameters: the published counts, 11,689,512, 21,797,672 and 25,557,032, less a classifier of 1,000 classes
    [
        ("resnet18", (2, 2, 2, 2), 11_176_512),
        ("resnet34", (3, 4, 6, 3), 21_284_672),
        ("resnet50", (3, 4, 6, 3), 23_508_032),
    ],
)
def test_the_layout_is_the_published_one(name, blocks, parameters):
    with torch.device("meta"):
        network = ResNet(name)
    expected = published(blocks, bottleneck=name == "resnet50")
    shapes = {key: tuple(weight.shape) for key, weight in network.state_dict().items()}
    assert shapes == {key: shape for key, shape in expected.items() if not key.startswith("fc.")}
    assert sum(weight.numel() for weight in network.parameters()) == parameters
    assert network(torch.zeros(1, 3, 64, 40, device="meta")).shape == (1, network.output_size, 2, 2)


def test_a_published_file_gives_its_features_as_a_grid(tmp_path):
    weights = drawn(published((2, 2, 2, 2), bottleneck=False))
    save_file(weights, tmp_path / "weights.safetensors")
    backbone = Backbone("resnet18")
    backbone.load(tmp_path / "weights.safetensors")
    images = torch.randint(256, (2, 3, 64, 64), dtype=torch.uint8)
    grid = backbone.train()(images)  # running means stay as they are in training too
    assert grid.shape == (2, 4, 512)
    expected = by_operations(weights, standardised(images, torch.zeros(1)))
    torch.testing.assert_close(grid, expected.flatten(2).transpose(1, 2))
    assert not any(weight.requires_grad for weight in backbone.parameters())


def test_weights_are_learnt_where_that_is_asked_for():
    with torch.device("meta"):
        assert all(weight.requires_grad for weight in Backbone("resnet18", trained=True).parameters())


def test_counts_of_batches_may_be_missing_and_other_weights_may_not(tmp_path):
    weights = drawn(published((2, 2, 2, 2), bottleneck=False))
    weights = {name: weight for name, weight in weights.items() if not name.endswith("num_batches_tracked")}
    backbone, path = Backbone("resnet18"), tmp_path / "weights.safetensors"
    save_file(weights, path)
    backbone.load(path)
    for changed in (None, torch.zeros(3)):
        wrong = {name: weight for name, weight in weights.items() if name != "layer3.0.downsample.0.weight"}
        save_file(wrong if changed is None else wrong | {"layer3.0.downsample.0.weight": changed}, path)
        with pytest.raises(ValueError, match=r"weights\.safetensors: expected .*'layer3\.0\.downsample\.0\.weight'"):
            backbone.load(path)


def test_nothing_is_executed_and_no_other_name_is_known(tmp_path):
    with torch.device("meta"), pytest.raises(ValueError, match=r"expected resnet18, resnet34, resnet50, got 'vit'"):
        Backbone("vit")
    with torch.device("meta"):
        backbone = Backbone("resnet18")
    torch.save({"conv1.weight": torch.zeros(1)}, tmp_path / "pickle.pt")
    with pytest.raises(ValueError, match="expected a safetensors file"):
        backbone.load(tmp_path / "pickle.pt")
    with pytest.raises(FileNotFoundError, match=r"none\.safetensors: no such file"):
        backbone.load(tmp_path / "none.safetensors")
