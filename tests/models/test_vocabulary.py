"""Symbols outside a model's vocabulary are named, wherever they come in."""

import pytest
import torch

from chainrule import models

V = 5
TARGET = torch.tensor([[0, 1]])


def source(tokens):
    return {"tokens": tokens, "lengths": torch.tensor([2])}


def tagger():
    return models.SequenceTagger(3, V, hidden_size=4, embedding_size=4, character_encoder="none")


def recurrent():
    return models.RecurrentLM(V, hidden_size=4)


def transformer():
    return models.TransformerLM(V, model_size=4, num_layers=1, num_heads=1)


def sound():
    return models.WaveNet(V, channels=4, blocks=1, layers_per_block=2)


CALLS = {
    "tagger": lambda x: tagger()(x),
    "classifier": lambda x: models.SequenceClassifier(2, V, hidden_size=4, embedding_size=4)({"inputs": x}),
    "bags": lambda x: models.SequenceClassifier(2, V, hidden_size=4, embedding_size=4)({"inputs": x.unsqueeze(2)}),
    "translator": lambda x: models.Seq2Seq(V, V, hidden_size=4, embedding_size=4)(TARGET, source(x)),
    "transformer translator": lambda x: models.TransformerSeq2Seq(V, V, model_size=4, num_layers=1, num_heads=1)(
        TARGET, source(x)
    ),
    "prefix": lambda x: recurrent().sample(1, length=4, prefix=x),
    "prefix of a transformer": lambda x: transformer().sample(1, length=4, prefix=x),
    "prefix of sound": lambda x: sound().sample(1, length=4, prefix=x),
}


READ_AS_NOTHING = {("classifier", -1), ("bags", -1)}  # negative symbols are padding there


@pytest.mark.parametrize("name", CALLS)
def test_symbols_of_the_vocabulary_are_read(name):
    CALLS[name](torch.tensor([[1, V - 1]]))


@pytest.mark.parametrize(("name", "wrong"), sorted({(name, x) for name in CALLS for x in (V, -1)} - READ_AS_NOTHING))
def test_a_symbol_outside_the_vocabulary_is_named(name, wrong):
    named = rf"^(words|inputs|tokens|x|prefix): expected symbols in \[0, {V}\), got {wrong}: "
    with pytest.raises(ValueError, match=named):
        CALLS[name](torch.tensor([[1, wrong]]))


@pytest.mark.parametrize(("name", "wrong"), sorted(READ_AS_NOTHING))
def test_a_classifier_reads_negative_symbols_as_nothing(name, wrong):
    CALLS[name](torch.tensor([[1, wrong]]))


def test_symbols_past_the_end_of_a_row_may_be_anything():
    context = {"tokens": torch.tensor([[1, 2], [3, 99]]), "lengths": torch.tensor([2, 1])}
    model = models.Seq2Seq(V, V, hidden_size=4, embedding_size=4).eval()
    assert torch.isfinite(model.log_prob(TARGET.expand(2, 2), context)).all()
