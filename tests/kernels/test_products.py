"""Products by oneDNN: equal to torch's, differentiable any number of times, and left out where others look on."""

from contextlib import contextmanager

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from chainrule.kernels import _products as module
from chainrule.kernels._products import amd_family, onednn_is_faster, packs, product
from chainrule.layers import Recurrent
from chainrule.layers._pointwise import Linear, linear
from chainrule.models import (
    MADE,
    ImageTransformer,
    RecurrentLM,
    Seq2Seq,
    TransformerLM,
    TransformerSeq2Seq,
    WaveNet,
)


@contextmanager
def counted():
    """Take oneDNN for any size on any processor; a list of the factors that it multiplied."""
    if not packs(torch.float32):
        pytest.skip("a torch without oneDNN's product")
    taken = []

    def multiply(a, b, c):
        taken.append((a, b))
        return multiplied(a, b, c)

    multiplied = module.onednn_linear
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "LEAST_MULTIPLICATIONS", 1)
        patched.setattr(module, "onednn_is_faster", lambda: True)
        patched.setattr(module, "onednn_linear", multiply)
        yield taken


@pytest.fixture
def by_onednn():
    with counted() as taken:
        yield taken


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


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(0, 15), st.booleans(), st.integers(0, 99))
def test_views_of_any_stride_are_multiplied_as_they_are(rows, inner, columns, kinds, added, seed):
    torch.manual_seed(seed)

    def view(height, width, transposed, spread):
        made = torch.randn(width, height).t() if transposed else torch.randn(height, width)
        return made[:1].expand(height, width) if spread else made

    a, b = view(rows, inner, kinds & 1, kinds & 2), view(columns, inner, kinds & 4, kinds & 8)
    addend = torch.randn(rows, columns) if added else None
    with counted() as taken:
        found = product(a, b, addend)
    assert len(taken) == 1
    torch.testing.assert_close(found, a @ b.t() if addend is None else addend + a @ b.t())


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


def test_several_gradients_at_once_are_those_of_torch(by_onednn):
    torch.manual_seed(0)
    x, weight = torch.randn(6, 3), torch.randn(4, 3, requires_grad=True)
    found = [
        torch.autograd.grad(multiply(x, weight), weight, torch.eye(24).view(24, 6, 4), is_grads_batched=True)[0]
        for multiply in (linear, nn.functional.linear)
    ]
    torch.testing.assert_close(*found)
    assert len(by_onednn) == 1  # the value alone


@pytest.mark.parametrize(("of_x", "of_weight"), [(True, False), (False, True)])
def test_a_factor_that_no_gradient_needs_may_change_before_the_backward_pass(by_onednn, of_x, of_weight):
    x, weight = torch.randn(6, 3, requires_grad=of_x), torch.randn(4, 3, requires_grad=of_weight)
    kept = (weight if of_x else x).detach().clone()
    y = linear(x, weight).sum()
    with torch.no_grad():
        (x if of_x else weight).zero_()
    y.backward()
    torch.testing.assert_close((x if of_x else weight).grad, kept.sum(0).expand(6 if of_x else 4, 3))
    assert len(by_onednn) == 2


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
    with FlopCounterMode(display=False) as counter:
        linear(x, weight)
    assert counter.get_total_flops() == 2 * 6 * 4 * 3
    torch.func.vmap(linear, (0, None))(x[:, None], weight)
    torch.func.grad(lambda given: linear(given, weight).sum())(x)
    linear(x.double(), weight.double())
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight).dtype == torch.bfloat16
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torch.backends.mkldnn, "enabled", False)
        linear(x, weight)
    for asked in (torch.compiler, "is_compiling"), (torch._C, "_is_tracing"):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(*asked, lambda: True)
            assert not module.onednn_multiplies(x, weight)
    assert not by_onednn
    linear(x, weight)
    assert by_onednn


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own, of the mode
def test_derivatives_of_forward_mode_are_those_of_torch(by_onednn):
    x, weight, direction = torch.randn(6, 3), torch.randn(4, 3), torch.randn(6, 3)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(linear(forward_ad.make_dual(x, direction), weight)).tangent
    torch.testing.assert_close(tangent, direction @ weight.t())
    assert not by_onednn


def test_what_torch_refuses_or_spreads_is_left_to_it(by_onednn):
    x, weight = torch.randn(6, 3), torch.randn(4, 3)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        linear(x, weight.t())
    assert linear(x, weight[0]).shape == (6,)
    torch.testing.assert_close(linear(x, weight, torch.ones(1)), linear(x, weight) + 1)
    assert len(by_onednn) == 1


def test_few_numbers_and_processors_where_it_is_not_faster_take_the_product_of_torch(by_onednn):
    layer = Linear(3, 4)
    with pytest.MonkeyPatch.context() as patched:  # within that of `by_onednn`, so that it ends first
        patched.setattr(module, "LEAST_MULTIPLICATIONS", 2 * 3 * 4 + 1)
        layer(torch.randn(2, 3))
        assert not by_onednn
        layer(torch.randn(3, 3))
        assert len(by_onednn) == 1
        patched.setattr(module, "onednn_is_faster", lambda: False)
        layer(torch.randn(3, 3))
        assert len(by_onednn) == 1


@pytest.mark.parametrize(
    ("capability", "limit", "family", "has_operator", "faster"),
    [
        ("AVX512", "", 26, True, True),
        ("AVX512", "AVX512_CORE", 27, True, True),
        ("AVX512", "", 26, False, False),
        ("AVX512", "avx2", 26, True, False),
        ("AVX512", "", 25, True, False),
        ("AVX512", "", 0, True, False),
        ("AVX2", "", 26, True, False),
    ],
)
def test_the_faster_library_follows_from_the_processor(monkeypatch, capability, limit, family, has_operator, faster):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    monkeypatch.setattr(module, "amd_family", lambda: family)
    monkeypatch.setattr(module, "packs", lambda dtype: has_operator)
    assert onednn_is_faster.__wrapped__() == faster


def test_the_family_of_a_processor_is_read_where_the_system_says_it(tmp_path, monkeypatch):
    told = tmp_path / "cpuinfo"
    told.write_text("processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\n")
    assert amd_family(told) == 26
    told.write_text("processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n")
    assert amd_family(told) == 0
    monkeypatch.setenv("PROCESSOR_IDENTIFIER", "AMD64 Family 25 Model 97 Stepping 2, AuthenticAMD")
    assert amd_family(tmp_path / "none") == 25
    monkeypatch.setenv("PROCESSOR_IDENTIFIER", "")
    assert amd_family(tmp_path / "none") == 0


TOKENS, BITS = torch.randint(7, (4, 12)), torch.randint(2, (4, 1, 4, 4))
SOURCE = {"tokens": TOKENS, "lengths": torch.tensor([12, 3, 7, 1])}
MODELS = {  # a small one of each family that multiplies by `linear`, and what it reads
    "gru": (lambda: RecurrentLM(7, "gru", hidden_size=8, embedding_size=6), TOKENS, None),
    "one-hot lstm": (lambda: RecurrentLM(7, "lstm", hidden_size=8), TOKENS, None),
    "transformer": (lambda: TransformerLM(7, model_size=8, num_layers=1, num_heads=2), TOKENS, None),
    "linear": (lambda: TransformerLM(7, model_size=8, num_layers=1, num_heads=2, attention="linear"), TOKENS, None),
    "seq2seq": (lambda: Seq2Seq(7, 7, embedding_size=6, hidden_size=8, attention="additive"), TOKENS, SOURCE),
    "translator": (lambda: TransformerSeq2Seq(7, 7, model_size=8, num_layers=1, num_heads=2), TOKENS, SOURCE),
    "made": (lambda: MADE(16, [8, 8]), BITS.flatten(1).float(), None),
    "image-transformer": (lambda: ImageTransformer((1, 4, 4), 2, model_size=8, num_layers=1, num_heads=2), BITS, None),
    "wavenet": (lambda: WaveNet(7, channels=4, blocks=1, layers_per_block=2, skip_channels=6), TOKENS, None),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_multiplied_by_onednn_is_the_model(name):
    make, x, context = MODELS[name]
    torch.manual_seed(0)
    model = make().float().eval()
    for layer in model.modules():
        if isinstance(layer, Recurrent):
            layer.backend = "bptt"

    def loss_and_gradients():
        loss = -model.log_prob(x, context).mean()
        return loss, *torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)

    expected = loss_and_gradients()
    with counted() as taken:
        found = loss_and_gradients()
    assert len(taken) > 2
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
