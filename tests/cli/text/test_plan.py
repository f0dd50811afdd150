"""The rule that settles what the user left open, as a function of data, budget and speed."""

import math
from dataclasses import asdict, dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.models import RecurrentLM
from chainrule_app.tasks import open_run
from chainrule_app.tasks.config import Duration
from chainrule_app.tasks.text import plan as text_plan
from chainrule_app.tasks.text.options import TextTraining
from chainrule_app.tasks.text.plan import SIZES, Shape, Speed, plan_text, shape_of
from chainrule_app.tasks.text.run import TextRun

OPTIONS = TextRun.MODELS["lstm"].options


@dataclass
class Text:
    """A prepared text, as far as the rule looks at it."""

    vocabulary: range
    train: range
    level: str = "char"


def seconds_of(options, speed, vocabulary=66, level="char"):
    return speed.seconds(shape_of("lstm", options, vocabulary, level, options.hidden_size).multiplies)


def plan(seconds=180.0, per_multiply=1e-10, symbols=10**6, vocabulary=66, level="char", base=1e-6, **options):
    speed = Speed(base, per_multiply)
    return plan_text(
        "lstm",
        OPTIONS(**options),
        TextTraining(),
        Duration(budget=seconds),
        Text(range(vocabulary), range(symbols), level),
        lambda timed, training: seconds_of(timed, speed, vocabulary, level),
    )


@settings(max_examples=60, deadline=None)
@given(st.floats(5, 1e5), st.floats(1, 100), st.floats(1e-11, 1e-8), st.integers(10**4, 10**8))
def test_more_time_or_a_faster_machine_never_gives_a_much_smaller_model(seconds, factor, per_multiply, symbols):
    """The next smaller size at most: a size that was timed is taken where another is hardly better."""
    usual = plan(seconds, per_multiply, symbols, num_members=1)
    more = plan(seconds * factor, per_multiply, symbols, num_members=1)
    faster = plan(seconds, per_multiply / factor, symbols, num_members=1)
    least = SIZES.index(usual.options.hidden_size) - 1
    assert SIZES.index(more.options.hidden_size) >= least
    assert SIZES.index(faster.options.hidden_size) >= least


def test_twenty_seconds_and_three_hours_give_different_models():
    sizes = [plan(seconds, symbols=10**7).options.hidden_size for seconds in (20, 180, 1800, 10800)]
    assert sizes == sorted(set(sizes)), sizes


def test_a_text_that_one_model_would_read_too_often_is_read_by_several():
    numbers = [plan(seconds).options.num_members for seconds in (20, 180, 1800, 18_000)]
    assert numbers == sorted(numbers)
    assert numbers[0] == 1 < numbers[-1]
    several = plan(1800)
    alone = plan(1800, num_members=1, hidden_size=several.options.hidden_size)
    assert several.symbols == pytest.approx(alone.symbols / several.options.num_members)
    assert several.rate == pytest.approx(alone.rate / several.options.num_members)
    assert several.options.dropout < alone.options.dropout  # each reads the text less often
    assert plan(18_000, level="word", vocabulary=9000).options.num_members == 1
    assert plan(1800, symbols=10**7).options.num_members == 1  # each of two would read too little of it
    assert plan(20, num_members=5).options.num_members == 5  # as the user said


def test_a_further_model_is_taken_only_where_it_gains_what_it_costs(monkeypatch):
    usual = [plan(seconds).options.num_members for seconds in (5400, 10_800)]
    monkeypatch.setattr(text_plan, "COST_OF_MEMBER", 0.0)
    assert usual == [2, 3]
    assert [plan(seconds).options.num_members for seconds in (5400, 10_800)] == [3, 4]


def test_a_short_text_gets_a_small_model_however_long_the_budget():
    assert plan(1e5, symbols=10**4).options.hidden_size == SIZES[0]


def test_what_the_user_said_stays():
    said = {
        "hidden_size": 77,
        "num_layers": 2,
        "embedding_size": 11,
        "ngram_order": 1,
        "dropout": 0.25,
        "embedding_dropout": 0.0,
        "ngram_dropout": 0.1,
        "tie_weights": False,
        "adaptive_softmax": False,
    }
    settled = asdict(plan(**said).options)
    assert {name: settled[name] for name in said} == said


@pytest.mark.parametrize(
    ("said", "sizes"), [({}, [128, 320]), ({"hidden_size": 77}, [77]), ({"hidden_size": 77, "dropout": 0.1}, [])]
)
def test_only_what_something_follows_from_is_measured(said, sizes):
    timed = []

    def measure(options, training):
        timed.append(options.hidden_size)
        assert (training.batch_size, training.optimiser, options.num_members) == (32, "muon", 1)
        return seconds_of(options, Speed(1e-6, 1e-10))

    text = Text(range(66), range(10**6))
    found = plan_text("lstm", OPTIONS(**said), TextTraining(), Duration(budget=180.0), text, measure)
    assert timed == sizes
    assert found.options.hidden_size == [*sizes, 77][max(len(sizes) - 1, 0)]
    assert (found.symbols is None) == (found.rate is None) == (not sizes)


@settings(max_examples=60, deadline=None)
@given(st.floats(5, 1e5), st.floats(10, 1e5), st.floats(1e-11, 1e-8), st.integers(10**4, 10**8))
def test_the_size_that_is_taken_was_timed_and_no_other_is_predicted_much_better(seconds, overhead, slope, symbols):
    """One timing cannot tell the overhead of a step, in multiply-adds, from its products: it costs up to 0.03 nats."""
    timed, speed = [], Speed(overhead * slope, slope)

    def measure(options, training):
        timed.append(options.hidden_size)
        return seconds_of(options, speed)

    def predicted(size):
        multiplies = shape_of("lstm", OPTIONS(), 66, "char", size).multiplies
        passes = text_plan.TRAINING_SHARE * seconds / speed.seconds(multiplies) / symbols
        worth = symbols * (passes if passes <= 1 else 1 + 5 * (1 - math.exp((1 - passes) / 5)))
        return text_plan.predicted_nats(multiplies, worth)

    text, duration = Text(range(66), range(symbols)), Duration(budget=seconds)
    found = plan_text("lstm", OPTIONS(num_members=1), TextTraining(), duration, text, measure)
    size = found.options.hidden_size
    assert size in timed
    assert len(set(timed)) == len(timed) <= 4
    assert found.rate == pytest.approx(1 / seconds_of(found.options, speed))
    sizes = [size for size in SIZES if shape_of("lstm", OPTIONS(), 66, "char", size).multiplies <= 3 * symbols]
    assert predicted(size) <= min(map(predicted, sizes or SIZES[:1])) + (
        text_plan.WORTH_TIMING + 1e-9 if len(timed) > 1 else 0.03
    )


def test_nothing_is_left_open_and_the_model_can_be_made():
    for level, vocabulary in (("char", 66), ("byte", 256), ("word", 9000), ("bpe", 512)):
        options = asdict(plan(level=level, vocabulary=vocabulary).options)
        assert None not in options.values()
        del options["adaptive_softmax"], options["num_members"]
        RecurrentLM(vocabulary, **options | {"hidden_size": 8, "embedding_size": 8})


def test_words_share_their_embedding_and_many_words_are_predicted_in_clusters():
    few, many = plan(level="word", vocabulary=5000).options, plan(level="word", vocabulary=33_000).options
    assert (few.tie_weights, few.adaptive_softmax) == (True, False)
    assert (many.tie_weights, many.adaptive_softmax) == (True, True)
    assert plan().options.ngram_order == 3
    assert few.ngram_order == 1


def test_dropout_grows_with_the_passes_over_the_text():
    shares = [plan(seconds, hidden_size=256, num_members=1).options.dropout for seconds in (10, 100, 1000, 10_000)]
    assert shares == sorted(shares)
    assert shares[0] < 0.2
    assert shares[-1] == 0.5


def test_clusters_cost_a_fraction_of_all_words():
    full = Shape("lstm", 33_278, 200, 1, 200, adaptive=False)
    clusters = replace(full, adaptive=True)
    assert clusters.multiplies < 0.15 * full.multiplies


def test_a_number_of_steps_is_not_timed_and_gives_the_same_model_on_every_machine():
    def timed(options, training):
        raise AssertionError("a run of steps must not read a clock")

    text = Text(range(66), range(10**6))
    settled = plan_text("lstm", OPTIONS(), TextTraining(), Duration(steps=1500), text, timed)
    assert settled.rate is None
    assert settled.symbols == 1500 * 32 * 64


BLOCKS = ("--model", "transformer", "--model-size", 8, "--num-layers", 1, "--num-heads", 2, "--ngram-order", 2)


@pytest.mark.parametrize(
    ("said", "dropouts"),
    [
        (("--epochs", 1), (0.0, 0.0)),
        (("--epochs", 4), (0.1, 0.2)),
        (("--epochs", 4, "--dropout", 0.3), (0.3, 0.2)),
        (("--epochs", 4, "--dropout", 0.3, "--ngram-dropout", 0.0), (0.3, 0.0)),
        (("--budget", "0.05s"), (0.3, 0.6)),
    ],
)
def test_blocks_drop_the_more_the_oftener_the_text_is_read(planned, text_file, tmp_path, monkeypatch, said, dropouts):
    monkeypatch.setattr("chainrule_app.tasks.preparation.step_rate", lambda *_: 1e6)
    planned(text_file, *BLOCKS, *said, "--out", tmp_path / "run")
    options = open_run(tmp_path / "run").config.options
    assert (options.dropout, options.ngram_dropout) == dropouts


def test_dropouts_of_a_budget_are_recorded_where_the_user_names_the_size(planned, text_file, tmp_path, monkeypatch):
    monkeypatch.setattr("chainrule_app.tasks.preparation.step_rate", lambda *_: 1e6)
    outcome = planned(text_file, *BLOCKS, "--budget", "0.05s", "--out", tmp_path / "run")
    assert "over the data, dropout 0.3, ngram dropout 0.6\n" in outcome.err
    assert "reproduce with: --dropout 0.3 --ngram-dropout 0.6 --threads " in outcome.err


def test_the_line_of_a_chosen_size_of_blocks_names_dropouts_and_the_flags_that_repeat_them(
    planned, text_file, tmp_path, monkeypatch
):
    monkeypatch.setattr("chainrule_app.tasks.preparation.step_rate", lambda *_: 1e-3)
    outcome = planned(text_file, "--model", "transformer", "--budget", "0.05s", "--out", tmp_path / "run")
    assert ", dropout 0, ngram dropout 0\n" in outcome.err
    assert "reproduce with: --model-size 64 --num-layers 2 --dropout 0 --ngram-dropout 0 --threads " in outcome.err
    assert open_run(tmp_path / "run").config.training.weight_decay == 2.0  # a short text


@pytest.mark.parametrize(
    ("said", "decay"),
    [((), 2.0), (("--optimiser", "adamw"), 0.1), (("--level", "word"), 0.1), (("--weight-decay", 0.3), 0.3)],
)
def test_the_weights_of_blocks_decay_by_the_length_of_the_text(planned, text_file, tmp_path, said, decay):
    planned(text_file, *BLOCKS, "--steps", 1, *said, "--out", tmp_path / "run")
    assert open_run(tmp_path / "run").config.training.weight_decay == decay
