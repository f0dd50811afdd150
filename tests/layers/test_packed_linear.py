"""A packed weight multiplies as a layer does."""

import pytest
import torch

from chainrule.layers.prepared_linear import LEAST, packed_linear


@pytest.mark.parametrize("rows", [1, 8, 21])
@pytest.mark.parametrize("with_bias", [True, False])
def test_products_are_those_of_the_layer(rows, with_bias):
    random = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(LEAST // 384 + 1, 384, generator=random), torch.randn(LEAST // 384 + 1, generator=random)
    x = torch.randn(rows, 384, generator=random)
    chosen = bias if with_bias else None
    # Sums of 384 products of about 1 in float32, in two orders.
    expected = torch.nn.functional.linear(x, weight, chosen)
    torch.testing.assert_close(packed_linear(weight, chosen)(x), expected, rtol=1e-5, atol=2e-4)
