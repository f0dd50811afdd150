import pytest
import torch

from chainrule.layers._multi_head_attention import WindowAttention
from chainrule.models import ConvNet, SwinTransformer, VisionTransformer

SMALL = {
    "cnn": lambda **options: ConvNet((1, 8, 8), 3, 4, channels=4, stages=2, **options),
    "vit": lambda **options: VisionTransformer((1, 8, 8), 3, 4, model_size=8, num_layers=2, num_heads=2, **options),
    "vit-token": lambda **options: VisionTransformer(
        (1, 8, 8), 3, 4, model_size=8, num_layers=2, num_heads=2, pooling="token", **options
    ),
    "swin": lambda **options: SwinTransformer((1, 8, 8), 3, 4, model_size=8, num_heads=2, window=2, **options),
}


@pytest.fixture(params=SMALL)
def model(request):
    torch.manual_seed(0)
    model = SMALL[request.param]()
    torch.nn.init.normal_(model.output.weight)
    return model.double().eval()


def images(count=5):
    return torch.randint(4, (count, 1, 8, 8), generator=torch.Generator().manual_seed(1))


def test_a_class_token_keeps_the_contract(keeps_contract):
    """The other models are in tests/test_contract.py."""
    keeps_contract(SMALL["vit-token"](), torch.arange(3), images(3))


def test_every_pixel_can_influence_the_label(model):
    x = (torch.rand(1, 1, 8, 8, dtype=torch.float64) * 3).requires_grad_()
    logits = model.output(model.features(model.scaled(x)))[0]
    gradients = [torch.autograd.grad(logits[label], x, retain_graph=True)[0] for label in range(3)]
    assert (torch.stack(gradients).abs().amax(0) > 0).all()


@pytest.mark.parametrize("name", SMALL)
def test_smoothing_is_in_the_objective_and_not_in_the_likelihood(name):
    model = SMALL[name](label_smoothing=0.3).eval()
    torch.nn.init.normal_(model.output.weight)
    labels = torch.tensor([0, 1, 2, 0, 1])
    logits = model(images()).logits.log_softmax(1)
    exact = logits[torch.arange(5), labels]
    torch.testing.assert_close(model.log_prob(labels, images()), exact)
    torch.testing.assert_close(model.training_objective(labels, images()), 0.7 * exact + 0.3 * logits.mean(1))


@pytest.mark.parametrize("name", SMALL)
def test_mixup_trains_on_mixtures_of_pairs_and_is_not_in_the_likelihood(name):
    model = SMALL[name](label_smoothing=0.0, mixup=0.5)
    torch.nn.init.normal_(model.output.weight)
    labels, seen = torch.tensor([0, 1, 2, 0, 1]), []
    features = model.features
    model.features = lambda x: seen.append(x) or features(x)
    torch.manual_seed(1)
    found = model.train().training_objective(labels, images())
    torch.manual_seed(1)
    share = torch.distributions.Beta(0.5, 0.5).sample((5,))
    partner = torch.randperm(5)
    numbers, weight = model.scaled(images()), share.view(-1, 1, 1, 1)
    torch.testing.assert_close(seen[0], weight * numbers + (1 - weight) * numbers[partner])
    assert found.shape == (5,)
    model.eval()
    torch.testing.assert_close(model.training_objective(labels, images()), model.log_prob(labels, images()))
    torch.testing.assert_close(seen[-1], numbers)


def test_mixed_labels_have_the_shares_of_their_images():
    """Of a model that answers whatever it sees with log p = (-1, -2, -3), up to a constant, whose labels differ."""
    model = SMALL["cnn"](label_smoothing=0.0, mixup=1.0).train()
    torch.nn.init.zeros_(model.output.weight)
    model.output.bias.data = torch.tensor([-1.0, -2.0, -3.0])
    labels = torch.tensor([0, 1, 2, 0, 1])
    torch.manual_seed(2)
    found = model.training_objective(labels, images())
    torch.manual_seed(2)
    share, partner = torch.distributions.Beta(1.0, 1.0).sample((5,)), torch.randperm(5)
    log_probs = model.output.bias.log_softmax(0)
    torch.testing.assert_close(found, share * log_probs[labels] + (1 - share) * log_probs[labels[partner]])


@pytest.mark.parametrize("name", SMALL)
def test_an_image_of_another_size_is_refused(name):
    with pytest.raises(ValueError, match=r"images: expected images of shape \(B, 1, 8, 8\), got \(2, 1, 8, 9\)"):
        SMALL[name]()(torch.zeros(2, 1, 8, 9, dtype=torch.long))


@pytest.mark.parametrize("mixup", [0.0, 0.5])
def test_images_of_other_numbers_are_refused(mixup):
    """Those in [0, 1] were taken for nearly black ones."""
    model, labels = SMALL["cnn"](mixup=mixup).train(), torch.zeros(5, dtype=torch.long)
    for method in (model.log_prob, model.training_objective):
        with pytest.raises(ValueError, match=r"images: .*in \[0, 4\), got torch.float32: .*\(images \* 3\)\.round"):
            method(labels, images() / 3)
        for value in (-1, 4):
            with pytest.raises(ValueError, match=rf"images: expected integers in \[0, 4\), got {value}: quantise"):
                method(labels, images().index_fill(0, torch.tensor(2), value))


@pytest.mark.parametrize("shape", [(5, 1), (1,), (), (5, 5)])
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}, {"mixup": 0.5}])
def test_labels_are_one_for_each_image(options, shape):
    model = SMALL["cnn"](**options).train()
    for method in (model.log_prob, model.training_objective):
        with pytest.raises(ValueError, match=r"x: expected labels \(B,\) = \(5,\), one for each row, got"):
            method(torch.ones(shape, dtype=torch.long), images())


def test_a_patch_that_does_not_divide_names_those_that_do():
    with pytest.raises(ValueError, match=r"patch_size.*28 and 28.*got 5: 2, 4, 7, 14, 28 would do"):
        VisionTransformer((1, 28, 28), 10, patch_size=5)
    with pytest.raises(ValueError, match="stages: 2 stages need an even number of places"):
        SwinTransformer((1, 28, 28), 10, patch_size=4, stages=3)
    with pytest.raises(ValueError, match="stages: 5 halve"):
        ConvNet((1, 8, 8), 3, stages=5)


@pytest.mark.parametrize(
    ("side", "patches", "places"), [(32, 8, [16, 8]), (28, 7, [14, 7]), (14, 7, [14, 7]), (15, 5, [15])]
)
def test_usual_patches_fit_the_image(side, patches, places):
    assert VisionTransformer((1, side, side), 3, model_size=8, num_layers=1, num_heads=2).grid() == (patches, patches)
    swin = SwinTransformer((1, side, side), 3, model_size=8, blocks=1, num_heads=2)
    found = []
    for block in swin.stages:
        block.register_forward_pre_hook(lambda block, read: found.append((type(block).__name__, *read[0].shape[1:3])))
    swin(torch.zeros(1, 1, side, side, dtype=torch.long))
    assert [where for name, *where in found if name == "SwinBlock"] == [[place, place] for place in places]


def test_a_size_without_patches_or_windows_is_refused():
    with pytest.raises(ValueError, match="patch_size: expected a divisor of 97 and 97"):
        VisionTransformer((1, 97, 97), 3)
    with pytest.raises(ValueError, match="window: no window of 2 to 7 places fits 29×29 places"):
        SwinTransformer((1, 29, 29), 3)


def test_attention_of_a_vision_transformer_is_what_its_blocks_read():
    model = SMALL["vit"]().eval()
    found = model.attended(images())
    assert [part.shape for part in found] == [(5, 2, 4, 4)] * 2
    torch.testing.assert_close(found[0].sum(-1), torch.ones(5, 2, 4))
    assert SMALL["vit"](pooling="token").eval().attended(images())[1].shape == (5, 2, 5, 5)


@pytest.mark.parametrize("name", ["vit", "vit-token"])
def test_places_are_told_apart_before_training(name):
    positions = SMALL[name]().positions
    assert torch.pdist(positions[-4:]).min() > 0.4


def test_every_other_block_of_a_swin_transformer_is_shifted_where_there_are_several_windows():
    model = SwinTransformer((1, 32, 32), 3, model_size=8, num_heads=2, window=4, blocks=2, stages=3)
    layers = [module for module in model.modules() if isinstance(module, WindowAttention)]
    assert [(layer.window, layer.shift) for layer in layers] == [(4, 0), (4, 2), (4, 0), (4, 2), (4, 0), (4, 0)]
    assert [layer.in_proj.in_features for layer in layers] == [8, 8, 16, 16, 32, 32]
