"""Sentences are translated in batches as they are alone, in their order, and empty ones stay empty."""

import numpy as np
import pytest
import torch

from chainrule._app.tasks.translate.searching import Translator, translations
from chainrule.data import WordVocabulary
from chainrule.data._ragged import Ragged
from chainrule.models import Seq2Seq

SOURCE, TARGET = WordVocabulary(["a", "b", "c", "d"]), WordVocabulary(["x", "y", "z"])


def model(**options):
    torch.manual_seed(1)
    made = Seq2Seq(len(SOURCE), len(TARGET), embedding_size=6, hidden_size=6, **options).double().eval()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return made


@pytest.mark.parametrize("beam_size", [1, 3])
def test_batches_by_length_give_each_sentence_what_it_gets_alone(beam_size):
    random, translator = np.random.default_rng(0), model()
    rows = [np.append(random.integers(2, 6, random.integers(0, 7)), 1) for _ in range(11)]
    options = {"eos": 1, "max_length": 9, "beam_size": beam_size, "n_best": beam_size, "length_penalty": 0.6}
    together = translations(translator, Ragged.of(rows), batch_size=4, **options)
    for row, result in zip(rows, together, strict=True):
        [alone] = translations(translator, Ragged.of([row]), **options)
        assert [part.tolist() for part in alone.sequences] == [part.tolist() for part in result.sequences]
        torch.testing.assert_close(alone.log_probs, result.log_probs, rtol=1e-12, atol=1e-12)


def test_empty_sentences_are_answered_empty_and_texts_keep_their_order():
    translator = Translator(model(), SOURCE, TARGET, 9)
    sources = ["a b", "", "c", "  ", "d d d"]
    found = translator.search(sources, beam_size=3, n_best=2)
    assert [len(answers) for answers in found] == [2, 1, 2, 1, 2]
    assert found[1][0].text == found[3][0].text == ""
    for place in (0, 2, 4):
        [alone] = translator.search([sources[place]], beam_size=3, n_best=2)
        assert [answer.text for answer in alone] == [answer.text for answer in found[place]]
    assert translator.search([]) == []


def test_an_unknown_word_is_the_source_word_that_was_attended_to_most():
    made = model()
    made.bias_ho.data[0] = 50.0  # it always says <unk>
    [[best]] = Translator(made, SOURCE, TARGET, 4).search(["b Anna c"])
    answer = "<unk> <unk> <unk> <unk>"
    weights = Translator(made, SOURCE, TARGET, 4).attention("b Anna c", answer)
    given, written = Translator(made, SOURCE, TARGET, 4).symbols("b Anna c", answer)
    assert given == ["b", "<unk>", "c", "<eos>"]
    assert written == ["<unk>"] * 4 + ["<eos>"]
    expected = [("b", "Anna", "c")[place] for place in weights[:4, :3].argmax(1).tolist()]
    assert best.text.split() == expected
    made = model(attention=None)
    made.bias_ho.data[0] = 50.0
    assert Translator(made, SOURCE, TARGET, 2).search(["b"])[0][0].text == "<unk> <unk>"
