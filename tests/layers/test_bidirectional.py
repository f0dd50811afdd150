"""The bidirectional encoder against torch.nn under packing, and against what padding could do to it."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from chainrule.layers import Bidirectional

B, T, N, M, L = 4, 6, 3, 5, 2
LENGTHS = torch.tensor([6, 2, 4, 1])
PEERS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
TOLERANCE = 1e-12  # float64; the same sums in another order


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def make(cell, layers=L, **kw):
    return Bidirectional(cell, N, M, layers, **kw).double()


def parts(final):
    return final if isinstance(final, tuple) else (final,)


@pytest.mark.parametrize("cell", PEERS)
def test_outputs_final_states_and_gradients_equal_torch_under_packing(cell):
    encoder = make(cell)
    peer = PEERS[cell](N, M, L, batch_first=True, bidirectional=True).double()
    peer.load_state_dict(encoder.recurrent.state_dict())
    x = torch.randn(B, T, N, dtype=torch.float64)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    packed, last = peer(pack_padded_sequence(theirs, LENGTHS, batch_first=True, enforce_sorted=False))
    expected, _ = pad_packed_sequence(packed, batch_first=True)
    outputs, final = encoder(ours, LENGTHS)
    torch.testing.assert_close(outputs, expected, rtol=0, atol=TOLERANCE)
    for part, peers in zip(parts(final), parts(last), strict=True):
        sides = peers.view(L, 2, B, M)
        torch.testing.assert_close(part, torch.cat([sides[:, 0], sides[:, 1]], 2), rtol=0, atol=TOLERANCE)
    for result in (outputs, expected):
        (result * torch.linspace(-1, 1, result.numel(), dtype=torch.float64).view(result.shape)).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=TOLERANCE)
    weights = dict(encoder.recurrent.named_parameters())
    for name, parameter in peer.named_parameters():
        torch.testing.assert_close(weights[name].grad, parameter.grad, rtol=0, atol=1e-11)


@pytest.mark.parametrize("cell", PEERS)
def test_padding_is_never_read_and_its_outputs_are_zero(cell):
    encoder = make(cell)
    x = torch.randn(B, T, N, dtype=torch.float64)
    expected, last = encoder(x, LENGTHS)
    padding = torch.arange(T) >= LENGTHS[:, None]
    outputs, final = encoder(x.masked_fill(padding[..., None], torch.nan), LENGTHS)
    assert torch.equal(outputs, expected)
    assert (outputs[padding] == 0).all()
    for part, same in zip(parts(final), parts(last), strict=True):
        assert torch.equal(part, same)


@pytest.mark.parametrize("cell", PEERS)
def test_a_row_alone_is_the_row_among_others(cell):
    encoder = make(cell)
    x = torch.randn(B, T, N, dtype=torch.float64)
    outputs, final = encoder(x, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone, last = encoder(x[row : row + 1, :length])
        torch.testing.assert_close(outputs[row : row + 1, :length], alone, rtol=0, atol=TOLERANCE)
        for part, same in zip(parts(final), parts(last), strict=True):
            torch.testing.assert_close(part[:, row : row + 1], same, rtol=0, atol=TOLERANCE)


def test_without_lengths_the_backward_direction_would_read_the_padding():
    """The comparisons above can fail: leave the lengths out, and real places change."""
    encoder = make("gru", layers=1)
    x = torch.randn(B, T, N, dtype=torch.float64)
    difference = (encoder(x)[0] - encoder(x, LENGTHS)[0]).abs()
    assert difference[1, 0, M:].max() > 1e-3
    assert difference[1, 0, :M].max() < TOLERANCE  # the forward direction is at no loss


@pytest.mark.parametrize("cell", PEERS)
def test_every_output_sees_every_element_of_its_row_and_no_other(cell):
    encoder = make(cell, layers=1)
    x = torch.randn(B, T, N, dtype=torch.float64, requires_grad=True)
    outputs, _ = encoder(x, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        for t in range(length):
            (gradient,) = torch.autograd.grad(outputs[row, t].sum(), x, retain_graph=True)
            seen = gradient.abs().sum(2) > 0
            expected = torch.zeros(B, T, dtype=torch.bool)
            expected[row, :length] = True
            assert torch.equal(seen, expected)


def test_rows_of_length_zero_answer_zeros():
    outputs, (h, c) = make("lstm")(torch.randn(2, T, N, dtype=torch.float64), torch.tensor([0, 3]))
    assert outputs[0].abs().sum() == h[:, 0].abs().sum() == c[:, 0].abs().sum() == 0
    assert outputs[1, :3].abs().min() > 0
    outputs, final = make("gru")(torch.randn(2, 0, N, dtype=torch.float64), torch.tensor([0, 0]))
    assert outputs.shape == (2, 0, 2 * M)
    assert final.shape == (L, 2, 2 * M)


@pytest.mark.parametrize("cell", PEERS)
def test_integers_are_one_hot_vectors(cell):
    encoder, x = make(cell), torch.randint(N, (B, T))
    dense = nn.functional.one_hot(x, N).double()
    torch.testing.assert_close(encoder(x, LENGTHS)[0], encoder(dense, LENGTHS)[0], rtol=0, atol=TOLERANCE)


def test_dropout_acts_between_layers_in_training_only():
    encoder, x = make("lstm", dropout=0.5), torch.randn(B, T, N, dtype=torch.float64)
    assert not torch.equal(encoder(x)[0], encoder(x)[0])
    encoder.eval()
    assert torch.equal(encoder(x)[0], encoder(x)[0])


def test_weights_begin_orthogonal_with_open_forget_gates():
    weights = make("lstm").recurrent
    for name in ("weight_hh_l0", "weight_hh_l1_reverse"):
        for gate in getattr(weights, name).split(M):
            torch.testing.assert_close(gate @ gate.t(), torch.eye(M, dtype=torch.float64), rtol=0, atol=1e-5)
    assert (weights.bias_ih_l1_reverse[M : 2 * M] == 1).all()
    assert weights.bias_hh_l0.abs().sum() == weights.bias_ih_l0[:M].abs().sum() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("transformer", N, M), "cell: expected one of lstm, gru, rnn, got 'transformer'"),
        (("lstm", 0, M), "input_size: expected an integer >= 1, got 0"),
        (("lstm", N, -1), "hidden_size: expected an integer >= 1, got -1"),
        (("lstm", N, M, 0), "num_layers: expected an integer >= 1, got 0"),
        (("lstm", N, M, 1, 1.0), "dropout: expected a number in"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Bidirectional(*arguments)
