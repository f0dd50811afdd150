"""Every use of every model on a GPU: what it computes there is what it computes on the processor."""

import copy

import pytest
import torch
from every_use import MODELS, uses
from small_models import EVERY

from chainrule._base import AutoregressiveModel
from chainrule._latent import LatentModel
from chainrule.state import map_state
from chainrule.testing import check_model

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

# Each device draws other random numbers from the same seed.
DRAWN = ("sample", "stream", "elbo", "importance_bound", "kl", "from_codes", "complete", "train", "resampled", "active")


def moved(value, device):
    return map_state(lambda leaf: leaf.to(device), value)


@pytest.mark.parametrize("name", MODELS)
def test_every_use_is_that_of_the_processor(name):
    torch.manual_seed(0)
    model, arguments = MODELS[name]()
    model = model.eval().double()
    there = copy.deepcopy(model).cuda()
    on_gpu = uses(there, *moved(list(arguments), "cuda"), device="cuda")
    for what, use in uses(model, *arguments).items():
        found = on_gpu[what]()
        if what.startswith(DRAWN) or (what == "held_out_objective" and isinstance(model, LatentModel)):
            continue
        expected = use()
        torch.testing.assert_close(
            found,
            expected,
            rtol=1e-8,
            atol=1e-8,
            equal_nan=True,
            check_device=False,
            msg=lambda reason, what=what: f"{what}: {reason}",
        )


@pytest.mark.parametrize("name", EVERY)
def test_the_contract_holds_there(name):
    torch.manual_seed(0)
    model, arguments = EVERY[name]()
    if not isinstance(model, AutoregressiveModel):
        pytest.skip("no sequence model")
    x, context, lengths = (*moved(list(arguments), "cuda"), None, None)[:3]
    report = check_model(model.cuda(), x, context, lengths=lengths)
    assert report.ok, str(report)
