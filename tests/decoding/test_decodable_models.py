"""Any model over symbols can be searched; what cannot be is refused."""

import math

import pytest
import torch
from decoded_models import CONTEXT, EOS, TinyDecoder, as_lists

from chainrule._base import AutoregressiveModel
from chainrule.decoding import beam_search, greedy
from chainrule.heads import Bernoulli, Categorical
from chainrule.models import MADE, RecurrentLM

WIDE = 4**5  # no tree here has more leaves


@pytest.mark.parametrize("adaptive", [{}, {"cutoffs": (2,)}, {"cutoffs": (1, 3), "tie_weights": True}], ids=str)
@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_the_models_of_the_library_are_searched_through_their_steppers(cell, adaptive):
    torch.manual_seed(0)
    model = RecurrentLM(4, cell, hidden_size=8, num_layers=2, **adaptive).double().eval()
    bias = model.adaptive.head_bias if adaptive else model.bias_ho
    bias.data[EOS] = -1.0
    [result] = beam_search(model, beam_size=WIDE, max_length=4, eos=EOS, n_best=3)
    found = []
    for sequence in (
        [],
        *([a] for a in (1, 2, 3)),
        *([a, b] for a in (1, 2, 3) for b in (1, 2, 3)),
        *([a, b, c] for a in (1, 2, 3) for b in (1, 2, 3) for c in (1, 2, 3)),
    ):
        found.append((float(model.log_prob(torch.tensor([[*sequence, EOS]])).detach()), sequence))
    found.sort(key=lambda pair: -pair[0])
    assert as_lists([result])[0] == [sequence for _, sequence in found[:3]]


def test_without_an_end_symbol_the_mode_of_a_fixed_number_of_elements_is_found():
    torch.manual_seed(0)
    model = MADE(6, [16], order=[3, 1, 5, 0, 4, 2]).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    support = torch.cartesian_prod(*[torch.arange(2)] * 6)
    log_probs = model.log_prob(support).detach()
    [result] = beam_search(model, beam_size=64, max_length=6, eos=None, n_best=64)
    assert result.proven
    assert result.ended.all()
    order = log_probs.sort(descending=True).indices
    assert torch.equal(model.from_sequence(torch.stack(result.sequences)).long(), support[order])
    torch.testing.assert_close(result.log_probs, log_probs[order], rtol=1e-12, atol=1e-12)


def test_half_precision_scores_are_summed_in_double():
    model = TinyDecoder().bfloat16()
    model.begin.data = model.begin.data.bfloat16()
    [result] = beam_search(model, CONTEXT[:1].bfloat16(), beam_size=3, max_length=6, eos=EOS)
    assert result.log_probs.dtype == torch.float64


class OfReals(TinyDecoder):
    def step(self, x_prev, state):
        return torch.distributions.Normal(torch.zeros(1), torch.ones(1)), state


class NotFinite(TinyDecoder):
    def scores(self, h, x_prev):
        return super().scores(h, x_prev) * math.nan


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (TinyDecoder(), {"beam_size": 0}, "beam_size: expected an integer >= 1, got 0"),
        (TinyDecoder(), {"max_length": 0}, "max_length: expected an integer >= 1, got 0"),
        (TinyDecoder(), {"eos": 4}, r"eos: expected a symbol of the model, in \[0, 4\), got 4"),
        (TinyDecoder(), {"eos": -1}, "eos: expected a symbol >= 0"),
        (TinyDecoder(), {"length_penalty": -0.5}, "length_penalty: expected a number >= 0"),
        (TinyDecoder(), {"length_penalty": math.nan}, "length_penalty"),
        (TinyDecoder(), {"n_best": 3}, "n_best: expected 1 to beam_size, 2, got 3: widen the beam"),
        (TinyDecoder(), {"min_length": 5}, "min_length: expected 0 to 4"),
        (TinyDecoder(), {"no_repeat_ngram": 0}, "no_repeat_ngram: expected an integer >= 1, got 0"),
        (TinyDecoder(), {"prefix": torch.ones(5)}, "max_length: expected more than the 5 elements of the prefix"),
        (TinyDecoder(), {"prefix": torch.ones(2, 1), "context": CONTEXT}, "prefix: expected shape"),
        (MADE(3, [4]), {"eos": None}, "max_length: expected at most 3, all that this model has, got 5"),
        (OfReals(), {}, "model: expected conditionals over symbols.*got Normal.*: sample from this model instead"),
        (NotFinite(), {}, "model: its conditional of element 1 holds NaN"),
    ],
)
def test_arguments_out_of_range_are_refused(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        beam_search(model, **{"beam_size": 2, "max_length": 5, "eos": EOS, **arguments})


class Coins(AutoregressiveModel):
    """Independent binary elements; of torch's own distribution, which is no head of ours."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.logits = kind, torch.tensor([0.4, -0.3, 2.0])

    def initial_state(self, batch_size, context=None):
        return torch.zeros(batch_size, dtype=torch.long)

    def step(self, x_prev, state):
        return self.kind(logits=self.logits[state]), state + 1

    def forward(self, x, context=None, lengths=None):
        return self.kind(logits=self.logits.expand(len(x), -1))


@pytest.mark.parametrize("kind", [torch.distributions.Bernoulli, Bernoulli])
def test_binary_elements_are_symbols_too(kind):
    [result] = greedy(Coins(kind), max_length=3, eos=None)
    assert as_lists([result]) == [[[1, 0, 1]]]
    expected = (
        torch.distributions.Bernoulli(logits=torch.tensor([0.4, -0.3, 2.0])).log_prob(torch.tensor([1.0, 0, 1])).sum()
    )
    assert float(result.log_probs[0]) == pytest.approx(float(expected), abs=1e-6)


def test_torchs_own_categorical_is_read_as_ours():
    class Theirs(TinyDecoder):
        def step(self, x_prev, state):
            conditional, state = super().step(x_prev, state)
            return torch.distributions.Categorical(logits=conditional.logits), state

    options = {"beam_size": 3, "max_length": 6, "eos": EOS, "no_repeat_ngram": 2, "min_length": 2, "n_best": 3}
    assert as_lists(beam_search(Theirs(), CONTEXT, **options)) == as_lists(
        beam_search(TinyDecoder(), CONTEXT, **options)
    )
    assert isinstance(TinyDecoder().step(None, TinyDecoder().initial_state(1))[0], Categorical)
