"""What a conditional depends on, by derivatives: masks, blind spots, leaks, sizes."""

import pytest
import torch
from torch.distributions import Normal

from chainrule._base import AutoregressiveModel
from chainrule.diagnostics import receptive_field
from chainrule.diagnostics._receptive_field import InputProbes, element_indices
from chainrule.heads import Bernoulli, Column
from chainrule.models import (
    MADE,
    RNNMADE,
    GatedPixelCNN,
    ImageTransformer,
    PixelCNN,
    PixelRNN,
    RecurrentLM,
    TableMADE,
    TransformerLM,
    WaveNet,
)

SMALL = {"channels": 12, "layers": 1, "first_kernel_size": 3}


class Linear(AutoregressiveModel):
    """p(x_t | x_<t) from Σ_{s<t} W_ts x_s alone: its derivatives are known."""

    def __init__(self, real):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(6, 6).tril(-1))
        self.real, self.sequence_length = real, 6

    def forward(self, x, context=None, lengths=None):
        scores = x.to(self.weight.dtype) @ self.weight.t()
        return Normal(scores, 1.0) if self.real else Bernoulli(logits=scores)

    def initial_state(self, batch_size, context=None):
        return torch.zeros(batch_size, 0, dtype=torch.long)

    def step(self, x_prev, state):
        state = state if x_prev is None else torch.cat([state, x_prev.unsqueeze(1)], 1)
        row = self.weight[state.shape[1], : state.shape[1]]
        return Bernoulli(logits=state.to(row.dtype) @ row), state


MODELS = {
    "PixelCNN": (lambda: PixelCNN((1, 6, 7), 2, **SMALL), None),
    "PixelCNN, RGB": (lambda: PixelCNN((3, 4, 4), 3, **SMALL | {"channels": 36}), None),
    "gated": (lambda: GatedPixelCNN((1, 6, 7), 4, **SMALL), None),
    "image-transformer": (
        lambda: ImageTransformer((1, 6, 7), 2, model_size=8, num_layers=2, num_heads=2, window=3, radius=2),
        None,
    ),
    "gated, RGB, labels": (lambda: GatedPixelCNN((3, 4, 4), 2, num_classes=3, **SMALL), torch.tensor([0, 2])),
    "row LSTM": (lambda: PixelRNN((1, 5, 6), 2, kind="row", **SMALL), None),
    "diagonal LSTM": (lambda: PixelRNN((1, 4, 5), 2, kind="diagonal", **SMALL), None),
    "MADE": (lambda: MADE(7, [32]), None),
    "MADE, another order": (lambda: MADE(5, [32], order=[3, 0, 4, 2, 1]), None),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_derivatives_reach_what_the_masks_allow(name):
    make, context = MODELS[name]
    model = make()
    for t in (0, 1, model.sequence_length // 2, model.sequence_length - 1):
        field = receptive_field(model, t, None, context)
        assert torch.equal(field.reached, field.declared), t
        assert int(model.to_sequence(field.permitted[None].long())[0, t:].sum()) == 0
        assert int(field.permitted.sum()) == t


def test_a_sequence_of_symbols_is_followed_through_its_embedding():
    model = WaveNet(levels=5, channels=4, blocks=1, layers_per_block=2, skip_channels=4)
    x = torch.randint(5, (3, 12))
    field = receptive_field(model, 8, x)
    assert field.reached.nonzero().flatten().tolist() == [4, 5, 6, 7]
    assert field.summary() == {
        "permitted": 8, "reached": 4, "blind_spot": 0, "beyond_reach": 4, "declared": 4, "as_declared": True,
        "not_permitted": 0,
    }  # fmt: skip
    embedded = receptive_field(RecurrentLM(5, cell="gru", hidden_size=4, embedding_size=3), 8, x)
    assert torch.equal(embedded.reached, embedded.declared)


@pytest.mark.parametrize("real", [True, False])
def test_the_influence_is_the_size_of_the_derivative(real):
    model = Linear(real)
    x = torch.randn(3, 6) if real else torch.randint(2, (3, 6))
    found = receptive_field(model, 4, x).influence[:4]
    weight = model.weight.detach()[4, :4].abs().double()
    assert torch.allclose(found / found[0], weight / weight[0], rtol=1e-12)


def test_the_blind_spot_of_a_plain_stack_is_a_staircase_to_the_upper_right():
    field = receptive_field(PixelCNN((1, 7, 9), 2, channels=8, layers=2, kernel_size=3, first_kernel_size=3), (0, 5, 4))
    assert field.blind_spot[0].int().tolist() == [
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
    gated = receptive_field(
        GatedPixelCNN((1, 7, 9), 2, channels=8, layers=2, kernel_size=3, first_kernel_size=3), (0, 5, 4)
    )
    assert not gated.blind_spot.any()
    assert int(gated.unreached.sum()) > 0


def test_a_leak_is_seen():
    model = PixelCNN((1, 4, 4), 2, **SMALL)
    model.first.mask[:, :, 1, 2] = True  # the pixel to the right
    field = receptive_field(model, (0, 2, 1))
    assert field.reached[0, 2, 2]
    assert field.summary()["not_permitted"] > 0


def test_weights_of_zero_reach_less_than_is_declared():
    model = GatedPixelCNN((1, 5, 5), 2, **SMALL)
    torch.nn.init.zeros_(model.first.vertical_to_horizontal.weight)
    torch.nn.init.zeros_(model.layers[0].vertical_to_horizontal.weight)
    field = receptive_field(model, (0, 3, 2))
    assert field.reached[0].nonzero().tolist() == [[3, 0], [3, 1]]
    assert not field.summary()["as_declared"]


def test_the_model_is_left_as_it_is():
    model = GatedPixelCNN((1, 4, 4), 2, **SMALL, dropout=0.5).train()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    random = torch.get_rng_state()
    first, second = (receptive_field(model, 9).influence for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), random)
    assert model.training
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


@pytest.mark.parametrize(
    ("make", "arguments", "reason"),
    [
        (lambda: PixelCNN((1, 4, 4), 2, **SMALL), [16], "from 0 to 15"),
        (lambda: PixelCNN((1, 4, 4), 2, **SMALL), [(1, 0, 0)], "an index into"),
        (lambda: PixelCNN((1, 4, 4), 2, **SMALL), [(2, 2)], "an index into"),
        (lambda: WaveNet(4, 4, 1, 1), [3], "this model has no fixed length"),
        (lambda: MADE(4, [8]), [2, torch.zeros(0, 4)], "x: expected at least one row, got none"),
    ],
)
def test_positions_that_are_none_are_refused(make, arguments, reason):
    with pytest.raises(ValueError, match=reason):
        receptive_field(make(), *arguments)


def test_integers_that_vanish_into_a_function_without_derivatives_are_named():
    with pytest.raises(ValueError, match="RecurrentLM converts integers"):
        receptive_field(RecurrentLM(5, cell="gru", hidden_size=4), 3, torch.randint(5, (2, 8)))
    ngrams = TransformerLM(4, model_size=8, num_layers=1, num_heads=2, window=1, ngram_order=3)
    with pytest.raises(ValueError, match="as for n-grams"):  # of the three elements it sees, one was found
        receptive_field(ngrams, 8, torch.randint(4, (3, 10)))


@pytest.mark.parametrize("shape", [(3, 10), (3, 9), (1, 9), (4, 8)])
def test_a_table_of_positions_is_no_element_whatever_the_length(shape):
    model = TransformerLM(4, model_size=8, num_layers=1, num_heads=2, position="learned", context_length=64)
    assert receptive_field(model, 5, torch.randint(4, shape)).summary()["as_declared"]


def test_a_frame_counts_as_one_element():
    field = receptive_field(RNNMADE(3, 8, [8]), 2, torch.randint(2, (4, 5, 3)).float())
    assert field.reached.tolist() == [True, True, False, False, False]
    assert field.summary()["as_declared"]


def test_taps_ignore_what_takes_no_more_than_the_shape():
    x = torch.randint(5, (2, 3))
    taps = InputProbes(2)
    with taps:
        _ = torch.zeros_like(x, dtype=torch.float64) + x.new_ones(3, dtype=torch.float64)
        numbers = x.double()
    assert len(taps.deltas) == 1
    (squares,) = taps.gradients((numbers * torch.tensor([1.0, 2.0, 3.0])).sum())
    assert squares.tolist() == [[1.0, 4.0, 9.0]] * 2


def test_places_are_told_by_the_differences_in_whole_columns():
    x = torch.tensor([[0, 1, 0], [1, 1, 0], [1, 0, 0]])
    assert element_indices(x[:, [2, 0, 1]], x).tolist() == [2, 0, 1]
    assert element_indices(x + torch.tensor([0, 5, 9]), x).tolist() == [0, 1, 2]
    assert element_indices(1 - x, x).tolist() == [-1, -1, 2]


def test_the_terms_of_a_bag_are_tapped_one_by_one():
    table, x = torch.randn(5, 3, dtype=torch.float64), torch.randint(5, (2, 4))
    for options, tapped in (
        ({"mode": "sum"}, True),
        ({"mode": "mean"}, False),
        ({"mode": "sum", "padding_idx": 0}, False),
    ):
        taps = InputProbes(2)
        with taps:
            total = torch.nn.functional.embedding_bag(x, table, **options)
        torch.testing.assert_close(total, torch.nn.functional.embedding_bag(x, table, **options))
        assert [tuple(delta.shape) for delta in taps.deltas] == ([(2, 4, 3)] if tapped else [])


def test_symbols_of_a_narrow_type_and_a_single_element_are_read():
    model = WaveNet(levels=8, channels=4, blocks=1, layers_per_block=3, skip_channels=4)
    x = torch.randint(8, (2, 16))
    assert receptive_field(model, 12, x.to(torch.uint8)).summary() == receptive_field(model, 12, x).summary()
    for single in (model, TransformerLM(5, model_size=8, num_layers=1, num_heads=2), RecurrentLM(5, hidden_size=4)):
        assert receptive_field(single, 0, torch.zeros(1, 1, dtype=torch.long)).summary()["reached"] == 0


def test_columns_with_categories_are_refused():
    """A gradient does not show what they influence: nothing, it said."""
    flag, real = Column("categorical", categories=2), Column("real")
    with pytest.raises(ValueError, match="model: expected elements with gradients, got columns with categories"):
        receptive_field(TableMADE([flag, real], hidden_size=4), 1)
    x = torch.randn(3, 2, dtype=torch.float64)
    assert receptive_field(TableMADE([real, real], hidden_size=4), 1, x).reached.tolist() == [True, False]


def test_gradients_may_be_off_where_it_is_called():
    """In a notebook without gradients, models were said to convert integers where no derivative exists."""
    pixels, reals = PixelCNN((1, 4, 4), 2, channels=4, layers=1), MADE(4, [8])
    images, rows = torch.randint(2, (2, 1, 4, 4)), torch.randint(2, (2, 4)).float()
    expected = [receptive_field(pixels, 5, images).summary(), receptive_field(reals, 2, rows).summary()]
    with torch.no_grad():
        found = [receptive_field(pixels, 5, images.bool()).summary(), receptive_field(reals, 2, rows).summary()]
    assert found == expected
    with torch.inference_mode(), pytest.raises(ValueError, match=r"torch\.inference_mode disables them"):
        receptive_field(reals, 2, rows)
