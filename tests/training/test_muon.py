import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from chainrule.heads import Column
from chainrule.layers import MultiHeadAttention
from chainrule.layers._multi_head_attention import WindowAttention
from chainrule.layers._transformer_stack import FeedForward
from chainrule.models import (
    MADE,
    Autoencoder,
    ConvNet,
    GatedPixelCNN,
    RecurrentLM,
    Seq2Seq,
    SequenceTagger,
    SwinTransformer,
    TableMADE,
    TransformerLM,
    TransformerSeq2Seq,
    VisionTransformer,
    WaveNet,
)
from chainrule.training import make_optimiser
from chainrule.training._optimiser import Muon, hidden_matrices, moments, nearly_orthogonal, restore_moments


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**31))
def test_five_iterations_keep_singular_vectors_and_draw_values_towards_one(rows, columns, seed):
    torch.manual_seed(seed)
    matrix = torch.randn(rows, columns, dtype=torch.float64)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    found = left.mT @ nearly_orthogonal(matrix[None], 5)[0] @ right.mT
    assert torch.allclose(found, found.diagonal().diag(), atol=1e-10)
    large = values > 0.05 * values.norm()
    assert ((found.diagonal()[large] > 0.6) & (found.diagonal()[large] < 1.25)).all()


def test_a_step_is_the_written_equation_for_each_gate():
    layer = RecurrentLM(vocab_size=5, hidden_size=6, embedding_size=3).double()
    optimiser = make_optimiser(layer, 0.01, 0.1, "muon")
    weight = layer.recurrent.weight_hh_l0
    expected, momentum = weight.detach().clone(), torch.zeros_like(weight)
    directions = torch.zeros_like(weight)
    for step in range(5):
        torch.manual_seed(step)
        weight.grad = torch.randn_like(weight)
        momentum = 0.95 * momentum + 0.05 * weight.grad
        if step % 2 == 0:
            ahead = 0.05 * weight.grad + 0.95 * momentum
            for rows in torch.arange(24).split(6):
                x = ahead[rows] / ahead[rows].norm()
                for _ in range(3):
                    a = x @ x.T
                    x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
                directions[rows] = x
        expected = expected * (1 - 0.01 * 0.1) - 0.01 * 0.2 * 6**0.5 * directions
        optimiser.step()
    assert torch.allclose(weight, expected, rtol=0, atol=1e-13)


def test_a_whole_matrix_moves_as_by_the_optimiser_of_torch():
    ours, theirs = nn.Parameter(torch.randn(8, 16)), nn.Parameter(torch.empty(8, 16))
    theirs.data.copy_(ours.data)
    optimiser = Muon([], {ours: [8]}, weight_decay=0.1, lr=0.1)
    reference = torch.optim.Muon([theirs], 0.1, 0.1, ns_steps=3, adjust_lr_fn="match_rms_adamw")
    gradient = torch.randn(8, 16)
    for _ in range(4):  # a gradient that stays: the direction of every second step is that of every step
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        optimiser.step()
        reference.step()
    assert (ours - theirs).norm() < 0.02 * theirs.norm()  # torch's iteration is in bfloat16


def test_weights_that_are_not_hidden_matrices_take_the_steps_of_adamw():
    model, other = (RecurrentLM(vocab_size=5, hidden_size=6, embedding_size=3) for _ in range(2))
    other.load_state_dict(model.state_dict())
    for each, kind in ((model, "muon"), (other, "adamw")):
        optimiser = make_optimiser(each, 0.01, 0.1, kind)
        for seed in range(3):
            torch.manual_seed(seed)
            for weight in each.parameters():
                weight.grad = torch.randn_like(weight)
            optimiser.step()
    differing = {
        name for name, weight in model.state_dict().items() if not torch.equal(weight, other.state_dict()[name])
    }
    assert differing == {"recurrent.weight_ih_l0", "recurrent.weight_hh_l0"}


def test_hidden_matrices_of_a_transformer_are_those_of_its_blocks():
    model = TransformerLM(vocab_size=7, model_size=8, num_layers=1, num_heads=4, num_kv_heads=2, ngram_order=2)
    names = {id(weight): name for name, weight in model.named_parameters()}
    found = {names[id(weight)].rpartition("blocks.0.")[2]: rows for weight, rows in hidden_matrices(model).items()}
    assert sorted(found.values()) == sorted([[8, 4, 4], [8], [32], [8]])
    assert not [name for name in found if "embedding" in name or "ngram" in name or name == "weight_ho"]


def test_the_halves_of_a_gated_feed_forward_network_are_two_blocks():
    model = TransformerLM(vocab_size=7, model_size=8, num_layers=1, num_heads=4, activation="swiglu")
    (weight,) = (part.linear1.weight for part in model.modules() if isinstance(part, FeedForward))
    assert hidden_matrices(model)[weight] == [21, 21]


def test_hidden_matrices_of_a_translator_are_those_of_its_encoder_too():
    model = TransformerSeq2Seq(7, 9, model_size=8, num_layers=1, num_heads=2, feed_forward_size=12)
    names = {id(weight): name for name, weight in model.named_parameters()}
    found = {names[id(weight)]: rows for weight, rows in hidden_matrices(model).items()}
    attention = {"in_proj_weight": [8, 8, 8], "out_proj.weight": [8]}
    network = {"feed_forward.linear1.weight": [12], "feed_forward.linear2.weight": [8]}
    block = {f"mixer.{name}": rows for name, rows in attention.items()} | network
    reading = {f"cross.{name}": rows for name, rows in attention.items()}
    expected = {f"encoder.blocks.0.{name}": rows for name, rows in block.items()}
    assert found == expected | {f"blocks.0.{name}": rows for name, rows in (block | reading).items()}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (
            WaveNet(16, channels=4, blocks=1, layers_per_block=3, skip_channels=6),
            {"stack.residual": [4, 4], "head.skip.weight": [6], "head.hidden.weight": [6]}
            | {f"stack.layers.{layer}.weight": [4, 4] for layer in range(3)},
        ),
        (
            ConvNet((1, 8, 8), 3, channels=4, stages=2),
            {"first.weight": [4], "blocks.0.conv1.weight": [4], "blocks.0.conv2.weight": [4]}
            | {f"blocks.1.{part}.weight": [8] for part in ("conv1", "conv2", "shortcut")},
        ),
        (
            Autoencoder((1, 4, 4), 2, 2, network="convolutional", hidden_size=6, channels=4),
            {"encoder.0.layers.0.weight": [4, 4], "encoder.0.layers.3.weight": [6, 6], "encoder.1.weight": [2]}
            | {"decoder.layers.0.weight": [6, 6], "decoder.layers.2.weight": [16, 16]}
            | {"decoder.layers.5.weight": [4]},
        ),
        (
            GatedPixelCNN((1, 6, 6), 2, channels=4, layers=1),
            {f"{stacks}.{part}.weight": rows for stacks in ("first", "layers.0") for part, rows in
             {"horizontal": [4, 4], "residual": [4], "vertical": [8], "vertical_to_horizontal": [8]}.items()}
            | {"head.hidden.weight": [4]},
        ),
    ],
)  # fmt: skip
def test_kernels_of_convolutions_are_hidden_matrices(model, expected):
    names = {id(weight): name for name, weight in model.named_parameters()}
    assert {names[id(weight)]: rows for weight, rows in hidden_matrices(model).items()} == expected


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_kernel_takes_the_step_of_its_matrix(memory_format):
    kernel = nn.Parameter(torch.randn(6, 4, 3, 2).to(memory_format=memory_format))
    matrix = nn.Parameter(kernel.detach().reshape(6, -1).clone())
    for seed in range(3):
        torch.manual_seed(seed)
        kernel.grad = torch.randn(6, 4, 3, 2).to(memory_format=memory_format)
        matrix.grad = kernel.grad.reshape(6, -1).clone()
        if not seed:
            optimisers = [Muon([], {weight: [2, 4]}, weight_decay=0.1, lr=0.1) for weight in (kernel, matrix)]
        for optimiser in optimisers:
            optimiser.step()
    torch.testing.assert_close(kernel.detach().reshape(6, -1), matrix.detach())


@pytest.mark.parametrize("attention", ["multiplicative", "additive"])
def test_hidden_matrices_of_a_recurrent_translator_are_those_of_its_attention_too(attention):
    model = Seq2Seq(7, 9, embedding_size=4, hidden_size=6, attention=attention)
    hidden = hidden_matrices(model)
    left_out = {name for name, weight in model.named_parameters() if weight.dim() == 2 and weight not in hidden}
    score = {"attention.weight_score"} if attention == "additive" else set()
    assert left_out == {"embedding.weight", "source_embedding.weight"} | score


def test_hidden_matrices_are_the_same_inside_a_mean_of_models():
    model = SequenceTagger(7, 5, 3, embedding_size=4, hidden_size=6)
    alone = {name for name, weight in model.named_parameters() if weight in hidden_matrices(model)}
    inside = nn.ModuleDict({"member": model})
    assert {name for name, weight in inside.named_parameters() if weight in hidden_matrices(inside)} == {
        f"member.{name}" for name in alone
    }
    assert "output.weight" not in alone


@pytest.mark.parametrize(
    ("model", "left_out"),
    [
        (VisionTransformer((1, 8, 8), 3, model_size=8, num_layers=2, num_heads=2), {"positions", "output"}),
        (SwinTransformer((1, 8, 8), 3, model_size=8, num_heads=2), {"bias", "output"}),
    ],
)
def test_hidden_matrices_of_a_classifier_of_images_are_those_of_its_blocks(model, left_out):
    hidden = hidden_matrices(model)
    others = {
        name.split(".")[-2 if name.endswith("weight") else -1]
        for name, weight in model.named_parameters()
        if weight.dim() > 1 and weight not in hidden
    }
    assert others == left_out
    assert all(sum(rows) == len(weight) for weight, rows in hidden.items())
    attended = [weight for weight, rows in hidden.items() if len(rows) == 3]
    assert len(attended) == sum(isinstance(part, MultiHeadAttention | WindowAttention) for part in model.modules())


def test_a_closure_is_refused():
    optimiser = make_optimiser(RecurrentLM(vocab_size=5, hidden_size=6), 0.01, 0.1, "muon")
    with pytest.raises(ValueError, match="closure"):
        optimiser.step(lambda: None)


@pytest.mark.parametrize(
    "model", [MADE(4, [8, 6], direct=True), TableMADE([Column("categorical", categories=2)] * 4, 8)]
)
def test_hidden_matrices_of_a_dense_network_are_those_that_make_no_prediction(model):
    assert set(hidden_matrices(model)) == {layer.weight for layer in model.hidden}
    assert {name for name, weight in model.named_parameters() if weight.dim() > 1} == {
        "hidden.0.weight", "hidden.1.weight", "output.weight", "direct.weight"
    }  # fmt: skip


def test_a_model_without_hidden_matrices_is_refused():
    with pytest.raises(ValueError, match="expected adamw"):
        make_optimiser(MADE(4, []), 0.01, 0.1, "muon")


def test_restored_momentum_continues_as_the_original_does():
    first = RecurrentLM(vocab_size=5, hidden_size=6, embedding_size=3)
    second = RecurrentLM(vocab_size=5, hidden_size=6, embedding_size=3)
    optimisers = [make_optimiser(model, 0.01, 0.1, "muon") for model in (first, second)]

    def update(place, seed):
        torch.manual_seed(seed)
        for weight in (first, second)[place].parameters():
            weight.grad = torch.randn_like(weight)
        optimisers[place].step()

    update(0, 1)
    update(0, 2)
    update(0, 3)  # the next step keeps the direction of this one
    second.load_state_dict(first.state_dict())
    kept = {name: value.clone() for name, value in moments(optimisers[0], first).items()}
    restore_moments(optimisers[1], second, kept)
    update(0, 4)
    update(1, 4)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    kept["momentum.recurrent.weight_hh_l0"] = torch.zeros(3)
    with pytest.raises(ValueError, match="belongs to another model"):
        restore_moments(optimisers[1], second, kept)
