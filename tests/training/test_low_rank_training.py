"""Training of low-rank changes alone: what a step changes, what a checkpoint holds, and what is left in the end."""

import pytest
import torch
from safetensors.torch import load_file
from training_toy import SYMBOLS, ToyModel, ToyStream, held_out, options, remains

from chainrule.layers._low_rank import LowRank, adapted
from chainrule.models import TransformerLM
from chainrule.state import detach
from chainrule.training import Callback, TrainingOptions, learning_rate, load_weights, train

RANK = 2
LORA = {"lora_rank": RANK, "lora_alpha": 6.0}
CHANGED = ("in_proj_weight", "out_proj.weight", "linear1.weight", "linear2.weight")


def small(dropout=0.0) -> TransformerLM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return TransformerLM(SYMBOLS, model_size=8, num_layers=2, num_heads=2, context_length=16, dropout=dropout)


def trained(model, directory, steps, **changes):
    settings = {"steps": steps, "validate_every": steps, "learning_rate": 0.01} | LORA | changes
    train(model, ToyStream(), held_out, options(**settings), directory, progress=False)
    return model


def test_steps_change_the_linear_layers_of_blocks_by_low_ranks_and_nothing_else(tmp_path):
    """Against AdamW on A and B, written out, of a model whose weights are W + α/r · B A."""
    model = small().double()
    first = {name: weight.clone() for name, weight in model.state_dict().items()}
    trained(model, tmp_path, 2, clip_norm=None)
    last = model.state_dict()
    changed = {name for name in first if not torch.equal(first[name], last[name])}
    assert changed == {name for name in first if name.endswith(CHANGED)}
    for name in changed:
        assert torch.linalg.matrix_rank(last[name] - first[name], rtol=1e-9) <= RANK

    expected = small().double()
    with adapted(expected, RANK, 6.0, seed=0):  # for the first A alone
        drawn = {name: part for name, part in expected.named_modules() if isinstance(part, LowRank)}
        thin = {name: (part.a.detach().clone(), part.b.detach().clone()) for name, part in drawn.items()}
    owners = {}
    for name in thin:
        owner = name.removesuffix("low_rank")
        owners[name] = owner + ("in_proj_weight" if f"{owner}in_proj_weight" in first else "weight")
    leaves = [leaf.requires_grad_() for pair in thin.values() for leaf in pair]
    means, squares = [torch.zeros_like(leaf) for leaf in leaves], [torch.zeros_like(leaf) for leaf in leaves]
    state = expected.initial_state(4)
    for step in range(2):
        for name, (a, b) in thin.items():
            layer, _, weight = owners[name].rpartition(".")
            delattr(expected.get_submodule(layer), weight)
            setattr(expected.get_submodule(layer), weight, first[owners[name]] + 3.0 * (b @ a))
        batch = ToyStream().at(step)
        conditionals, state = expected.unroll(batch.x, state, batch.previous)
        gradients = torch.autograd.grad(-conditionals.log_prob(batch.x).mean(), leaves)
        state, rate = detach(state), learning_rate((step + 1) / 2, 0.01, 0.03)
        with torch.no_grad():
            for leaf, mean, square, gradient in zip(leaves, means, squares, gradients, strict=True):
                mean.lerp_(gradient, 0.1)
                square.lerp_(gradient**2, 0.01)
                unbiased, size = mean / (1 - 0.9 ** (step + 1)), (square / (1 - 0.99 ** (step + 1))).sqrt()
                leaf.mul_(1 - rate * 0.01).sub_(rate * unbiased / (size + 1e-8))
    for name, (a, b) in thin.items():
        merged = first[owners[name]] + 3.0 * (b @ a)
        torch.testing.assert_close(last[owners[name]], merged, rtol=1e-9, atol=1e-9)


def test_only_the_changes_have_moments_and_the_weights_are_an_ordinary_models(tmp_path):
    model = trained(small(), tmp_path, 2)
    names = {*model.state_dict()}
    saved = load_file(tmp_path / "model.safetensors")
    assert saved.keys() == names
    checkpoint = load_file(tmp_path / "checkpoint.safetensors")
    moments = [name for name in checkpoint if name.startswith("optimiser.")]
    assert moments
    assert all(".low_rank." in name for name in moments)
    for name, weight in small().state_dict().items():  # the weights that they change are as they were
        assert torch.equal(checkpoint[f"model.{name}"], weight)
    other = small()
    load_weights(tmp_path / "model.safetensors", other)
    assert all(torch.equal(other.state_dict()[name], saved[name]) for name in names)
    assert not any(isinstance(part, LowRank) for part in model.modules())


def test_a_resumed_run_ends_with_the_same_bits(tmp_path):
    def run(directory, **others):
        settings = options(steps=4, validate_every=2, **LORA)
        train(small(dropout=0.1), ToyStream(), held_out, settings, directory, progress=False, **others)

    run(tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", callbacks=[Stop()])
    run(tmp_path / "stopped", resume=True)
    assert remains(tmp_path / "straight") == remains(tmp_path / "stopped")


class Stop(Callback):
    """Breaks a run off after its first validation."""

    def figures(self, step, figures):
        if "validation/nats_per_element" in figures:
            raise KeyboardInterrupt


def test_a_broken_off_run_leaves_an_ordinary_model(tmp_path):
    model = small()
    flags = [weight.requires_grad for weight in model.parameters()]
    with pytest.raises(ValueError):
        trained(model, tmp_path, 2, learning_rate=1e30, clip_norm=None)
    assert [weight.requires_grad for weight in model.parameters()] == flags
    assert {*model.state_dict()} == {*small().state_dict()}


def test_what_cannot_be_changed_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"lora_rank: requires optimiser=\"adamw\", got muon"):
        TrainingOptions(lora_rank=2, optimiser="muon")
    with pytest.raises(ValueError, match="lora_alpha: requires lora_rank"):
        TrainingOptions(lora_alpha=2.0)
    with pytest.raises(ValueError, match="lora_rank: expected an integer >= 1, got 0"):
        TrainingOptions(lora_rank=0)
    with pytest.raises(ValueError, match=r"lora_rank: .* this model \(ToyModel\) has none: leave out lora_rank"):
        train(ToyModel(), ToyStream(), held_out, options(lora_rank=2), tmp_path / "run", progress=False)
    trained(small(), tmp_path / "old", 2)
    with pytest.raises(ValueError, match="lora_rank was 2 and is None"):
        train(small(), ToyStream(), held_out, options(steps=4, validate_every=2), tmp_path / "old", resume=True)
