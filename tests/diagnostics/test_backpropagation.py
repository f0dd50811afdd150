"""Backpropagation through time, written out, against autograd's tape."""

from dataclasses import replace

import pytest
import torch
from recurrences import KINDS, LENGTHS, TORCH, B, M, N, T, taped
from torch import nn

from chainrule.diagnostics import backpropagate
from chainrule.diagnostics._backpropagation import run_back
from chainrule.diagnostics._subject import replay, single_layers, subject_of
from chainrule.layers import LSTM, RNN
from chainrule.models import RecurrentLM

TOLERANCE = 1e-10  # float64; sums of some hundred terms of size one


def weighted(outputs):
    """A loss that weighs every output differently."""
    return (outputs**2 * torch.linspace(0.5, 2, outputs.numel()).view_as(outputs)).sum()


def close(left, right):
    torch.testing.assert_close(left, right, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_delta_is_the_gradient_that_autograd_finds_at_that_step(kind, lengths):
    layer, x, lengths = KINDS[kind](), torch.randn(B, T, N), LENGTHS[lengths]
    found = backpropagate(layer, x, weighted, lengths)
    bottom, top = single_layers(layer)
    h1, c1 = taped(bottom, x.requires_grad_(), lengths=lengths)
    h2, c2 = taped(top, torch.stack(h1, 1), lengths=lengths)
    loss = weighted(torch.stack(h2, 1))
    for hs, deltas in zip((h1, h2), found.delta, strict=True):
        expected = torch.autograd.grad(loss, hs, retain_graph=True, materialize_grads=True)
        real = torch.ones(B, T, 1) if lengths is None else (torch.arange(T) < lengths.unsqueeze(1)).unsqueeze(2)
        close(deltas, torch.stack(expected, 1) * real)
    for cs, deltas in zip((c1, c2) if c1 else (), found.delta_cell, strict=True):
        expected = torch.autograd.grad(loss, cs, retain_graph=True, materialize_grads=True)
        real = torch.ones(B, T, 1) if lengths is None else (torch.arange(T) < lengths.unsqueeze(1)).unsqueeze(2)
        close(deltas, torch.stack(expected, 1) * real)
    assert found.loss == pytest.approx(loss.item())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_weight_gradients_are_autograds(kind, lengths, bias):
    layer, x, lengths = KINDS[kind](bias=bias), torch.randn(B, T, N), LENGTHS[lengths]
    state = tuple(torch.randn(B, 2, M) for _ in range(1 + layer.has_cell))
    state = state if layer.has_cell else state[0]
    found = backpropagate(layer, x, weighted, lengths, state=state)
    weighted(layer(x, state, lengths)[0]).backward()
    assert found.weight_gradients.keys() == dict(layer.named_parameters()).keys()
    for name, weight in layer.named_parameters():
        close(found.weight_gradients[name], weight.grad)


@pytest.mark.parametrize("kind", KINDS)
def test_symbols_are_one_hot_vectors(kind):
    layer, symbols = KINDS[kind](), torch.randint(0, N, (B, T))
    from_symbols = backpropagate(layer, symbols)
    from_vectors = backpropagate(layer, nn.functional.one_hot(symbols, N).double())
    for name, gradient in from_symbols.weight_gradients.items():
        close(gradient, from_vectors.weight_gradients[name])


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", TORCH)
def test_modules_of_torch_are_read_in_their_own_layout(kind, batch_first):
    module, x = TORCH[kind](batch_first=batch_first), torch.randn(B, T, N)
    found = backpropagate(module, x if batch_first else x.transpose(0, 1), weighted)
    output, _ = module(x if batch_first else x.transpose(0, 1))
    weighted(output if batch_first else output.transpose(0, 1)).backward()
    for name, weight in module.named_parameters():
        close(found.weight_gradients[name], weight.grad)
    assert found.delta[0].shape == (B, T, M)
    assert found.replay_error < 1e-14


@pytest.mark.parametrize("loss", ["last", "mean"])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_losses_of_a_bare_layer_are_sums_of_squares(loss, lengths):
    layer, x, lengths = LSTM(N, M), torch.randn(B, T, N), LENGTHS[lengths]
    steps = torch.full((B,), T) if lengths is None else lengths
    squares = layer(x, None, lengths)[0].square().sum(-1)
    expected = squares[torch.arange(B), steps - 1] if loss == "last" else squares.sum(1) / steps
    found = backpropagate(layer, x, loss, lengths)
    assert found.loss == pytest.approx(expected.sum().item())
    expected.sum().backward()
    for name, weight in layer.named_parameters():
        close(found.weight_gradients[name], weight.grad)


@pytest.mark.parametrize("embedding", [None, 4])
@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_losses_of_a_model_are_its_own(cell, embedding):
    model = RecurrentLM(6, cell, embedding, hidden_size=M, num_layers=2, dropout=0.5)
    x, lengths = torch.randint(0, 6, (B, T)), torch.tensor([7, 3, 0, 5])
    found = backpropagate(model, x, "mean", lengths)
    assert model.training  # as it was, though dropout was off
    model.eval()
    loss = -(model.log_prob(x, lengths=lengths) / lengths.clamp(min=1)).sum()
    loss.backward()
    assert found.loss == pytest.approx(loss.item())
    for name, weight in model.recurrent.named_parameters():
        close(found.weight_gradients[name], weight.grad)


def test_the_last_loss_of_a_model_is_that_of_its_last_symbol():
    model = RecurrentLM(6, hidden_size=M)
    x, lengths = torch.randint(0, 6, (B, T)), torch.tensor([7, 3, 1, 5])
    terms = -model(x, lengths=lengths).log_prob(x)
    loss = terms[torch.arange(B), lengths - 1].sum()
    loss.backward()
    found = backpropagate(model, x, "last", lengths)
    assert found.loss == pytest.approx(loss.item())
    close(found.weight_gradients["weight_hh_l0"], model.recurrent.weight_hh_l0.grad)
    # g_t = W_hoᵀ(p_t − y_t) at the last step, and nothing before it
    p = model(x, lengths=lengths).probs[0, 6].detach()
    close(found.local[0][0, 6], model.weight_ho.detach().t() @ (p - nn.functional.one_hot(x[0, 6], 6)))
    assert not found.local[0][0, :6].any()


def test_a_chunk_continues_from_its_state():
    model = RecurrentLM(6, hidden_size=M)
    x = torch.randint(0, 6, (B, 2 * T))
    _, state = model.unroll(x[:, :T], model.initial_state(B))
    state = tuple(part.detach() for part in state)
    chunk, _ = model.unroll(x[:, T:], state, x[:, T - 1])
    (-chunk.log_prob(x[:, T:]).mean(1).sum()).backward()
    found = backpropagate(model, x[:, T:], "mean", state=state, x_prev=x[:, T - 1])
    for name, weight in model.recurrent.named_parameters():
        close(found.weight_gradients[name], weight.grad)


@pytest.mark.parametrize(("alpha", "factor"), [(0.5, 9.5e-7), (1.5, 3.3e3)])
def test_the_linear_example_of_twenty_steps(alpha, factor):
    layer = RNN(N, M, nonlinearity="identity", bias=False)
    layer.weight_hh_l0.data = alpha * torch.eye(M)
    norms = backpropagate(layer, torch.randn(B, 21, N)).delta[0].norm(dim=-1)
    torch.testing.assert_close(norms[:, 0] / norms[:, -1], torch.full((B,), alpha**20))
    assert f"{norms[0, 0] / norms[0, -1]:.2g}" == f"{factor:.2g}"


@pytest.mark.parametrize("factor", ["c_by_i", "c_by_f", "c_by_g", "c_by_c", "h_by_o", "h_by_c"])
def test_a_wrong_factor_shows(factor):
    layer, x = LSTM(N, M), torch.randn(B, T, N)
    subject = subject_of(layer, x)
    passages, inputs, _ = replay(subject)
    local, _ = subject.local_gradient(weighted)
    wrong = replace(passages[0].derivative, **{factor: 0.9 * getattr(passages[0].derivative, factor)})
    *_, gradients = run_back(subject, [replace(passages[0], derivative=wrong)], inputs, local)
    weighted(layer(x)[0]).backward()
    assert (gradients["weight_hh_l0"] - layer.weight_hh_l0.grad).abs().max() > 1e-4


def test_padding_is_never_read():
    layer, x, lengths = LSTM(N, M, 2), torch.randn(B, T, N), LENGTHS["unequal"]
    spoiled = x.clone()
    spoiled[torch.arange(T) >= lengths.unsqueeze(1)] = torch.nan
    for left, right in zip(
        backpropagate(layer, x, "mean", lengths).delta,
        backpropagate(layer, spoiled, "mean", lengths).delta,
        strict=True,
    ):
        assert torch.equal(left, right)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32], ids=str)
def test_symbols_and_lengths_may_have_any_integer_dtype(dtype):
    """torch reads a uint8 index as a mask: if there were as many rows as steps, the loss was taken at other steps."""
    layer, x, lengths = LSTM(N, M), torch.randint(N, (4, 4)), torch.tensor([4, 1, 2, 3])
    found, expected = (backpropagate(layer, x.to(kind), "last", lengths.to(kind)) for kind in (dtype, torch.int64))
    assert found.loss == expected.loss
    assert torch.equal(found.delta[0], expected.delta[0])
