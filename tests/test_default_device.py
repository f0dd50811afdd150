"""A default device changes nothing: whatever a model makes for itself, it makes where its weights and inputs are."""

import pytest
import torch
from every_use import MODELS, uses


@pytest.mark.parametrize("name", MODELS)
def test_no_use_of_a_model_depends_on_the_default_device(name):
    model, arguments = MODELS[name]()
    model.eval()
    for what, use in uses(model, *arguments).items():
        torch.manual_seed(1)
        expected = use()
        torch.manual_seed(1)
        with torch.device("meta"):  # a tensor made on it has no values
            try:
                found = use()
            except (RuntimeError, NotImplementedError) as error:
                pytest.fail(f"{what}: {error}")
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True, msg=what)
