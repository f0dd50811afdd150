"""The Transformer language model: the contract under every option, bounded streams, and other mixers in its place."""

import pytest
import torch
from torch import nn

from chainrule.decoding import beam_search
from chainrule.layers import SequenceLayer
from chainrule.layers import _transformer_stack as transformer_stack
from chainrule.models import TransformerLM
from chainrule.state import detach, leaves
from chainrule.testing._dependence import check_causality, check_full_context
from chainrule.testing._stepping import check_chunk_invariance, check_step_equals_forward


def model(**options):
    torch.manual_seed(0)
    sizes = {"model_size": 8, "num_layers": 2, "num_heads": 2, "context_length": 4}
    return TransformerLM(3, **{**sizes, **options})


class RunningSum(SequenceLayer):
    """The simplest recurrence: s_t = a·s_{t-1} + x_t."""

    def __init__(self, size):
        super().__init__()
        self.out_proj = nn.Linear(size, size)

    def forward(self, x, state=None, lengths=None):
        state, outputs = self.initial_state(len(x)) if state is None else state, []
        for element in x.unbind(1):
            y, state = self.step(element, state)
            outputs.append(y)
        return torch.stack(outputs, 1), state

    def initial_state(self, batch_size):
        return self.out_proj.weight.new_zeros(batch_size, self.out_proj.in_features)

    def step(self, x_t, state):
        state = 0.5 * state + x_t
        return self.out_proj(state), state


@pytest.mark.parametrize(
    "options",
    [
        {"position": "alibi", "num_kv_heads": 1, "tie_weights": True},
        {"position": "sinusoidal", "norm_first": False, "norm": "rms"},
        {"position": "learned", "context_length": 6, "activation": "swiglu"},
    ],
    ids=["alibi", "sinusoidal", "learned"],
)
def test_positions_of_every_kind_are_causal_and_the_same_in_chunks_and_steps(options):
    x = torch.randint(3, (2, 6))
    for check in (check_causality, check_full_context, check_chunk_invariance, check_step_equals_forward):
        result = check(model(**options), x)
        assert result.ok, result


def test_any_sequence_layer_can_mix_in_place_of_attention(monkeypatch):
    monkeypatch.setitem(transformer_stack.MIXERS, "sum", lambda size, heads, **options: RunningSum(size))
    recurrent = model(attention="sum")
    assert check_chunk_invariance(recurrent, torch.randint(3, (3, 6))).ok
    assert check_full_context(recurrent, torch.randint(3, (3, 6))).ok
    assert recurrent.stack.reach is None
    with pytest.raises(ValueError, match="num_kv_heads: sum has no heads of keys to share, got 1"):
        model(attention="sum", num_kv_heads=1)


def test_a_conditional_reads_as_far_back_as_declared_and_no_further():
    limited = model(window=2, num_layers=3).double().eval()
    assert limited.stack.reach == 4
    x = torch.randint(3, (1, 9))
    other = x.clone()
    other[:, 0] = (x[:, 0] + 1) % 3
    moved = (limited(x).logits - limited(other).logits).abs().amax(2)[0] > 0
    assert moved.tolist() == [False, True, True, True, True, False, False, False, False]
    assert limited.visible_past(9)[:, 0].tolist() == moved.tolist()


def test_a_prepared_step_is_the_same_for_one_row_and_for_several():
    assert check_step_equals_forward(model(window=3, ngram_order=3), torch.randint(3, (1, 6))).ok
    assert check_step_equals_forward(model(window=3, ngram_order=3), torch.randint(3, (4, 6))).ok


def test_a_long_stream_keeps_a_bounded_state():
    lm = model().eval()
    stream = lm.stream(2, generator=torch.Generator().manual_seed(0))
    text = torch.stack([next(stream) for _ in range(300)], 1)
    _, state = lm.unroll(text, lm.initial_state(2))
    assert max(leaf.numel() for leaf in leaves(state)) == 2 * 2 * 3 * 4  # rows, heads, W - 1, d
    assert text.shape == (2, 300)


def test_truncated_training_has_the_values_of_the_whole_and_gradients_of_a_chunk():
    lm, x = model().double(), torch.randint(3, (2, 12))
    whole = lm(x).log_prob(x)
    state, x_prev, terms = lm.initial_state(2), None, []
    for chunk in x.split(4, 1):
        conditionals, state = lm.unroll(chunk, detach(state), x_prev)
        terms.append(conditionals.log_prob(chunk))
        x_prev = chunk[:, -1]
    torch.testing.assert_close(torch.cat(terms, 1), whole, rtol=0, atol=1e-12)
    lm.zero_grad()
    terms[-1].sum().backward()  # the graph of the chunks before has been cut off
    assert lm.stack.layers[0].mixer.in_proj_weight.grad.abs().sum() > 0


def test_beam_search_finds_the_best_of_all_sequences():
    lm = model().double().eval()
    sequences = torch.cartesian_prod(*[torch.arange(3)] * 4)
    with torch.no_grad():
        log_probs = lm.log_prob(sequences)
    [found] = beam_search(lm, beam_size=27, max_length=4, eos=None)
    assert found.sequences[0].tolist() == sequences[log_probs.argmax()].tolist()
    torch.testing.assert_close(found.log_probs[0], log_probs.max())


def test_the_first_scores_are_near_to_no_opinion():
    lm = TransformerLM(50, model_size=64, num_layers=6, num_heads=4)
    assert lm(torch.randint(50, (2, 40))).logits.std() < 0.8
    products = [linear.weight.std() for block in lm.stack.layers for linear in block.last_products()]
    assert max(products) < 0.2 / 12**0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 3}, "model_size: expected a multiple of num_heads, got 8 with 3 heads: 6 would do"),
        ({"window": 5}, "window: expected 1 to context_length = 4"),
        ({"context_length": 0}, "context_length: expected an integer >= 1"),
        ({"position": "absolute"}, "position: expected one of rotary, alibi, sinusoidal, learned, or None"),
        ({"attention": "hard"}, "attention: expected one of softmax"),
        ({"ngram_order": 0}, "ngram_order: expected an integer >= 1"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        model(**options)


def test_a_text_longer_than_the_learned_positions_is_refused():
    lm = model(position="learned")
    with pytest.raises(ValueError, match="learned positions end after 4 elements, got 5"):
        lm(torch.zeros(1, 5, dtype=torch.long))
    with pytest.raises(ValueError, match="context: this model is not conditioned"):
        lm(torch.zeros(1, 3, dtype=torch.long), torch.zeros(1))


def test_the_prefix_that_matters_is_the_reach_as_far_as_learned_positions_leave_room():
    assert model(attention="linear").useful_prefix(100) is None
    assert model(window=2).useful_prefix(100) == 3
    assert model(position="learned", window=2).useful_prefix(1) == 3
    assert model(position="learned", window=2).useful_prefix(3) == 1
    with pytest.raises(ValueError, match="length: expected fewer than the 4 positions that were learned, got 4"):
        model(position="learned").useful_prefix(4)
