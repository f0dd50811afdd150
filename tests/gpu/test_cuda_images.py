"""Models of images and sound on a GPU. Skipped where there is none."""

import pytest
import torch

from chainrule.models import GatedPixelCNN, PixelCNN, WaveNet
from chainrule.testing import check_model

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("kind", [PixelCNN, GatedPixelCNN])
def test_an_image_model_keeps_the_contract_there(kind):
    model = kind((3, 3, 3), levels=3, channels=10, layers=2, num_classes=3).cuda()
    report = check_model(model, torch.randint(3, (3, 3, 3, 3)).cuda(), torch.arange(3).cuda())
    assert report.ok, str(report)


def test_a_wavenet_keeps_the_contract_there():
    model = WaveNet(levels=5, channels=6, blocks=2, layers_per_block=2, skip_channels=7).cuda()
    report = check_model(model, torch.randint(5, (3, 12)).cuda())
    assert report.ok, str(report)


@pytest.mark.parametrize("kind", [PixelCNN, GatedPixelCNN])
def test_training_under_autocast_gives_finite_gradients(kind):
    model = kind((1, 8, 8), levels=4, channels=16, layers=3).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        loss = -model.log_prob(torch.randint(4, (4, 1, 8, 8)).cuda()).mean()
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
