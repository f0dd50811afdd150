"""Products by oneDNN: equal to torch's, differentiable any number of times, and left out where others look on."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.overrides import TorchFunctionMode

from chainrule.layers import linear as module
from chainrule.layers.bptt import packs
from chainrule.layers.linear import Linear, linear, onednn_is_faster, product

pytestmark = pytest.mark.skipif(not packs(torch.float32), reason="a torch without oneDNN's product")


@pytest.fixture(autouse=True)
def by_onednn(monkeypatch):
    """Take oneDNN for any size on any processor, and count how often it multiplies."""
    taken = []

    def multiply(a, b, c=None):
        taken.append((a, b))
        return multiplied(a, b, c)

    multiplied = module._multiply
    monkeypatch.setattr(module, "LEAST_MULTIPLICATIONS", 1)
    monkeypatch.setattr(module, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(module, "_multiply", multiply)
    return taken


def gradients(multiply, tensors, weights):
    y = multiply(*tensors)
    return y, *torch.autograd.grad((y * weights).sum(), tensors)


@pytest.mark.parametrize("shape", [(7, 5), (2, 3, 5), (1, 5), (0, 5)])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_torch(by_onednn, shape, bias):
    torch.manual_seed(0)
    tensors = [torch.randn(shape), torch.randn(4, 5), torch.randn(4)][: 3 if bias else 2]
    tensors = [tensor.requires_grad_() for tensor in tensors]
    weights = torch.randn(*shape[:-1], 4)
    found = gradients(linear, tensors, weights)
    assert len(by_onednn) == (3 if shape[0] else 0)
    for ours, theirs in zip(found, gradients(nn.functional.linear, tensors, weights), strict=True):
        torch.testing.assert_close(ours, theirs)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(0, 15), st.integers(0, 2**31))
def test_views_of_any_stride_are_multiplied_as_they_are(rows, inner, columns, kinds, seed):
    torch.manual_seed(seed)

    def view(height, width, transposed, spread):
        made = torch.randn(width, height).t() if transposed else torch.randn(height, width)
        return made[:1].expand(height, width) if spread else made

    a, b = view(rows, inner, kinds & 1, kinds & 2), view(columns, inner, kinds & 4, kinds & 8)
    torch.testing.assert_close(product(a, b), a @ b.t())


def test_second_derivatives_are_those_of_torch(by_onednn):
    torch.manual_seed(0)
    tensors = [torch.randn(6, 3), torch.randn(4, 3), torch.randn(4)]

    def second(multiply):
        def loss(*given):
            return multiply(*given).tanh().square().sum()

        return torch.autograd.functional.hessian(loss, tuple(tensors))

    ours, theirs = second(linear), second(nn.functional.linear)
    assert by_onednn
    for mine, others in zip(ours, theirs, strict=True):
        for each, other in zip(mine, others, strict=True):
            torch.testing.assert_close(each, other)


def test_several_gradients_at_once_are_those_of_torch():
    torch.manual_seed(0)
    x, weight = torch.randn(6, 3), torch.randn(4, 3, requires_grad=True)
    found = [
        torch.autograd.grad(multiply(x, weight), weight, torch.eye(24).view(24, 6, 4), is_grads_batched=True)[0]
        for multiply in (linear, nn.functional.linear)
    ]
    torch.testing.assert_close(*found)


def test_transforms_modes_other_types_and_autocast_take_the_product_of_torch(by_onednn):
    x, weight = torch.randn(6, 3), torch.randn(4, 3)

    class Watching(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    seen = []
    with Watching():
        linear(x, weight)
    assert nn.functional.linear in seen
    torch.func.vmap(linear, (0, None))(x[:, None], weight)
    torch.func.grad(lambda given: linear(given, weight).sum())(x)
    linear(x.double(), weight.double())
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight).dtype == torch.bfloat16
    assert not by_onednn


def test_few_numbers_and_processors_where_it_is_not_faster_take_the_product_of_torch(by_onednn, monkeypatch):
    layer = Linear(3, 4)
    monkeypatch.setattr(module, "LEAST_MULTIPLICATIONS", 2 * 3 * 4 + 1)
    layer(torch.randn(2, 3))
    assert not by_onednn
    layer(torch.randn(3, 3))
    assert len(by_onednn) == 1
    monkeypatch.setattr(module, "onednn_is_faster", lambda: False)
    layer(torch.randn(3, 3))
    assert len(by_onednn) == 1


def test_the_faster_library_is_found_by_timing_both(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module, "perf_counter", lambda: clock[0])

    def taking(seconds):
        def multiply(a, b, c=None):
            clock[0] += seconds
            return torch.empty(len(a), len(b))

        return multiply

    found = {}
    for seconds in (1.0, 0.9, 0.6, 0.4):
        monkeypatch.setattr(module, "_multiply", taking(seconds))
        monkeypatch.setattr(nn.functional, "linear", taking(1.0))
        found[seconds] = onednn_is_faster.__wrapped__()
    assert found == {1.0: False, 0.9: False, 0.6: True, 0.4: True}
    monkeypatch.setattr(module, "_multiply", lambda a, b: torch.ops.mkldnn.not_there(a, b))
    threads = torch.get_num_threads()
    assert not onednn_is_faster.__wrapped__()
    assert torch.get_num_threads() == threads
