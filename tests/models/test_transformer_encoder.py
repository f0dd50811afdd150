"""The tagger and the classifier with a Transformer as their encoder: blind to padding, and to nothing else."""

import pytest
import torch

from chainrule.models import SequenceClassifier, SequenceTagger

LENGTHS = torch.tensor([5, 0, 2])
WORDS = torch.tensor([[1, 2, 3, 4, 0], [0, 0, 0, 0, 0], [3, 1, 0, 0, 0]])


def spoiled():
    """Other words where padding stands."""
    return torch.where(torch.arange(5) < LENGTHS.unsqueeze(1), WORDS, 4)


def tagger():
    return SequenceTagger(3, 6, cell="transformer", embedding_size=4, hidden_size=8, num_layers=2, num_heads=2).eval()


def classifier(pooling):
    options = {"vocab_size": 6, "embedding_size": 4, "hidden_size": 8, "num_layers": 2, "num_heads": 2}
    return SequenceClassifier(3, cell="transformer", pooling=pooling, **options).double().eval()


def test_tags_of_a_row_are_those_it_has_alone():
    model = tagger().double()
    together = model.marginals(spoiled(), LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model.marginals(WORDS[row : row + 1, :length])
        torch.testing.assert_close(together[row, :length], alone[0], rtol=0, atol=1e-10)


def test_every_word_can_change_every_tag():
    model = tagger().double()
    before = model.marginals(WORDS[:1])
    for place in range(5):
        other = WORDS[:1].clone()
        other[0, place] = 5
        assert ((model.marginals(other) - before).abs().amax(2) > 0).all()


@pytest.mark.parametrize("pooling", ["last", "mean+max", "attention"])
def test_the_label_of_a_row_is_the_one_it_has_alone(pooling):
    model = classifier(pooling)
    together = model({"inputs": spoiled(), "lengths": LENGTHS}).probs
    for row, length in enumerate(LENGTHS.tolist()):
        if length:
            torch.testing.assert_close(together[row], model(WORDS[row : row + 1, :length]).probs[0], rtol=0, atol=1e-10)
    torch.testing.assert_close(together[1], torch.full((3,), 1 / 3, dtype=torch.float64))  # nothing read: the prior


def test_the_order_of_words_counts():
    model = classifier("mean")
    assert (model(WORDS[:1]).logits - model(WORDS[:1].flip(1)).logits).abs().max() > 1e-6


def test_every_weight_of_the_encoder_is_trained():
    model = classifier("last").train()
    model.log_prob(torch.tensor([0, 1, 2]), {"inputs": WORDS, "lengths": LENGTHS}).sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.encoder.parameters())


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="bidirectional: a Transformer reads whole rows"):
        SequenceClassifier(2, vocab_size=3, cell="transformer", bidirectional=False)
    with pytest.raises(ValueError, match="model_size: expected a multiple of num_heads"):
        SequenceTagger(2, 3, cell="transformer", hidden_size=6)
