"""Every model under `torch.func` and `torch.export`: checks of values are left out where the values are not known."""

import pytest
import torch
from small_models import EVERY, LATENT, pixels
from torch import nn
from torch.func import functional_call, grad, vmap

from chainrule import models
from chainrule.kernels._transforms import values_are_known
from chainrule.layers import GRU, LSTM, RNN, CharacterEncoder
from chainrule.state import map_state

# Further ways to a likelihood, with checks of their own.
CONDITIONED = {
    "MADE with labels": lambda: (models.MADE(4, [8], context_size=3), (pixels(3, 4).float(), torch.arange(3))),
    "MADE with features": lambda: (models.MADE(4, [8], context_size=2), (pixels(3, 4).float(), torch.randn(3, 2))),
    "GatedPixelCNN with labels": lambda: (
        models.GatedPixelCNN((1, 3, 3), 3, channels=4, layers=1, num_classes=3),
        (pixels(3, 1, 3, 3, levels=3), torch.arange(3)),
    ),
    "WaveNet with labels": lambda: (
        models.WaveNet(levels=4, channels=4, layers_per_block=2, skip_channels=4, num_classes=3),
        (pixels(3, 6, levels=4), torch.arange(3)),
    ),
    "RecurrentLM with clusters": lambda: (
        models.RecurrentLM(30, "lstm", embedding_size=8, hidden_size=8, tie_weights=True, cutoffs=[5, 12]),
        (pixels(3, 6, levels=30), None, torch.tensor([6, 0, 4])),
    ),
    "TransformerLM with learned positions": lambda: (
        models.TransformerLM(4, model_size=8, num_layers=1, num_heads=2, position="learned"),
        (pixels(3, 6, levels=4), None, torch.tensor([6, 0, 4])),
    ),
}
MODELS = {**EVERY, **CONDITIONED}
# One of each way to compute; torch traces a model for seconds, so the others are in `make test-all`.
TRACED = ("GatedPixelCNN", "MADE", "RecurrentLM", "Seq2Seq", "TransformerLM", "VAE", "WaveNet")
WITH_WEIGHTS = [name for name in MODELS if name not in ("LinearForecaster", "NgramLM")]


class Objective(nn.Module):
    """The likelihood of a model as its `forward`, or the training objective of a latent model."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, context=None, lengths=None):
        objective = self.model.training_objective if hasattr(self.model, "elbo") else self.model.log_prob
        return objective(x, context, lengths)


def objective_and_rows(name):
    """A model in evaluation mode, float64, with its rows: x, context and lengths."""
    model, arguments = MODELS[name]()
    x, context, lengths = (*map_state(doubled, arguments), None, None)[:3]
    return Objective(model.double().eval()), x, context, lengths


def doubled(leaf):
    return leaf.double() if leaf.is_floating_point() else leaf


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # operators that torch batches one by one
@pytest.mark.parametrize("name", WITH_WEIGHTS)
def test_gradients_of_each_row_add_up_to_that_of_the_batch(name):
    whole, *rows = objective_and_rows(name)
    weights = {name: weight for name, weight in whole.named_parameters() if weight.requires_grad}

    def of_one_row(weights, *row):
        return functional_call(whole, weights, map_state(lambda leaf: leaf.unsqueeze(0), tuple(row))).sum()

    axes = (None, *(None if part is None else 0 for part in rows))
    each = vmap(grad(of_one_row), axes, randomness="different")(weights, *rows)
    if name in LATENT:  # other codes are drawn
        assert all(gradient.isfinite().all() for gradient in each.values())
        return
    together = torch.autograd.grad(whole(*rows).sum(), list(weights.values()))
    for gradients, total in zip(each.values(), together, strict=True):
        torch.testing.assert_close(gradients.sum(0), total, rtol=0, atol=1e-9)  # float64, sums in another order


@pytest.mark.parametrize(
    "name", [name if name in TRACED else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_an_exported_graph_is_the_model(name):
    whole, *rows = objective_and_rows(name)
    graph = torch.export.export(whole, tuple(rows), strict=False).module()
    found, expected = graph(*rows), whole(*rows)
    assert found.shape == expected.shape
    if name not in LATENT:
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", [RNN, LSTM, GRU])
def test_batched_lengths_are_read_as_any_others(kind, bidirectional):
    layer, lengths = kind(3, 4, 2, bidirectional=bidirectional).double(), torch.tensor([5, 0, 2])
    x = torch.randn(3, 5, 3, dtype=torch.float64)

    def of_one_row(x, length):
        output, state = layer(x.unsqueeze(0), None, length.unsqueeze(0))
        return output.squeeze(0), map_state(lambda leaf: leaf.squeeze(0), state)

    found, expected = vmap(of_one_row)(x, lengths), layer(x, None, lengths)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["lstm", "cnn"])
def test_batched_words_are_read_as_any_others(kind):
    encoder = CharacterEncoder(5, output_size=4, kind=kind)
    characters = torch.tensor([[[1, 2, 3], [1, 2, 0]], [[0, 0, 0], [1, 2, 3]]])
    torch.testing.assert_close(vmap(encoder)(characters), encoder(characters))


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated:DeprecationWarning")
def test_values_are_known_unless_batched_traced_or_on_the_meta_device():
    seen = []

    def looked_at(x):
        seen.append(values_are_known(x * 2))
        return x.sum()

    x = torch.ones(3)
    looked_at(x), grad(looked_at)(x)
    assert seen == [True] * 2
    vmap(looked_at)(x), vmap(grad(looked_at))(x), looked_at(x.to("meta"))
    torch.jit.trace(looked_at, x, check_trace=False)
    assert seen[2:] == [False] * 4


def test_values_that_are_known_are_checked_under_torch_func():
    model, x = models.WaveNet(levels=4, channels=4, layers_per_block=2, skip_channels=4, num_classes=2), pixels(2, 6)
    whole, labels = Objective(model), torch.tensor([0, 2])
    weights = dict(whole.named_parameters())
    stacked = {name: weight.expand(2, *weight.shape) for name, weight in weights.items()}
    for call in (
        lambda: grad(lambda weights: functional_call(whole, weights, (x, labels)).sum())(weights),
        lambda: vmap(lambda weights: functional_call(whole, weights, (x, labels)))(stacked),
    ):
        with pytest.raises(ValueError, match=r"^context: expected labels in \[0, 2\), got 0 to 2"):
            call()
