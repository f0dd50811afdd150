"""Draws, searches and codes are those of the model in evaluation mode, whatever its mode.

In training mode a sample had no dropout in some models, all of it in others, and of the Transformer's a half.
"""

import copy

import pytest
import torch
from small_models import EVERY, LATENT, SEQUENCES

from chainrule.coding import decode, encode
from chainrule.decoding import beam_search, complete, greedy, sample_paths
from chainrule.models import RecurrentLM, TransformerLM
from chainrule.modes import evaluating, seed_torch
from chainrule.state import map_state


def generator():
    return torch.Generator().manual_seed(1)


def thinned(model):
    """The model in training mode, with dropout wherever it knows any, and one part in evaluation mode."""
    for part in model.modules():
        for name in vars(part):
            if "dropout" in name and isinstance(getattr(part, name), float):
                setattr(part, name, 0.5)
    model.train()
    list(model.modules())[-1].training = False
    return model


def modes(model):
    return [part.training for part in model.modules()]


@pytest.mark.parametrize("name", [*SEQUENCES, *LATENT])
def test_a_sample_in_training_mode_is_one_in_evaluation_mode(name):
    model, (x, *others) = EVERY[name]()
    model = thinned(model)
    before = modes(model)

    def draw(seed):
        torch.manual_seed(seed)
        if name in LATENT:
            return model.sample(3, generator())
        length = model.to_sequence(x).shape[1]
        return model.sample(3, others[0] if others else None, length=length, generator=generator())

    found, again = draw(5), draw(6)
    assert modes(model) == before
    model.eval()
    assert torch.equal(found, again)
    assert torch.equal(found, draw(7))


IMAGES_AND_COLUMNS = ("GatedPixelCNN", "MADE", "MultiScalePixelCNN", "PixelCNN", "PixelCNNPP", "PixelRNN", "TableMADE")


@pytest.mark.parametrize("name", IMAGES_AND_COLUMNS)
def test_dropout_changes_likelihoods_in_training_mode_alone(name):
    model, arguments = EVERY[name]()
    model = thinned(model).train()
    assert not torch.equal(model.log_prob(*arguments), model.log_prob(*arguments))
    model.eval()
    assert torch.equal(model.log_prob(*arguments), model.log_prob(*arguments))


LANGUAGE_MODELS = {
    "RecurrentLM": lambda: RecurrentLM(5, hidden_size=16, num_layers=2, embedding_size=4, ngram_order=2),
    "TransformerLM": lambda: TransformerLM(5, model_size=16, num_layers=2, num_heads=2),
}
METHODS = {
    "greedy": lambda model: greedy(model, max_length=9, eos=None)[0].sequences,
    "beam_search": lambda model: beam_search(model, beam_size=3, max_length=6, eos=0)[0].sequences,
    "complete": lambda model: (
        complete(
            model, torch.tensor([[0, 1, 0, 2]]), torch.tensor([[False, True, False, True]]), generator=generator()
        ).x
    ),
    "stream": lambda model: torch.stack(
        [x for x, _ in zip(model.stream(2, generator=generator()), range(9), strict=False)]
    ),
    "the codec": lambda model: decode(model, encode(model, torch.arange(10).view(2, 5) % 5)),
}


@pytest.mark.parametrize("model", LANGUAGE_MODELS)
@pytest.mark.parametrize("method", METHODS)
def test_decoding_in_training_mode_is_that_in_evaluation_mode(model, method):
    model = thinned(LANGUAGE_MODELS[model]())
    before = modes(model)
    found = METHODS[method](model)
    assert modes(model) == before
    torch.testing.assert_close(found, METHODS[method](model.eval()), rtol=0, atol=0)


def test_paths_in_training_mode_are_those_in_evaluation_mode():
    model, (_, context, _) = SEQUENCES["Seq2Seq"]()
    model = thinned(model)
    both = (model, copy.deepcopy(model).eval())
    found, expected = (sample_paths(each, context, paths=2, length=6, generator=generator()) for each in both)
    assert model.training
    assert torch.equal(found, expected)


def test_between_two_draws_of_a_stream_the_model_is_in_its_own_mode():
    model = thinned(LANGUAGE_MODELS["TransformerLM"]())
    before = modes(model)
    stream = model.stream(2)
    next(stream)
    assert modes(model) == before
    next(stream)
    assert modes(model) == before


def test_a_draw_that_fails_restores_the_mode():
    model = thinned(LANGUAGE_MODELS["RecurrentLM"]())
    with torch.no_grad():
        model.bias_ho.fill_(torch.nan)
    with pytest.raises(ValueError, match="got NaN"):
        model.sample(1, length=3)
    assert model.training


def test_an_interrupt_while_the_mode_is_set_restores_it():
    class Interrupted(torch.nn.Identity):
        def train(self, mode=True):
            raise KeyboardInterrupt

    model = torch.nn.Sequential(torch.nn.Identity(), Interrupted())
    with pytest.raises(KeyboardInterrupt), evaluating(model):
        pass
    assert modes(model) == [True, True, True]


def test_step_has_the_dropout_of_training_mode():
    model = thinned(LANGUAGE_MODELS["TransformerLM"]())
    first = model.step(None, model.initial_state(200))[0].logits
    assert first.std(0).mean() > 0.01
    assert map_state(torch.clone, model.eval().step(None, model.initial_state(200))[0].logits).std(0).mean() < 1e-6


@pytest.mark.parametrize("available", [False, True])
def test_torch_is_seeded_with_and_without_an_accelerator(available, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: available)
    torch.manual_seed(3)
    expected = torch.rand(4)
    seed_torch(3)
    assert torch.equal(torch.rand(4), expected)
