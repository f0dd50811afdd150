"""Surprising stretches of lines: where they are, why, and streams that are read in rows side by side."""

import json
import math
import pickle

import numpy as np
import pytest
import torch

from chainrule.models import CalibratedMixture, Ensemble, NgramLM, RecurrentLM
from chainrule.state import leaves
from chainrule_app.tasks.text import spots, surprise
from chainrule_app.tasks.text.spots import Reason, expectation, reason_of, spots_of, without_fields
from chainrule_app.tasks.text.surprise import Expectation, Reader, measure, measure_stream

V = 5


def mixture(text, members=1):
    torch.manual_seed(0)
    network = Ensemble(
        [RecurrentLM(vocab_size=V, hidden_size=6, ngram_order=2, embedding_size=4) for _ in range(members)]
    )
    return CalibratedMixture(network if members > 1 else network.members[0], NgramLM.fit(text, V, 4)).eval()


@torch.no_grad()
def test_excess_is_surprise_above_the_entropy_of_the_network():
    x = torch.from_numpy(np.random.default_rng(0).integers(V, size=(3, 20)))
    model = mixture(x.flatten())
    found = measure(Reader(model, Expectation()), x, model.initial_state(3), None, step=7)[0]
    logs = model.network(x).logits
    torch.testing.assert_close(found.nats, -model(x).log_prob(x).double(), rtol=0, atol=1e-5)
    torch.testing.assert_close(found.excess, found.nats + (logs.exp() * logs).sum(-1).double(), rtol=0, atol=1e-5)


@torch.no_grad()
def test_counts_leave_the_scored_occurrence_out_of_the_excess_alone():
    x = torch.from_numpy(np.random.default_rng(0).integers(V, size=(1, 200)))
    model = mixture(x[0])
    plain, apart = (
        measure(Reader(model, expectation(model, trained_on=own)), x, model.initial_state(1), None)[0]
        for own in (False, True)
    )
    assert torch.equal(plain.nats, apart.nats)
    assert float((apart.excess - plain.excess).mean()) > 0.1  # most of its 4-grams occur once


@torch.no_grad()
def test_a_long_stream_is_read_in_compiled_loops(monkeypatch):
    reading = pytest.importorskip("chainrule.kernels._compiled_reading")
    monkeypatch.setattr(surprise, "_ROW", 64)
    x = torch.from_numpy(np.random.default_rng(0).integers(V, size=(1, 600)))
    torch.manual_seed(0)
    network = RecurrentLM(vocab_size=V, hidden_size=64, ngram_order=2, embedding_size=4)
    model = CalibratedMixture(network, NgramLM.fit(x[0], V, 4)).eval()
    loops, over_rows, found = [], reading._over_rows, []
    monkeypatch.setattr(reading, "_over_rows", lambda *asked: (loops.append(asked[0].__name__), over_rows(*asked)))
    for least in (601, 600):
        monkeypatch.setattr("chainrule._executor.READ", least)
        assert not loops
        reader = Reader(model, expectation(model, trained_on=True))
        found.append(measure_stream(reader, x, model.initial_state(1), None, most=1024))
    assert {*loops} == {"_read_cells", "_read_ngrams"}
    (plain, end, last), (fast, compiled_end, compiled_last) = found
    torch.testing.assert_close(fast.nats, plain.nats, rtol=0, atol=1e-5)
    torch.testing.assert_close(fast.excess, plain.excess, rtol=0, atol=1e-5)
    assert torch.equal(last, compiled_last)
    for one, other in zip(leaves(compiled_end), leaves(end), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("rounds", [0, 3])
@pytest.mark.parametrize(("before", "most"), [(2, 64), (32, 64), (32, 4)])
def test_rows_side_by_side_are_one_stream(monkeypatch, before, most, rounds):
    """With two symbols before a row the state is another one there: rows are read again until they meet."""
    monkeypatch.setattr(surprise, "_ROW", 40)
    monkeypatch.setattr(surprise, "_BEFORE", before)
    monkeypatch.setattr(surprise, "_ROUNDS", rounds)
    x = torch.from_numpy(np.random.default_rng(0).integers(V, size=(1, 530)))
    model, calls = mixture(x[0], members=2), []
    read = surprise.measure

    def counted(reader, ids, *more, **options):
        calls.append(len(ids))
        assert len(ids) * min(options.get("step", 64), ids.shape[1]) <= most
        return read(reader, ids, *more, **options)

    whole, end, last = measure(Reader(model, Expectation()), x, model.initial_state(1), None)
    monkeypatch.setattr(surprise, "measure", counted)
    parts, state, previous = [], model.initial_state(1), None
    for part in x.split(300, dim=1):  # the second part goes on from a state
        found, state, previous = measure_stream(Reader(model, Expectation()), part, state, previous, most=most)
        parts.append(found)
    assert max(calls) > 3
    torch.testing.assert_close(torch.cat([part.nats for part in parts], 1), whole.nats, rtol=0, atol=1e-4)
    torch.testing.assert_close(torch.cat([part.excess for part in parts], 1), whole.excess, rtol=0, atol=1e-4)
    assert torch.equal(previous, last)
    for one, other in zip(leaves(state), leaves(end), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4)


def test_the_spots_are_the_best_of_all_stretches():
    """Of lines together, as of each alone; those of empty lines are empty."""
    generator = np.random.default_rng(0)
    lines = [generator.normal(0.5, 2, length) for length in generator.integers(0, 12, 50)]
    lines = [
        without_fields(line, generator.random(len(line)) < 0.3) if number % 2 else line
        for number, line in enumerate(lines)
    ]
    found = spots_of(lines)
    assert found == [spot for line in lines for spot in spots_of([line])]
    assert spots_of([]) == []
    for own, spot in zip(lines, found, strict=True):
        sums = {(i, j): float((own[i:j] - 1).sum()) for i in range(len(own)) for j in range(i + 1, len(own) + 1)}
        best = max(sums.values(), default=0.0)
        assert spot.bits == pytest.approx(max(best, 0) / math.log(2), abs=1e-9)
        if best > 0:
            assert sums[spot.start, spot.stop] == pytest.approx(best)
            assert spot.excess * math.log(2) == pytest.approx(best + spot.stop - spot.start)


def test_fields_have_no_excess():
    fields = np.array([True, True, False, False])
    assert without_fields(np.array([2.0, -1.0, 2.0, -1.0]), fields).tolist() == [0, -1, 2, -1]


def test_a_reason_names_the_stretch_and_what_was_expected():
    from chainrule.data import CharVocabulary

    text = "status=200\n" * 40
    vocabulary = CharVocabulary.fit([text + "9"], eos=True)
    counts = NgramLM.fit(torch.from_numpy(vocabulary.encode(text)), len(vocabulary), 6)
    ids = vocabulary.encode("status=299\n")
    reason = Reason(spots.Spot(8, 9, 12.0, 14.0), ids, vocabulary, counts, vocabulary.encode(""))
    assert str(reason) == '+14.0 bits: "299" where "200" was expected'
    assert pickle.loads(pickle.dumps(reason)) == str(reason)  # noqa: S301  the test made it
    strange = reason_of(
        spots.Spot(7, 10, 12.0, 14.0),
        vocabulary.encode("status=Žß7\n"),
        "status=Žß7",
        vocabulary,
        counts,
        in_lines=True,
    )
    assert str(strange) == '+14.0 bits: "Žß7" where "200" was expected'  # characters that training had not
    end = Reason(
        spots.Spot(8, 9, 12.0, 14.0), vocabulary.encode("status=2\n"), vocabulary, counts, vocabulary.encode("")
    )
    assert str(end) == '+14.0 bits: the end of the line where "200" was expected'


LOG = "".join(
    f"2026-03-02 04:{minute:02d}:{second:02d} host sshd[{812 + second}]: session opened for user root\n"
    for minute in range(3)
    for second in range(60)
)


@pytest.fixture(scope="module")
def log_run(tmp_path_factory):
    import chainrule

    folder = tmp_path_factory.mktemp("log")
    (folder / "app.log").write_text(
        LOG + "2026-03-02 05:00:00 host sshd[3]: session ended for user guest\n" + LOG[:900]
    )
    options = {"hidden_size": 8, "num_layers": 1, "steps": 20, "seed": 0}
    return folder, chainrule.fit(str(folder / "app.log"), task="text", out=folder / "run", **options)


def test_a_log_is_read_by_lines_and_its_odd_line_found(log_run, command):
    folder, run = log_run
    assert run.config["data"]["reading"] == "lines"
    outcome = command("score", folder / "run", folder / "app.log", "--top", 1, "--json")
    (row,) = [json.loads(line) for line in outcome.out.splitlines()]
    assert row["line"] == 181
    assert row["why"].startswith("+")
    assert "trained on this very text" in outcome.err
    (folder / "new.log").write_text(LOG[:900])
    assert "trained on" not in command("score", folder / "run", folder / "new.log", "--top", 1).err


def test_masked_fields_have_no_spot(log_run, command):
    folder, _ = log_run
    (folder / "odd.log").write_text(
        LOG[:400] + "2026-03-02 99:99:99 host sshd[77777777]: session opened for user root\n"
    )
    asked = ["score", folder / "run", folder / "odd.log", "--top", 1, "--json"]
    plain, masked = (json.loads(command(*asked, *more).out) for more in ([], ["--mask"]))
    assert plain["line"] == masked["line"] or plain["spot"] > masked["spot"]
    assert plain["spot"] > masked["spot"]
    assert masked["text"] == "* host sshd[*]: session opened for user root"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (["--mask", "--by", "nats"], "--mask: requires --per line and --by spot"),
        (["--mask", "--per", "element"], "--mask: requires --per line and --by spot"),
        (["--adapt", "--by", "spot"], "--by: spot requires fixed weights, which --adapt changes"),
    ],
)
def test_options_that_contradict_each_other(log_run, command, asked, expected):
    folder, _ = log_run
    outcome = command("score", folder / "run", folder / "app.log", *asked)
    assert expected in outcome.err
