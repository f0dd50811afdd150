"""Low-rank changes: the model computes with W + α/r · B A, and has that in its weights when the context ends."""

import copy

import pytest
import torch
from small_models import EVERY
from torch import nn

from chainrule.layers._low_rank import LowRank, adaptable, adapted, merged
from chainrule.layers._multi_head_attention import MultiHeadAttention
from chainrule.models import RecurrentLM, TransformerLM

RANK, ALPHA = 2, 3.0


MIXERS = ("linear", "retention", "gated-linear", "delta", "min-gru", "min-lstm")
MODELS = {name: make for name, make in EVERY.items() if "Transformer" in name} | {
    f"TransformerLM, {mixer}": lambda mixer=mixer: (
        TransformerLM(4, model_size=8, num_layers=1, num_heads=2, attention=mixer, activation="swiglu"),
        (torch.randint(4, (3, 6)), None, torch.tensor([6, 2, 4])),
    )
    for mixer in MIXERS
}


@pytest.fixture(params=MODELS)
def small(request):
    """A model in float64 whose weights are all different, and rows for it."""
    torch.manual_seed(0)
    model, rows = MODELS[request.param]()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return model.double().eval(), rows


def wide(tree):
    """Numbers of float64 in place of float32."""
    if isinstance(tree, dict):
        return {name: wide(part) for name, part in tree.items()}
    return tree.double() if isinstance(tree, torch.Tensor) and tree.is_floating_point() else tree


def test_the_weights_hold_in_the_end_what_the_model_computed_with(small):
    model, rows = small
    rows = tuple(map(wide, rows))
    layers, names = adaptable(model), [*model.state_dict()]
    fixed = {name: weight.clone() for name, weight in model.state_dict().items()}
    before = model.log_prob(*rows)
    with adapted(model, RANK, ALPHA, seed=0):
        assert torch.equal(model.log_prob(*rows), before)  # B is zero
        changes = {name: part for name, part in model.named_modules() if isinstance(part, LowRank)}
        assert {name for name, weight in model.named_parameters() if weight.requires_grad} == {
            f"{name}.{part}" for name in changes for part in "ab"
        }
        with torch.no_grad():
            for change in changes.values():
                change.b.normal_(std=0.3)
        during, written = model.log_prob(*rows), merged(model)
        assert all(torch.equal(model.state_dict()[name], weight) for name, weight in fixed.items())
    assert (during - before).abs().max() > 1e-3
    torch.testing.assert_close(model.log_prob(*rows), during, rtol=1e-10, atol=1e-10)
    assert [*model.state_dict()] == [*written] == names
    assert all(torch.equal(model.state_dict()[name], weight) for name, weight in written.items())
    assert all(weight.requires_grad for weight in model.parameters())
    kinds = MultiHeadAttention | nn.Linear
    assert len(changes) == len(layers) >= 4
    assert all(isinstance(model.get_submodule(name.removesuffix(".low_rank")), kinds) for name in changes)
    changed = {}
    for name, change in changes.items():
        owner = name.removesuffix(".low_rank")
        changed[f"{owner}.{'in_proj_weight' if f'{owner}.in_proj_weight' in fixed else 'weight'}"] = change
    for name, weight in fixed.items():
        difference = model.state_dict()[name] - weight
        if name in changed:
            a, b = changed[name].a, changed[name].b
            torch.testing.assert_close(difference, ALPHA / RANK * (b @ a), rtol=1e-12, atol=1e-12)
            assert torch.linalg.matrix_rank(difference, rtol=1e-9) <= RANK
        else:
            assert not difference.any()


@torch.no_grad()
def test_steps_and_copies_obey_the_changes():
    """Prepared steps read weights past the layers that hold them."""
    model = TransformerLM(4, model_size=8, num_layers=2, num_heads=2).double().eval()
    x = torch.randint(4, (2, 5))
    with adapted(model, RANK, ALPHA, seed=0):
        for part in model.modules():
            if isinstance(part, LowRank):
                part.b.normal_()
        expected = model(x).logits
        for each in (model, copy.deepcopy(model)):
            for step in (each.step, each.prepare().step):
                state, previous = each.initial_state(2), None
                for t in range(5):
                    conditional, state = step(previous, state)
                    torch.testing.assert_close(conditional.logits, expected[:, t], rtol=1e-10, atol=1e-10)
                    previous = x[:, t]


def test_the_seed_decides_the_first_changes():
    drawn = []
    for seed in (0, 0, 1):
        model = TransformerLM(4, model_size=8, num_layers=1, num_heads=2)
        before = torch.random.get_rng_state()
        with adapted(model, 4, None, seed):
            drawn.append(model.stack.layers[0].mixer.low_rank.a.detach().clone())
            assert model.stack.layers[0].mixer.low_rank.scale == 2.0
        assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert drawn[0].abs().max() <= 8**-0.5


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_a_recurrence_is_refused_by_name(cell):
    with pytest.raises(ValueError, match=rf"lora_rank: changes .* this model \({cell.upper()}\) has none"):
        adaptable(RecurrentLM(4, cell, hidden_size=8))
