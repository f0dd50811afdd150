"""Models that visit an image pixel by pixel: the contract, causality, and from caches what whole passes give."""

from functools import partial
from itertools import islice

import pytest
import torch
from torch.nn.utils.prune import l1_unstructured

from chainrule.heads import Categorical
from chainrule.models import GatedPixelCNN, MultiScalePixelCNN, PixelCNN, PixelCNNPP, PixelRNN
from chainrule.state import load_state, save_state, select
from chainrule.testing._stepping import check_step_equals_forward

ROW, DIAGONAL = (partial(PixelRNN, kind=kind) for kind in ("row", "diagonal"))
KINDS = pytest.mark.parametrize(
    "kind", [PixelCNN, GatedPixelCNN, ROW, DIAGONAL], ids=["PixelCNN", "GatedPixelCNN", "row", "diagonal"]
)
CONVOLUTIONS = pytest.mark.parametrize("kind", [PixelCNN, GatedPixelCNN])
SHAPES = pytest.mark.parametrize(("shape", "levels"), [((1, 5, 4), 2), ((3, 3, 3), 5)])


def model(kind, shape=(3, 3, 3), levels=5, **options):
    made = kind(shape, levels, channels=8, layers=2, **{"first_kernel_size": 5, **options}).double().eval()
    for parameter in made.parameters():  # conditionals that depend strongly on what was read
        torch.nn.init.normal_(parameter, std=max(parameter[0].numel(), 1) ** -0.5 if parameter.dim() > 1 else 0.5)
    return made


def small(kind, shape, levels=2, **options):
    sizes = {PixelCNNPP: {"channels": 6, "layers": 1, "resolutions": 2, "components": 2}}
    sizes |= {MultiScalePixelCNN: {"channels": 6, "layers": 1, "components": 2}}
    sizes |= {key: {"channels": 8, "layers": 2, "kernel_size": 3} for key in (PixelCNN, GatedPixelCNN)}
    return kind(shape, levels, **sizes.get(kind, {"channels": 8, "layers": 2, "first_kernel_size": 3}) | options)


TWO_LABELS = {"num_classes": 2, "first_kernel_size": 3, "dropout": 0.3}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "shape", "levels", "options"),
    [
        *((kind, (1, 5, 4), 2, {"first_kernel_size": 3}) for kind in (PixelCNN, GatedPixelCNN)),
        *((kind, (1, 4, 4), 3, {"channels": 6, "num_classes": 3}) for kind in (PixelCNN, GatedPixelCNN)),
        (PixelCNN, (3, 3, 3), 3, {"channels": 10}),  # uneven groups
        (GatedPixelCNN, (3, 3, 3), 3, {"channels": 7}),
        (PixelCNN, (2, 2, 5), 2, TWO_LABELS),
        (GatedPixelCNN, (2, 2, 5), 2, TWO_LABELS | {"channels": 5, "kernel_size": 5}),
        *((kind, (1, 3, 3), 2, {}) for kind in (ROW, DIAGONAL)),
        *((kind, (1, 2, 4), 2, {"channels": 6, "num_classes": 3}) for kind in (ROW, DIAGONAL)),
        *((kind, (3, 2, 2), 2, {}) for kind in (ROW, DIAGONAL)),
        *((kind, (3, 2, 2), 2, {"channels": 6, "num_classes": 2, "dropout": 0.3}) for kind in (ROW, DIAGONAL)),
        (PixelCNNPP, (1, 3, 4), 2, {"num_classes": 3}),
        (PixelCNNPP, (3, 2, 2), 2, {"num_classes": 2}),
        (PixelCNNPP, (2, 5, 1), 3, {"resolutions": 3, "dropout": 0.0}),
        (MultiScalePixelCNN, (1, 4, 3), 2, {}),
        (MultiScalePixelCNN, (3, 2, 2), 256, {"num_classes": 3, "dropout": 0.3}),
        (MultiScalePixelCNN, (2, 1, 5), 3, {}),
    ],
)
def test_every_variant_keeps_the_contract(keeps_contract, kind, shape, levels, options):
    made, x = small(kind, shape, levels, **options), torch.randint(levels, (3, *shape))
    labels = None if made.num_classes is None else torch.arange(3) % made.num_classes
    keeps_contract(made, x, labels)


def recomputed(kind, n, labels, generator, prefix=None):
    """`sample` by one whole pass over the image for each element."""
    x = torch.zeros(n, kind.sequence_length, dtype=torch.long)
    start = 0 if prefix is None else prefix.shape[1]
    x[:, :start] = 0 if prefix is None else prefix
    for t in range(start, kind.sequence_length):
        logits = kind(kind.from_sequence(x), labels).logits
        rows = torch.stack([kind.to_sequence(scores) for scores in logits.unbind(-1)], -1)
        x[:, t] = Categorical(rows[:, t]).sample(generator=generator)
    return kind.from_sequence(x)


@KINDS
@SHAPES
def test_a_sample_is_value_for_value_the_one_of_full_recomputation(kind, shape, levels):
    made, labels = model(kind, shape, levels, num_classes=3), torch.tensor([0, 2, 1, 1])
    x = made.sample(4, labels, generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        assert torch.equal(x, recomputed(made, 4, labels, torch.Generator().manual_seed(7)))
    assert len(x.unique()) == levels


@KINDS
def test_a_completion_is_value_for_value_the_one_of_full_recomputation(kind):
    made, x = model(kind), torch.randint(5, (4, 3, 3, 3))
    for known in (1, 9, 14, 18, 26):
        prefix = made.to_sequence(x)[:, :known]
        completed = made.sample(4, prefix=prefix, generator=torch.Generator().manual_seed(7))
        with torch.no_grad():
            assert torch.equal(completed, recomputed(made, 4, None, torch.Generator().manual_seed(7), prefix))


@CONVOLUTIONS
def test_known_rows_are_read_in_one_pass(kind, monkeypatch):
    made, x = model(kind, (1, 6, 4), 2), torch.randint(2, (1, 1, 6, 4))
    predicted = []
    predict = kind._predict
    monkeypatch.setattr(kind, "_predict", lambda *arguments: predicted.append(1) or predict(*arguments))
    x = made.to_sequence(x)
    state = made.unroll(x, made.initial_state(1))[1]
    assert not predicted
    state = made.unroll(x[:, :-1], made.initial_state(1))[1]
    assert len(predicted) == 3  # a row that is not whole
    made.step(x[:, -2], state)
    assert len(predicted) == 4


@KINDS
def test_the_first_rows_of_an_image_are_completed(kind):
    made, x = model(kind), torch.randint(5, (2, 3, 3, 3))
    completed = made.sample(2, prefix=made.to_sequence(x[:, :, :2]), generator=torch.Generator().manual_seed(0))
    assert torch.equal(completed[:, :, :2], x[:, :, :2])


@KINDS
def test_a_stepper_is_step_and_leaves_the_state_it_was_given_alone(kind):
    made = model(kind)
    stepper, x = made.prepare().step, made.to_sequence(torch.randint(5, (2, 3, 3, 3)))
    state, x_prev = made.initial_state(2), None
    with torch.no_grad():
        for t in range(x.shape[1]):
            expected, following = made.step(x_prev, state)
            for _ in range(2):  # twice from one state
                got, state_after = stepper(x_prev, state)
                assert torch.equal(got.logits, expected.logits)
            state, x_prev = (following if t % 2 else state_after), x[:, t]


@KINDS
def test_a_state_can_be_forked_and_saved_anywhere(kind, tmp_path):
    made, x = model(kind), torch.randint(5, (2, 3, 3, 3))
    x = made.to_sequence(x)
    for known in (1, 5, 9, 20):
        state = made.unroll(x[:, :known], made.initial_state(2))[1]
        save_state(state, tmp_path / "state.safetensors")
        rows = torch.tensor([1, 0, 1])
        forked = select(load_state(tmp_path / "state.safetensors"), rows)
        expected = made.unroll(x[:, known:], state, x[:, known - 1])[0]
        got = made.unroll(x[rows, known:], forked, x[rows, known - 1])[0]
        torch.testing.assert_close(got.logits, expected.logits[rows], rtol=0, atol=1e-12)


@KINDS
def test_a_stream_ends_with_the_image(kind):
    made = model(kind)
    assert len(list(made.stream(1))) == 27
    assert len(list(made.stream(1, prefix=torch.zeros(20, dtype=torch.long)))) == 7


@KINDS
def test_pixels_may_come_one_at_a_time(kind):
    made = model(kind)
    elements = list(islice(made.stream(2, generator=torch.Generator().manual_seed(1)), 12))
    assert all(element.shape == (2,) for element in elements)
    whole = made.to_sequence(made.sample(2, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(torch.stack(elements, 1), whole[:, :12])


@pytest.mark.parametrize("kind", [PixelCNN, GatedPixelCNN, ROW, PixelCNNPP, MultiScalePixelCNN])
def test_pruned_layers_train_and_draw(kind):
    """Hooks that mask weights run at every call of a layer, or the second backward pass raises."""
    made = small(kind, (1, 3, 3))
    pruned = [layer for layer in made.modules() if getattr(layer, "_parameters", {}).get("weight") is not None]
    pruned = [layer for layer in pruned if layer.weight.dim() > 1]
    for layer in pruned:
        l1_unstructured(layer, "weight", 0.5)
    x = torch.randint(0, 2, (3, 1, 3, 3))
    for _ in range(2):
        made.log_prob(x).sum().backward()
    assert all(not layer.weight_orig.grad[layer.weight_mask == 0].any() for layer in pruned)
    assert check_step_equals_forward(made, x).ok
