"""`chainrule compare`: runs side by side, ranked only where their figures are of the same thing."""

import json
import shutil

import pytest

from chainrule_app.tasks.likelihood_record import Basis, LikelihoodRecord, why_not_ranked


def validated(run, nats, elements=100):
    """Say that the run was validated."""
    record = {"event": "validation", "step": 4, "elements": elements, "nats_per_element": nats}
    record |= {"bits_per_element": nats / 0.6931471805599453, "perplexity": None, "best": True}
    (run / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    (run / "timings.jsonl").write_text('{"step": 4, "elapsed": 75.0}\n')
    return run


@pytest.fixture
def two(runs, tmp_path):
    for name, nats in (("worse", 2.5), ("better", 1.5)):
        shutil.copytree(runs / "stream", tmp_path / name)
        validated(tmp_path / name, nats)
    return tmp_path / "worse", tmp_path / "better"


def test_runs_on_the_same_data_are_ranked_best_first(command, ok, two):
    outcome = ok("compare", *two)
    heading, first, second = outcome.out.splitlines()
    assert heading.split()[:4] == ["#", "run", "task", "model"]
    assert first.split()[:2] == ["1", str(two[1])]
    assert second.split()[:2] == ["2", str(two[0])]
    assert " 75 " in first  # seconds of training
    assert " exact " in first
    records = [json.loads(line) for line in command("compare", *two, "--json").out.splitlines()]
    assert [record["rank"] for record in records] == [1, 2]
    assert records[0]["likelihood"]["nats"] == pytest.approx(150)
    assert records[0]["likelihood"]["bits_per_byte"] > 0
    assert records[0]["seconds"] == 75


def test_runs_with_other_tokens_are_shown_but_not_ranked(command, ok, two, runs, tmp_path):
    shutil.copytree(runs / "bytes", tmp_path / "bytes")
    outcome = ok("compare", *two, validated(tmp_path / "bytes", 1.0))
    lines = outcome.out.splitlines()
    assert len(lines) == 5
    assert lines[0].split()[0] == "run"  # no rank
    assert lines[-1].startswith("not ranked: symbols differ: char level")
    outcome = command("compare", *two, tmp_path / "bytes", "--json")
    assert "rank" not in json.loads(outcome.out.splitlines()[0])
    assert json.loads(outcome.err)["not_ranked"].startswith("symbols differ")


def test_a_file_is_scored_by_every_run(command, two, text_file):
    records = [json.loads(line) for line in command("compare", *two, "--data", text_file, "--json").out.splitlines()]
    scored = json.loads(command("score", two[0], text_file, "--json").out)
    for record in records:  # the same untrained weights
        assert record["likelihood"]["nats"] == pytest.approx(scored["nats"])
        assert record["likelihood"]["bits_per_byte"] == pytest.approx(scored["bits_per_byte"])
    assert [record["rank"] for record in records] == [1, 2]


def test_bad_input_is_one_line(refused, two, tmp_path, text_file):
    assert "expected at least one run" in refused("compare")
    assert "no such run" in refused("compare", two[0], tmp_path / "nothing")
    (two[0] / "model.safetensors").unlink()
    assert "no weights yet" in refused("compare", *two)


def test_a_run_says_how_its_likelihood_was_measured(command, two, text_file):
    assert "measured     exact; nats per symbol, char level" in command("info", two[0]).out
    info = json.loads(command("info", two[0], "--json").out)
    assert info["likelihood"]["unit"] == "symbol"
    lines = command("score", two[0], text_file).out.splitlines()
    assert lines[-2].startswith("measured: exact; nats per symbol")
    assert lines[-1].startswith("the run was trained on this very text")
    assert json.loads(command("score", two[0], text_file, "--json").out)["measured"]["kind"] == "exact"


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (LikelihoodRecord(Basis("symbol", "256 levels"), 1.0, 4, "ab"), "units differ: dimension; symbol"),
        (LikelihoodRecord(Basis("dimension", "2 levels"), 1.0, 4, "ab"), "base measures differ: 256 levels; 2 levels"),
        (LikelihoodRecord(Basis("dimension", "256 levels"), 1.0, 4, "cd"), "data differ: ab; cd"),
        (LikelihoodRecord(Basis("dimension", "256 levels"), 1.0, 5, "ab"), "numbers of elements differ: 4; 5"),
        (LikelihoodRecord(Basis("dimension", "256 levels", given="the label"), 1.0, 4, "ab"), "conditions differ"),
        (LikelihoodRecord(Basis("dimension", "256 levels", kind="bound", samples=9), 1.0, 4, "ab", 0.1), ""),
    ],
)
def test_only_like_is_ranked_with_like(other, reason):
    found = why_not_ranked([LikelihoodRecord(Basis("dimension", "256 levels"), 2.0, 4, "ab"), other])
    assert found.startswith(reason)
    assert bool(found) == bool(reason)
