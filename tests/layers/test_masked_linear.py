"""A masked layer reads what its mask lets through and nothing else."""

import torch

from chainrule.layers._masked_linear import MaskedLinear

MASK = torch.tensor([[False, False, False], [True, False, True]])


def test_it_is_a_dense_layer_with_the_masked_weights_at_zero():
    layer, x = MaskedLinear(MASK), torch.randn(4, 3)
    torch.nn.init.normal_(layer.bias)
    expected = torch.nn.functional.linear(x, layer.weight.masked_fill(~MASK, 0), layer.bias)
    assert torch.equal(layer(x), expected)


def test_outputs_have_gradients_only_where_the_mask_lets_them_through():
    layer = MaskedLinear(MASK)
    jacobian = torch.autograd.functional.jacobian(layer, torch.randn(3))
    assert torch.equal(jacobian != 0, MASK)


def test_masked_weights_receive_no_gradient():
    layer = MaskedLinear(MASK)
    layer(torch.randn(4, 3)).sum().backward()
    assert torch.equal(layer.weight.grad != 0, MASK)


def test_units_of_few_inputs_start_as_strong_as_units_of_many():
    layer = MaskedLinear(torch.ones(400, 400, dtype=torch.bool).tril(-1), bias=False)
    spread = layer(torch.randn(500, 400)).detach().std(0)
    assert spread[0] == 0
    assert 0.35 < float(spread[20:60].mean()) < 0.8  # uniform weights in ±n^-1/2 give 3^-1/2 = 0.58
    assert 0.35 < float(spread[-40:].mean()) < 0.8


def test_the_state_dict_holds_no_mask_and_a_bias_only_where_there_is_one():
    assert set(MaskedLinear(MASK).state_dict()) == {"weight", "bias"}
    assert set(MaskedLinear(MASK, bias=False).state_dict()) == {"weight"}
