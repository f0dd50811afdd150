"""The tagger and the classifier with a Transformer as their encoder: blind to padding, and to nothing else."""

import pytest
import torch

from chainrule.models import SequenceClassifier, SequenceTagger

LENGTHS = torch.tensor([5, 0, 2])
WORDS = torch.tensor([[1, 2, 3, 4, 0], [0, 0, 0, 0, 0], [3, 1, 0, 0, 0]])


def tagger():
    return SequenceTagger(3, 6, cell="transformer", embedding_size=4, hidden_size=8, num_layers=2, num_heads=2).eval()


def classifier(pooling):
    options = {"vocab_size": 6, "embedding_size": 4, "hidden_size": 8, "num_layers": 2, "num_heads": 2}
    return SequenceClassifier(3, cell="transformer", pooling=pooling, **options).double().eval()


def test_a_tagger_keeps_the_contract(keeps_contract):
    keeps_contract(tagger(), WORDS % 3, WORDS, LENGTHS)


@pytest.mark.parametrize("pooling", ["last", "mean+max", "attention"])
def test_a_classifier_keeps_the_contract(keeps_contract, pooling):
    keeps_contract(classifier(pooling), torch.arange(3), {"inputs": WORDS, "lengths": LENGTHS})


def test_every_word_can_change_every_tag():
    model = tagger().double()
    before = model.marginals(WORDS[:1])
    for place in range(5):
        other = WORDS[:1].clone()
        other[0, place] = 5
        assert ((model.marginals(other) - before).abs().amax(2) > 0).all()


def test_the_order_of_words_counts():
    model = classifier("mean")
    assert (model(WORDS[:1]).logits - model(WORDS[:1].flip(1)).logits).abs().max() > 1e-6


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="bidirectional: a Transformer reads whole rows"):
        SequenceClassifier(2, vocab_size=3, cell="transformer", bidirectional=False)
    with pytest.raises(ValueError, match="model_size: expected a multiple of num_heads"):
        SequenceTagger(2, 3, cell="transformer", hidden_size=6)
