"""What every layer that runs along a sequence makes of rows of unequal length."""

import inspect

import pytest
import torch
from torch import nn

from chainrule import layers
from chainrule.layers import TransformerBlock, TransformerStack
from chainrule.layers._dilated_stack import DilatedStack
from chainrule.layers._ngrams import NgramEmbedding
from chainrule.layers._packing import AttentionPooling, max_pooling, mean_pooling
from chainrule.layers._row_encoders import BidirectionalAttention, EncoderBlock, TransformerEncoder

B, T, N = 2, 4, 8
FACTORIES = {
    "CausalAttention": lambda: layers.CausalAttention(N, num_heads=2, window=3),
    "CausalConv1d": lambda: layers.CausalConv1d(N, 5),
    "DeltaNet": lambda: layers.DeltaNet(N, 2),
    "DilatedStack": lambda: DilatedStack(N, [1, 2]),
    "GRU": lambda: layers.GRU(N, 5),
    "LSTM": lambda: layers.LSTM(N, 5),
    "LearnedPositions": lambda: layers.LearnedPositions(T, N),
    "LinearAttention": lambda: layers.LinearAttention(N, 2),
    "Map": lambda: layers.Map(nn.Linear(N, 5)),
    "MinGRU": lambda: layers.MinGRU(N, 5),
    "MinLSTM": lambda: layers.MinLSTM(N, 5),
    "NgramEmbedding": lambda: NgramEmbedding(N, 5, 2),
    "Parallel": lambda: layers.Parallel(layers.GRU(N, 5), layers.Map(nn.Linear(N, 5))),
    "RNN": lambda: layers.RNN(N, 5),
    "Residual": lambda: layers.Residual(layers.Map(nn.Linear(N, N))),
    "Serial": lambda: layers.Serial(layers.GRU(N, 5), layers.Map(nn.Linear(5, 5))),
    "SinusoidalPositions": lambda: layers.SinusoidalPositions(N),
    "TransformerBlock": lambda: TransformerBlock(layers.CausalAttention(N, num_heads=2, window=3), N),
    "TransformerStack": lambda: TransformerStack(N, 1, 2, position="learned", context_length=T),
}
WHOLE_ROWS = {
    "Bidirectional": lambda: layers.Bidirectional("gru", N, 5),
    "BidirectionalAttention": lambda: BidirectionalAttention(N, 2),
    "EncoderBlock": lambda: EncoderBlock(N, 2),
    "TransformerEncoder": lambda: TransformerEncoder(N, N, 1, 2),
    "TransformerEncoder after norm": lambda: TransformerEncoder(N, N, 1, 2, norm_first=False),
}


def filled(name):
    """A layer with no parameter 0, and what it reads."""
    torch.manual_seed(0)
    layer = {**FACTORIES, **WHOLE_ROWS}[name]()
    for parameter in layer.parameters():
        parameter.data += 0.1 * torch.rand_like(parameter) + 0.1
    return layer, torch.randint(N, (B, T)) if name == "NgramEmbedding" else torch.randn(B, T, N)


def test_every_exported_sequence_layer_has_a_factory():
    exported = [member for member in (getattr(layers, name) for name in layers.__all__) if inspect.isclass(member)]
    found = {member.__name__ for member in exported if issubclass(member, layers.SequenceLayer)}
    assert found - {"SequenceLayer", "Recurrent"} == FACTORIES.keys() - {"DilatedStack", "NgramEmbedding"}


@pytest.mark.parametrize("name", [*FACTORIES, *WHOLE_ROWS])
def test_outputs_past_the_end_of_a_row_are_zero(name):
    layer, x = filled(name)
    found = layer(x, lengths=torch.tensor([T, 1]))
    y = found if isinstance(found, torch.Tensor) else found[0]
    assert not y[1, 1:].any()
    assert y[0].abs().sum(1).all()
    assert y[1, 0].any()


@pytest.mark.parametrize("lengths", [[T + 1, 2], [-1, 2], [2], [1, 1, 1]])
@pytest.mark.parametrize("name", [*FACTORIES, *WHOLE_ROWS])
def test_lengths_that_do_not_fit_are_refused(name, lengths):
    layer, x = filled(name)
    with pytest.raises(ValueError, match=r"^lengths: expected "):
        layer(x, lengths=torch.tensor(lengths))


@pytest.mark.parametrize("lengths", [[T + 1, 2], [-1, 2], [2], [1, 1, 1]])
@pytest.mark.parametrize(
    "read",
    [
        layers.AdditiveAttention(N, 4, 4).remember,
        layers.MultiplicativeAttention(N, 4).remember,
        mean_pooling,
        max_pooling,
        AttentionPooling(N),
    ],
)
def test_lengths_that_do_not_fit_are_refused_by_attention_and_pooling(read, lengths):
    with pytest.raises(ValueError, match=r"^lengths: expected "):
        read(torch.randn(B, T, N), torch.tensor(lengths))
