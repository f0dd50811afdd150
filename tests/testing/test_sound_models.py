"""No sound model is accused."""

import pytest
import torch
from by_day import by_day
from sound_models import (
    FixedColumns,
    Tiny,
    TinyBernoulli,
    TinyBits,
    TinyLogNormal,
    TinyMixture,
    TinyNormal,
    TinyPoisson,
    TinyVectors,
    Window,
)
from torch import nn
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import MixtureSameFamily, Normal

from chainrule.models import RecurrentLM
from chainrule.testing._probability import check_total_probability


def symbols(size, rows=3, time=8):
    return torch.randint(size, (rows, time))


@pytest.fixture
def require_sound(keeps_contract):
    def require(model, x, context=None, lengths=None, silent=()):
        report = keeps_contract(model, x, context, lengths)
        assert {result.name for result in report.results if not result.applies} == set(silent), f"\n{report}"

    return require


def test_a_model_with_the_three_methods_only_passes(require_sound):
    require_sound(Tiny(), symbols(5))


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (TinyNormal, torch.randn(3, 7)),
        (TinyLogNormal, torch.randn(3, 7).exp()),
        (TinyMixture, torch.randn(3, 7)),
        (TinyBernoulli, torch.randint(2, (3, 7)).float()),
        (TinyPoisson, torch.randint(4, (3, 7)).float()),
        (TinyBits, torch.randint(2, (3, 7, 3)).float()),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_elements_of_any_kind_pass(require_sound, model, x):
    require_sound(model(), x)


def test_real_vectors_pass_and_their_density_is_left_alone(require_sound):
    require_sound(TinyVectors(), torch.randn(3, 6, 3), silent=["total_probability"])


def test_conditioned_models_pass(require_sound):
    require_sound(Tiny(context_size=3), symbols(5), torch.randn(3, 3))
    require_sound(TinyNormal(context_size=2), torch.randn(2, 6), torch.randn(2, 2))


def test_a_context_of_one_row_is_for_all(require_sound):
    require_sound(Tiny(context_size=3), symbols(5), torch.randn(1, 3))


class ByLabel(Tiny):
    """Conditioned on a class number."""

    def __init__(self):
        super().__init__()
        self.label = nn.Embedding(3, 8)

    def first_state(self, batch_size, context=None):
        return self.label(context)


@pytest.mark.parametrize("labels", [[0, 1, 2], [2, 2, 2]])
def test_class_labels_pass_even_where_all_are_the_same(require_sound, labels):
    require_sound(ByLabel(), symbols(5), torch.tensor(labels))


def test_a_limited_context_passes_where_it_is_declared(require_sound):
    require_sound(Window(), symbols(4))


def test_a_fixed_number_of_columns_passes(require_sound):
    require_sound(FixedColumns(), symbols(3, time=4), silent=["padding_invariance"])


@pytest.mark.parametrize(("rows", "time"), [(1, 1), (2, 1), (1, 2)])
def test_short_and_single_sequences_pass(require_sound, rows, time):
    require_sound(Tiny(), symbols(5, rows, time), silent=["full_context", "chunk_invariance"] if time == 1 else [])


def test_garbage_past_the_given_lengths_does_no_harm(require_sound):
    x = torch.randn(3, 6)
    x[0, 2:] = torch.nan
    x[1] = torch.inf
    require_sound(TinyNormal(), x, lengths=torch.tensor([2, 0, 6]))
    x = symbols(5, time=6)
    x[0, 2:] = 999
    require_sound(Tiny(), x, lengths=torch.tensor([2, 6, 6]))


@pytest.mark.parametrize(
    "options",
    [
        {"cell": "lstm", "hidden_size": 1},
        *by_day(
            [
                {"cell": "gru", "reset_after": False, "hidden_size": 33},
                {"cell": "rnn", "nonlinearity": "relu", "hidden_size": 4},
                {"num_layers": 2, "dropout": 0.5, "tie_weights": True, "hidden_size": 8},
                {"vocab_size": 4, "cell": "rnn", "hidden_size": 4, "time": 150},
                {"vocab_size": 1_000, "cell": "gru", "embedding_size": 8, "hidden_size": 8, "time": 6},
            ]
        ),
    ],
    ids=str,
)
def test_recurrent_models_of_any_kind_and_size_pass(require_sound, options):
    options = {"vocab_size": 5, "time": 12} | options
    time = options.pop("time")
    require_sound(RecurrentLM(**options), symbols(options["vocab_size"], 2, time))


@pytest.mark.parametrize(("cell", "scale"), [("gru", 0.0), ("lstm", 30.0), ("rnn", 30.0)])
def test_saturated_vanishing_and_near_deterministic_models_pass(require_sound, cell, scale):
    model = RecurrentLM(7, cell, embedding_size=6, hidden_size=12)
    for parameter in model.parameters():
        parameter.data = scale * torch.randn_like(parameter)
    require_sound(model, symbols(7, 2, 20))


def test_a_vocabulary_of_one_symbol_passes(require_sound):
    require_sound(RecurrentLM(1, hidden_size=4), symbols(1), silent=["full_context", "gradients_reach_parameters"])


def test_a_narrow_peak_of_little_mass_is_not_overlooked():
    class Spike(TinyNormal):
        def conditional(self, h):
            weights = torch.tensor([0.995, 0.005]).expand(*h.shape[:-1], 2)
            centres = self.output(h) + torch.tensor([0.0, 3.0])
            return MixtureSameFamily(TorchCategorical(probs=weights), Normal(centres, torch.tensor([1.0, 1e-7])))

    assert check_total_probability(Spike(), torch.randn(2, 4)).ok


def test_a_model_trained_to_near_certainty_passes(require_sound):
    model = RecurrentLM(3, "gru", hidden_size=16)
    x = torch.arange(12).remainder(3).repeat(4, 1)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(150):
        optimiser.zero_grad()
        (-model.log_prob(x).mean()).backward()
        optimiser.step()
    assert model.log_prob(x).mean() > -0.1
    require_sound(model, x)


def test_a_model_in_float64_or_in_training_mode_passes(require_sound):
    require_sound(RecurrentLM(5, "lstm", hidden_size=8, num_layers=2, dropout=0.5).double().train(), symbols(5))
