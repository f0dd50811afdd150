"""How a translator is trained where the user leaves it open, and what it finds."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch

from chainrule.data import WordVocabulary
from chainrule.models import Seq2Seq
from chainrule_app.readers.ragged import Ragged
from chainrule_app.tasks.config import Duration, RunConfig, Settled
from chainrule_app.tasks.translate.prediction import Translator, translations
from chainrule_app.tasks.translate.run import TranslateRun
from chainrule_app.tasks.translate.task import TRANSFORMER_SIZES, resolve_training


def planned(passes: float | None = None, given: frozenset[str] = frozenset(), **options: int) -> RunConfig:
    settled = None if passes is None else Settled(["model_size"], passes)
    asked = TranslateRun.MODELS["transformer"].options(**options)
    training, duration = TranslateRun.Training(), Duration(budget=600.0)
    return resolve_training(RunConfig({}, None, "transformer", asked, duration, training, settled=settled), given, 450)


def test_a_smaller_model_learns_at_a_higher_rate_and_more_passes_drop_more():
    sizes = [192, *(size["model_size"] for size in TRANSFORMER_SIZES.smaller)]
    rates = [planned(20, model_size=size).training.learning_rate for size in sizes]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1]
    dropouts = [planned(passes).options.dropout for passes in (0.5, 2, 8, 40)]
    assert dropouts == sorted(dropouts)
    assert dropouts[0] < dropouts[-1] == 0.3


def test_feed_forward_networks_are_twice_as_wide_as_the_model():
    assert [planned(20, model_size=size).options.feed_forward_size for size in (64, 512)] == [128, 1024]
    for size in TRANSFORMER_SIZES.smaller:
        assert size["feed_forward_size"] == 2 * size["model_size"]


def test_a_slow_machine_takes_smaller_batches_and_a_longer_warm_up():
    fast, slow = planned(30).training, planned(1.5).training
    assert (fast.batch_size, slow.batch_size) == (64, 32)
    assert fast.warmup < slow.warmup <= 0.2


def test_what_the_user_wrote_stays():
    given = frozenset({"learning_rate", "warmup", "batch_size", "dropout", "feed_forward_size"})
    usual = planned()
    config = planned(1.5, given)
    assert config.training == TranslateRun.Training()
    assert config.options == TranslateRun.MODELS["transformer"].options()
    assert usual.training != config.training


@pytest.mark.parametrize("model", ["seq2seq", "transformer"])
def test_the_learning_rate_is_that_of_the_optimiser(model):
    def rate(optimiser: Literal["adamw", "muon"], *given: str) -> float:
        options, training = TranslateRun.MODELS[model].options(), TranslateRun.Training(optimiser=optimiser)
        config = RunConfig({}, None, model, options, Duration(epochs=3), training)
        return resolve_training(config, frozenset(given), 450).training.learning_rate

    assert rate("adamw") < rate("muon")
    assert rate("adamw", "learning_rate") == rate("muon", "learning_rate") == TranslateRun.Training().learning_rate


@pytest.mark.parametrize("passes", [None, 3.0])
def test_what_was_settled_is_recorded_where_a_size_was_timed(passes):
    config = planned(passes)
    settled = ["model_size", "dropout", "feed_forward_size", "learning_rate", "warmup", "batch_size"]
    assert config.settled == (None if passes is None else Settled(settled, passes))
    known = replace(config.options, dropout=0.0), config.training
    assert all(any(hasattr(part, name) for part in known) for name in settled)


def dropped(duration: Duration, passes: float | None = None, given: frozenset[str] = frozenset()) -> RunConfig:
    """A recurrent translator whose pairs are read in 450 steps."""
    settled = None if passes is None else Settled(["hidden_size"], passes)
    options, training = TranslateRun.MODELS["seq2seq"].options(), TranslateRun.Training()
    return resolve_training(RunConfig({}, None, "seq2seq", options, duration, training, settled=settled), given, 450)


def test_recurrences_drop_more_in_more_passes_however_they_are_counted():
    timed = [dropped(Duration(budget=600.0), passes).options.dropout for passes in (1.0, 7.0, 15.0, 100.0)]
    assert timed == [0.0, 0.18, 0.29, 0.4]
    assert dropped(Duration(steps=7 * 450)).options.dropout == 0.18
    assert dropped(Duration(epochs=7)).options.dropout == 0.18
    assert dropped(Duration(budget=600.0), 7.0).settled.options == ["hidden_size", "dropout", "learning_rate"]
    assert dropped(Duration(epochs=7)).settled is None


def test_the_dropout_of_recurrences_stays_where_it_is_given_or_the_passes_are_unknown():
    usual = TranslateRun.MODELS["seq2seq"].options().dropout
    assert usual == 0.4
    assert dropped(Duration(budget=600.0)).options.dropout == usual
    given = dropped(Duration(budget=600.0), 1.0, frozenset({"dropout"}))
    assert given.options.dropout == usual
    assert given.settled.options == ["hidden_size", "learning_rate"]


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
