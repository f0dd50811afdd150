"""How a translator is trained where the user leaves it open."""

from dataclasses import replace
from typing import Literal

import pytest

from chainrule._app.tasks.config import Duration, RunConfig, Settled
from chainrule._app.tasks.translate.task import TRANSFORMER_SIZES, TranslateTask, resolve_training


def planned(passes: float | None = None, given: frozenset[str] = frozenset(), **options: int) -> RunConfig:
    settled = None if passes is None else Settled(["model_size"], passes)
    asked = TranslateTask.MODELS["transformer"].options(**options)
    training, duration = TranslateTask.Training(), Duration(budget=600.0)
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
    given = frozenset({"--learning-rate", "--warmup", "--batch-size", "--dropout", "--feed-forward-size"})
    usual = planned()
    config = planned(1.5, given)
    assert config.training == TranslateTask.Training()
    assert config.options == TranslateTask.MODELS["transformer"].options()
    assert usual.training != config.training


@pytest.mark.parametrize("model", ["seq2seq", "transformer"])
def test_the_learning_rate_is_that_of_the_optimiser(model):
    def rate(optimiser: Literal["adamw", "muon"], *given: str) -> float:
        options, training = TranslateTask.MODELS[model].options(), TranslateTask.Training(optimiser=optimiser)
        config = RunConfig({}, None, model, options, Duration(epochs=3), training)
        return resolve_training(config, frozenset(given), 450).training.learning_rate

    assert rate("adamw") < rate("muon")
    assert rate("adamw", "--learning-rate") == rate("muon", "--learning-rate") == TranslateTask.Training().learning_rate


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
    options, training = TranslateTask.MODELS["seq2seq"].options(), TranslateTask.Training()
    return resolve_training(RunConfig({}, None, "seq2seq", options, duration, training, settled=settled), given, 450)


def test_recurrences_drop_more_in_more_passes_however_they_are_counted():
    timed = [dropped(Duration(budget=600.0), passes).options.dropout for passes in (1.0, 7.0, 15.0, 100.0)]
    assert timed == [0.0, 0.18, 0.29, 0.4]
    assert dropped(Duration(steps=7 * 450)).options.dropout == 0.18
    assert dropped(Duration(epochs=7)).options.dropout == 0.18
    assert dropped(Duration(budget=600.0), 7.0).settled.options == ["hidden_size", "dropout", "learning_rate"]
    assert dropped(Duration(epochs=7)).settled is None


def test_the_dropout_of_recurrences_stays_where_it_is_given_or_the_passes_are_unknown():
    usual = TranslateTask.MODELS["seq2seq"].options().dropout
    assert usual == 0.4
    assert dropped(Duration(budget=600.0)).options.dropout == usual
    given = dropped(Duration(budget=600.0), 1.0, frozenset({"--dropout"}))
    assert given.options.dropout == usual
    assert given.settled.options == ["hidden_size", "learning_rate"]
