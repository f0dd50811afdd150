"""After training a line compares the run with the obvious alternative; the run and `info` keep it."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import small_data
import torch

import chainrule
from chainrule.data import Batch
from chainrule.heads import Column
from chainrule.training import Evaluation
from chainrule_app.tasks.baseline import Baseline
from chainrule_app.tasks.frequencies import place_frequencies
from chainrule_app.tasks.table.baseline import log_frequencies

NAMES = {
    "text": "Kneser–Ney",
    "classify": "TF-IDF",
    "tag": "most frequent tag of each word",
    "forecast": "naive",
    "image": "pixel frequencies",
    "sound": "frequencies of the levels",
    "music": "frequencies of the keys",
}


@pytest.mark.parametrize("task", NAMES)
def test_a_run_is_compared_and_info_says_it_again(command, tmp_path, task):
    data, *said = small_data.WRITERS[task](tmp_path)
    sizes = small_data.SMALL_SIZES[task].split()
    made = command("train", data, *said, *sizes, "--steps", 1, "--out", tmp_path / "run", "--json")
    assert made.status == 0, made.err
    (line,) = [line for line in made.err.splitlines() if line.startswith("baseline: ")]
    assert NAMES[task] in line or task == "forecast"
    found = json.loads(made.out)["baseline"]
    assert f"{found['name']} {found['value']:.4g}, this run {found['own']:.4g} ({found['measure']})" in line
    assert ("the baseline is better here" in line) == found["wins"]
    assert json.loads(command("info", tmp_path / "run", "--json").out)["baseline"] == found
    assert f"baseline     {found['name']}" in command("info", tmp_path / "run").out
    (tmp_path / "run" / "baseline.json").write_text('{"name": 1}')
    damaged = command("info", tmp_path / "run")
    assert damaged.status == 2
    assert len(damaged.err.splitlines()) == 1


def test_a_target_is_compared_with_boosting_and_categories_with_their_frequencies(tmp_path):
    random = np.random.default_rng(0)
    table = pandas.DataFrame({"a": random.choice(["x", "y", "z"], 400), "b": random.choice(["u", "v"], 400)})
    table["c"] = np.where(table.a == "x", "yes", "no")
    for target, name in (("c", "gradient boosting"), (None, "column frequencies")):
        options = {} if target is None else {"target": target}
        run = chainrule.fit(table, task="table", budget=2, hidden_size=8, num_members=1, seed=0, **options)
        found = json.loads((run.path / "baseline.json").read_text())
        shares = [table[column].value_counts(normalize=True) for column in table]
        entropy = -sum((share * np.log(share)).sum() for share in shares)
        assert found["name"] == name
        assert found["value"] == pytest.approx(0 if target else entropy, rel=0.1, abs=0.1)  # c follows from a


def test_a_number_is_compared_with_the_error_of_boosting(tmp_path):
    random = np.random.default_rng(0)
    table = pandas.DataFrame({"a": random.choice(["x", "y"], 400), "b": random.normal(size=400)})
    table["c"] = 10 + 3 * (table.a == "x") + random.normal(size=400)
    run = chainrule.fit(table, task="table", target="c", budget=1, hidden_size=8, num_members=1, seed=0)
    found = json.loads((run.path / "baseline.json").read_text())
    assert (found["name"], found["measure"]) == ("gradient boosting", "RMSE of the target")
    assert found["value"] == pytest.approx(1, rel=0.3)
    assert found["own"] < 1.8  # of the numbers themselves


@pytest.mark.parametrize("shape", [(1, 2, 3), (3,), ()])  # images, chords of sequences with lengths, samples in chunks
def test_the_values_of_each_place_have_their_frequencies(monkeypatch, shape):
    """Of images each pixel of each channel, of chords each key, of sounds no place at all."""
    draw, levels, lengths = np.random.default_rng(0), 3, torch.tensor([2, 4]) if shape == (3,) else None
    whole = len(shape) == 3
    size = (2, *shape) if whole else (2, 4, *shape)
    train, valid = (
        [Batch(torch.from_numpy(draw.integers(levels, size=size)), lengths, whole=whole) for _ in range(count)]
        for count in (3, 2)
    )

    def elements(batches):
        rows = [batch.x if lengths is None else torch.cat([batch.x[0, :2], batch.x[1]]) for batch in batches]
        return [row.flatten().tolist() for own in rows for row in own.reshape(-1, *shape)]

    places = list(zip(*elements(train), strict=True))
    expected = sum(
        -math.log((own.count(value) + 0.5) / (len(own) + 0.5 * levels))
        for row in elements(valid)
        for own, value in zip(places, row, strict=True)
    )
    monkeypatch.setattr("chainrule.training.evaluate", lambda model, batches: list(batches) and Evaluation(7.0, 2))
    data = SimpleNamespace(at=train.__getitem__, steps_per_epoch=3)
    run = SimpleNamespace(batches=lambda shard: (data, lambda: valid))
    found = place_frequencies(run, None, 1e9, name="frequencies", measure="nats", levels=levels)
    count = len(elements(valid)) * (len(places) if whole else 1)
    assert (found.value, found.own) == (pytest.approx(expected / count), 3.5)


@pytest.mark.parametrize("whole", [True, False])
def test_numbers_have_the_frequencies_of_their_neighbourhood(whole):
    """The nats of normal numbers are nearly their entropy, and a number that was never seen has a finite one."""
    random = np.random.default_rng(0)
    values = random.normal(50, 20, 4000)
    values = values.round() if whole else values
    column = Column("integer" if whole else "real", missing=True, centre=50, scale=20)
    found = log_frequencies(column, np.append(values[:2000], np.nan), values[2000:])
    assert -found.mean() == pytest.approx(math.log(20 * math.sqrt(2 * math.pi * math.e)), abs=0.05)
    far, missing = log_frequencies(column, values, np.array([1e9, np.nan]))
    assert math.isfinite(far)
    assert missing == pytest.approx(-math.log(4002))
    assert math.isfinite(log_frequencies(column, np.full(9, np.nan), values[:1])[0])


def test_a_line_says_which_is_better():
    assert not Baseline("a", 1.0, 0.5, "nats").wins
    assert str(Baseline("a", 1.0, 0.5, "nats")) == "a 1, this run 0.5 (nats)"
    worse = Baseline("a", 0.9, 0.5, "accuracy", higher_is_better=True)
    assert worse.wins
    assert str(worse).endswith("the baseline is better here: train longer, or use the simpler model")
