"""A single row goes through a prepared Transformer as a NumPy vector, and comes to the same as rows of tensors."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from chainrule.kernels._row_vectors import by_torch, prepared_norm, row_map, vector_step
from chainrule.layers import TransformerStack
from chainrule.layers import _transformer_stack as transformer_stack
from chainrule.state import select

SIZE, HEADS, TIME = 8, 2, 12
OPTIONS = [
    {},
    {"position": "alibi"},
    {"position": "sinusoidal"},
    {"position": "learned"},
    {"position": None, "window": 4},
    {"num_kv_heads": 1, "window": 3},
    {"norm": "rms", "activation": "swiglu"},
    {"norm_first": False, "activation": "relu"},
    {"attention": "gated-linear"},
]


def made(**options) -> TransformerStack:
    torch.manual_seed(0)
    stack = TransformerStack(SIZE, 2, HEADS, context_length=16, **options).double()
    for weight in stack.parameters():  # norms, too, are to be seen
        torch.nn.init.normal_(weight, std=0.5)
    return stack


def inputs(rows: int) -> Tensor:
    return torch.randn(rows, TIME, SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@torch.no_grad()
def stepped(step, x, state):
    outputs = []
    for x_t in x.unbind(1):
        y, state = step(x_t, state)
        outputs.append(y)
    return torch.stack(outputs, 1), state


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_single_row_by_prepared_steps_is_the_whole(options):
    stack, x = made(**options), inputs(1)
    before = x.clone()
    whole, _ = stack(x)
    prepared = stack.prepare()
    _, state = stepped(prepared, x[:, :5], stack.initial_state(1))
    for _ in range(2):  # the state of a fork is what it was
        rest, _ = stepped(prepared, x[:, 5:], state)
        torch.testing.assert_close(rest, whole[:, 5:], rtol=0, atol=1e-12)
    assert torch.equal(x, before)


@pytest.mark.parametrize("position", ["rotary", "alibi"])
def test_a_single_row_whose_cache_is_half_empty_goes_on(position):
    stack, x = made(position=position), inputs(2)
    _, state = stack(x[:, :6], None, torch.tensor([6, 2]))
    expected, _ = stack(torch.cat([x[1:, :2], x[1:, 6:]], 1))
    rest, _ = stepped(stack.prepare(), x[1:, 6:], select(state, torch.tensor([1])))
    torch.testing.assert_close(rest, expected[:, 2:], rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_gradients_that_are_recorded_and_autocast_change_nothing(options):
    stack, x = made(**options).float(), inputs(1)[:, :3].float()
    whole = stack(x)[0].detach()
    for autocast in (False, True):
        state, step = stack.initial_state(1), stack.prepare()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            for t in range(3):
                y, state = step(x[:, t], state)
        torch.testing.assert_close(y.detach().float(), whole[:, 2], rtol=0.1 if autocast else 1e-5, atol=0.1)


def test_norms_without_scale_or_shift_are_left_to_torch():
    x = torch.randn(1, 4)
    for norm in (nn.LayerNorm(4, elementwise_affine=False), nn.LayerNorm(4, bias=False), nn.RMSNorm(4), nn.Identity()):
        prepared = prepared_norm(norm)
        torch.testing.assert_close(prepared(x), norm(x))
        torch.testing.assert_close(torch.from_numpy(prepared(x[0].numpy())), norm(x)[0].detach())


def test_a_single_row_is_a_vector_and_others_are_tensors(monkeypatch):
    seen: list[type] = []

    def noted(norm):
        def apply(x):
            seen.append(type(x))
            return by_torch(norm)(x)

        return apply

    monkeypatch.setattr(transformer_stack, "prepared_norm", noted)
    for options, rows, kind in (({}, 1, np.ndarray), ({}, 2, Tensor), ({"attention": "min-gru"}, 1, Tensor)):
        seen.clear()
        stack = made(**options)
        stepped(stack.prepare(), inputs(rows)[:, :1], stack.initial_state(rows))
        assert seen == [kind] * 5


def test_numbers_of_another_type_are_left_to_torch():
    double = row_map(lambda x: pytest.fail("a vector"), lambda x: 2 * x, torch.float32)
    assert double(torch.ones(1, 2, dtype=torch.float64)).tolist() == [[2, 2]]
    step = vector_step(lambda x, state: (x, type(x)), torch.ones(1))
    assert step(torch.ones(1, 2), None)[1] is np.ndarray
    assert step(torch.ones(1, 2, dtype=torch.bfloat16), None)[1] is Tensor
    assert step(torch.ones(2, 2), None)[1] is Tensor
    assert vector_step(lambda x, state: (x, type(x)), torch.ones(1).bfloat16())(torch.ones(1, 2), None)[1] is Tensor
