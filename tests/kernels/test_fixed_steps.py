"""Steps that keep nothing outside their state, in shapes that stay, as a CUDA graph needs them, equal the model's."""

import pytest
import torch

from chainrule.models import CalibratedMixture, Ensemble, NgramLM, RecurrentLM, TransformerLM
from chainrule.state import leaves

SIZES = {"model_size": 8, "num_layers": 2, "num_heads": 2, "context_length": 16}


def counts():
    return NgramLM.fit(torch.randint(5, (400,)), vocab_size=5, order=3)


MODELS = {
    "lstm": lambda: RecurrentLM(5, "lstm", 8, 8, 2),
    "gru with n-grams": lambda: RecurrentLM(5, "gru", 8, 8, ngram_order=3),
    "counts": counts,
    "networks and counts": lambda: CalibratedMixture(
        Ensemble([RecurrentLM(5, "rnn", 8), RecurrentLM(5, "lstm", 8, 8)]), counts()
    ),
    "attention": lambda: TransformerLM(5, **SIZES),
    "windows and shared keys": lambda: TransformerLM(5, **SIZES, window=6, num_kv_heads=1),
    "alibi": lambda: TransformerLM(5, **SIZES, position="alibi"),
    "linear attention": lambda: TransformerLM(5, **SIZES, attention="linear"),
}


@pytest.mark.parametrize("read", [3, 20], ids=["short of the window", "beyond it"])
@pytest.mark.parametrize("name", MODELS)
def test_a_fixed_step_keeps_its_shapes_and_the_conditionals(name, read):
    torch.manual_seed(0)
    model, x = MODELS[name]().double().eval(), torch.randint(5, (3, 45))
    with torch.no_grad():
        _, state = model.unroll(x[:, :read], model.initial_state(3))
        step, fixed = model.prepare().fixed(state)
        shapes = [leaf.shape for leaf in leaves(fixed)]
        for t in range(read, 45):
            expected, state = model.step(x[:, t - 1], state)
            found, fixed = step(x[:, t - 1], fixed)
            torch.testing.assert_close(found.categorical().logits, expected.categorical().logits, rtol=0, atol=1e-12)
            assert [leaf.shape for leaf in leaves(fixed)] == shapes


def test_there_is_none_where_modules_must_be_called_or_a_cache_would_be_huge():
    model = TransformerLM(5, **SIZES)
    model.layer.norm.register_forward_hook(lambda module, inputs, output: output)
    assert model.prepare().fixed(model.initial_state(2)) is None
    wide = TransformerLM(5, model_size=8, num_layers=1, num_heads=1, context_length=1 << 20)
    assert wide.prepare().fixed(wide.initial_state(17)) is None
