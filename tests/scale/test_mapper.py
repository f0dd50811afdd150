"""Answers row by row: equal in all batches, processes and kinds of frames."""

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from random import Random

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from by_day import by_day
from polars.testing import assert_frame_equal
from scale_data import DATA, SIZES, TINY, lines

import chainrule
from chainrule_app.scale import Mapper, mapper


def table(number, seed=0):
    random = Random(seed)
    loads = [round(random.gauss(50, 10), 2) for _ in range(number)]
    counts = [random.randrange(9) for _ in range(number)]
    columns = {"load": loads, "count": counts, "kind": random.choices("abc", k=number)}
    return polars.DataFrame(columns | {"heat": [0.3 * load + count for load, count in zip(loads, counts, strict=True)]})


def gaps(number):
    places = polars.int_range(number)
    every = {"heat": 2, "load": 3, "kind": 5}
    missing = [polars.when(places % step == 0).then(None).otherwise(name).alias(name) for name, step in every.items()]
    return table(number, seed=2).with_columns(missing)


def series(number):
    return polars.DataFrame({"shop": ["a", "b"] * number, "sold": [abs(place % 14 - 7) for place in range(2 * number)]})


def shops():
    """A row for each shop, known and new, and rows without a series."""
    lists = [[1, 2, 3, 4], [5, 7, 4, 3, 2], [2, 1, 2], [1, 2, 3, 4], None, []]
    kinds = {"shop": polars.String, "sold": polars.List(polars.Int64)}
    return polars.DataFrame({"shop": ["a", "b", "new", "b", "a", "b"], "sold": lists}, schema=kinds)


FITTED = DATA | {"table": lambda: table(200), "forecast": lambda: series(60)}
OPTIONS = {"forecast": {"hidden_size": 8, "item": "shop", "target": "sold", "horizon": 3, "season": 7}}


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    runs = {}

    def run_of(task):
        if task not in runs:
            out = tmp_path_factory.mktemp("runs") / task
            options = TINY | SIZES.get(task, {"hidden_size": 8}) | OPTIONS.get(task, {})
            runs[task] = chainrule.fit(FITTED[task](), task=task, out=out, **options)
        return runs[task]

    return run_of


def texts():
    return polars.DataFrame({"text": [*lines(30, seed=1), "", None], "other": range(32)})


# The task, the method, its options, and the rows; whether answers are equal bit for bit, or to rounding.
ANSWERS = {
    "score": ("table", "score", {}, lambda: table(40, seed=1), False),
    "predict": ("table", "predict", {"columns": ["heat", "kind"]}, lambda: table(20, seed=1), False),
    "predict by draws": ("table", "predict", {"columns": "load", "particles": 8, "draws": 2}, lambda: gaps(12), True),
    "fill": ("table", "fill", {"particles": 8, "draws": 2}, lambda: gaps(20), False),
    "draws": ("table", "fill", {"values": "draw", "particles": 8}, lambda: gaps(12).drop("count"), True),
    "score texts": ("text", "score", {}, texts, False),
    "embed texts": ("text", "embed", {}, texts, False),
    "sample": ("text", "sample", {"length": 8}, texts, True),
    "complete": ("text", "complete", {"length": 8}, texts, True),
    "forecast": ("forecast", "forecast", {"paths": 8}, shops, True),
    "tag": ("tag", "tag", {}, texts, False),
    "classify": ("classify", "classify", {"top": 2}, texts, False),
    "translate": ("translate", "translate", {"max_length": 6}, lambda: texts()[-9:], False),
}


def assert_equal(found, expected, *, exact):
    if exact:
        assert found.equals(expected)
    else:
        assert_frame_equal(found, expected, rel_tol=1e-5, abs_tol=1e-6)


@pytest.mark.parametrize("name", by_day(ANSWERS, "score", "predict by draws", "sample", "forecast", "tag"))
def test_any_split_into_batches_gives_the_same_answers(name, run_of):
    task, method, options, rows, exact = ANSWERS[name]
    answer, frame = run_of(task).mapper(method, **options), rows()
    whole = answer(frame)
    order = Random(name).sample(range(len(frame)), len(frame))
    shuffled, parts = frame[order], []
    while len(shuffled):
        size = Random(len(shuffled)).choice([1, 2, 5, 9])
        parts.append(answer(shuffled[:size]))
        shuffled = shuffled[size:]
    back = sorted(range(len(order)), key=order.__getitem__)
    assert_equal(polars.concat(parts)[back], whole, exact=exact)
    assert answer(frame.clear()).schema == whole.schema
    if not exact:  # matrix products round by the shape of a batch, and by the place of a row in it
        alone = run_of(task).mapper(method, batch_size=1, **options)
        assert polars.concat([alone(frame[:3]), alone(frame[3:8])]).equals(alone(frame[:8]))


@pytest.mark.parametrize(
    "name", [name if name in ("fill", "tag") else pytest.param(name, marks=pytest.mark.slow) for name in ANSWERS]
)
def test_answers_of_the_run_are_added_to_frames_of_all_kinds(name, run_of):
    task, method, options, rows, _ = ANSWERS[name]
    answer, frame = run_of(task).mapper(method, **options), rows()
    whole = answer(frame)
    assert whole.columns[: len(frame.columns)] == frame.columns
    arrow = answer(frame.to_arrow())
    assert isinstance(arrow, pyarrow.Table)
    assert polars.from_arrow(arrow).equals(whole)
    (batch,) = frame.to_arrow().combine_chunks().to_batches()
    assert isinstance(answer(batch), pyarrow.RecordBatch)
    assert polars.from_arrow(answer(batch)).equals(whole)
    native = answer(frame.to_pandas().set_index(np.arange(len(frame)) + 7))
    assert list(native.index[:2]) == [7, 8]
    assert polars.from_pandas(native).select(whole.columns).cast(dict(whole.schema)).equals(whole)


def test_the_answers_are_those_of_the_methods(run_of):
    rows, run = table(40, seed=1), run_of("table")
    scored = run.mapper("score")(rows)
    assert scored["nats"].to_list() == pytest.approx(run.score(rows)["nats"], rel=1e-6)
    assert scored["most"].to_list() == run.score(rows)["most"]
    predicted = run.predict(rows, columns="kind")
    mapped = run.mapper("predict", columns="kind")(rows)
    assert mapped["kind_predicted"].to_list() == predicted["value"]
    assert mapped["kind_probability"].to_list() == pytest.approx(predicted["probability"], rel=1e-5)
    some = lines(9, seed=3)
    labels = run_of("classify").mapper("predict")(polars.DataFrame({"text": some}))["label"]
    assert labels.to_list() == run_of("classify").classify(some)["label"]
    assert labels.dtype == polars.Int64
    words = polars.DataFrame({"words": [line.split() for line in some]})
    assert run_of("tag").mapper("tag")(words)["tags"].to_list() == run_of("tag").tag(some)["tags"]


def test_a_completion_is_what_a_sample_adds_to_its_text(run_of):
    frame = polars.DataFrame({"text": ["one ", "two", ""]})
    sampled = run_of("text").mapper("sample", length=9)(frame)
    completed = run_of("text").mapper("complete", length=9)(sampled)
    assert (completed["text"] + completed["completion"]).to_list() == sampled["sample"].to_list()


def test_a_row_holds_a_series_to_forecast(run_of):
    run, frame = run_of("forecast"), shops()
    forecast = run.mapper("forecast", horizon=2, quantiles="0.2,0.8", paths=8, key="shop")
    answers = forecast(frame)
    assert answers.columns == [*frame.columns, "forecast_time", "sold_mean", "sold_q0.2", "sold_q0.8"]
    assert answers["forecast_time"].to_list() == [[5, 6], [6, 7], [4, 5], [5, 6], None, None]
    gaps = frame[:1].with_columns(sold=polars.Series([[1, 2, None, 4, None]]))
    assert forecast(gaps)["forecast_time"].to_list() == [[5, 6]]  # from the last value on
    with pytest.raises(ValueError, match="expected lists in the column 'sold', as a row holds a whole series"):
        forecast(series(5))
    with pytest.raises(ValueError, match="expected the column 'shop', got sold"):
        forecast(frame.drop("shop"))


def test_times_of_forecasts_have_the_type_of_the_column_of_dates():
    days = polars.date_range(polars.date(2024, 1, 1), polars.date(2024, 2, 29), eager=True)
    frame = polars.DataFrame({"time": days, "heat": [float(day.day % 7) for day in days]})
    run = chainrule.fit(frame, task="forecast", horizon=2, hidden_size=8, **TINY)
    row = frame[-20:].select(polars.all().implode())
    forecast = run.mapper("forecast", paths=4)
    written = row.with_columns(polars.col("time").list.eval(polars.element().dt.to_string()))
    for rows, expected in (
        (row, [days[-1] + timedelta(1), days[-1] + timedelta(2)]),
        (written, ["2024-03-01", "2024-03-02"]),
    ):
        assert forecast(rows)["forecast_time"].to_list() == [expected]
        assert forecast(rows.clear()).schema == forecast(rows).schema


def test_fill_keeps_known_cells_and_types(run_of):
    frame = gaps(20).with_columns(polars.col("load").cast(polars.Float32), extra=polars.lit([1, 2]))
    filled = run_of("table").mapper("fill", particles=8, draws=2)(frame.drop("count"))
    assert filled.schema == {**frame.drop("count").schema, "count": polars.Int64}
    known = frame["load"].is_not_null()
    assert filled["load"].filter(known).equals(frame["load"].filter(known))
    assert not filled["load"].null_count()
    apart = run_of("table").mapper("fill", prefix="new_", particles=8, draws=2)(frame)
    assert apart.select(frame.columns).equals(frame)
    assert apart["new_load"].filter(known).equals(frame["load"].filter(known))


def test_draws_depend_on_the_seed_and_the_key_alone(run_of):
    frame = polars.DataFrame({"text": ["one "] * 3, "id": [1, 2, 3]})
    draw = run_of("text").mapper("sample", key="id", length=12)
    drawn = draw(frame)["sample"].to_list()
    assert len(set(drawn)) == 3
    assert draw(frame.reverse())["sample"].to_list() == drawn[::-1]
    other = run_of("text").mapper("sample", key="id", length=12, seed=1)
    assert other(frame)["sample"].to_list() != drawn
    assert len(set(run_of("text").mapper("sample", length=12)(frame)["sample"])) == 1  # equal rows


IN_A_PROCESS = """
import pickle, sys, chainrule, polars
answers, frame = pickle.load(sys.stdin.buffer)
pickle.dump([answer(frame) for answer in answers], sys.stdout.buffer)
"""


def test_a_pickle_answers_in_another_process(run_of):
    frame, temporary = table(9, seed=1), chainrule.fit(table(60), hidden_size=8, **TINY)
    answers = [run.mapper("score") for run in (run_of("table"), temporary)]
    kept, whole = map(len, map(pickle.dumps, answers))
    assert kept < 20_000 < whole  # the path of the run, or its files
    pickled = pickle.dumps((answers, frame))
    done = subprocess.run([sys.executable, "-c", IN_A_PROCESS], input=pickled, stdout=subprocess.PIPE, check=True)
    for found, answer in zip(pickle.loads(done.stdout), answers, strict=True):  # noqa: S301  what we pickled ourselves
        assert found.equals(answer(frame))


def test_a_process_opens_a_run_once(run_of, monkeypatch):
    mapper._opened.cache_clear()
    pickled = pickle.dumps(run_of("table").mapper("score"))
    with ThreadPoolExecutor(4) as pool:
        mappers = list(pool.map(pickle.loads, [pickled] * 8))
        frames = list(pool.map(lambda one: one(table(5)), mappers))
    assert len({id(one._run) for one in mappers}) == 1
    assert all(frame.equals(frames[0]) for frame in frames)


def test_a_class_of_actors_takes_the_path_of_the_run(run_of):
    actor = Mapper(str(run_of("table").path), "score")
    assert actor(table(5)).equals(run_of("table").mapper("score")(table(5)))


def test_what_cannot_be_mapped_is_refused(run_of):
    run, frame = run_of("table"), table(3)
    for arguments, message in (
        (("score", {"per": "cell"}), "per: expected row"),
        (("score", {"given": "all"}), "given: a mapper has one answer"),
        (("predict", {}), "columns: expected the columns to predict"),
        (("predict", {"columns": "none"}), "columns: expected NAME"),
        (("tag", {}), "method: expected one of score, predict, fill"),
        (("score", {"adapt": True}), "adapt: unknown option"),
        (("fill", {"batch_size": 0}), "batch_size: expected a whole number"),
    ):
        with pytest.raises(ValueError, match=message):
            run.mapper(arguments[0], **arguments[1])
    with pytest.raises(ValueError, match="batch: there is a column 'nats' already: rename it, or set prefix="):
        run.mapper("score")(frame.with_columns(nats=1))
    with pytest.raises(ValueError, match='got a dict: Ray Data passes tables with batch_format="pyarrow"'):
        run.mapper("score")({"load": np.zeros(3)})
    with pytest.raises(ValueError, match="key: expected a column of load"):
        run.mapper("fill", key="id")(frame)
    with pytest.raises(ValueError, match="column: expected the column of texts, one of other"):
        run_of("text").mapper("score")(polars.DataFrame({"other": [1]}))


def test_an_error_names_the_row_of_the_batch(run_of):
    frame = table(30).with_columns(load=polars.col("load").cast(polars.String))
    frame[27, "load"] = "heavy"
    with pytest.raises(ValueError, match=r"^row 27 of the batch: column 'load': .*heavy"):
        run_of("table").mapper("score")(frame)
    with pytest.raises(ValueError, match=r"^row 1 of the batch: prompt: .* never saw"):
        run_of("text").mapper("sample")(polars.DataFrame({"text": ["one", "§"]}))


def test_pandas_types_do_not_depend_on_what_is_missing(run_of):
    answer = run_of("text").mapper("score")
    frame = pandas.DataFrame({"text": ["one fish", None]})
    assert answer(frame).dtypes.equals(answer(frame[:1]).dtypes)
    assert answer(frame).dtypes.equals(answer(frame[1:]).dtypes)
