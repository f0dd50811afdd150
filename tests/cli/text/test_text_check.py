import json

import torch
from hypothesis import given
from hypothesis import strategies as st

from chainrule.data import ByteVocabulary, WordVocabulary
from chainrule.heads import Categorical
from chainrule.models import RecurrentLM
from chainrule.testing import _contract
from chainrule.testing._dependence import check_causality
from chainrule.testing._invariance import check_save_load
from chainrule_app.tasks import open_run
from chainrule_app.tasks.text.windows import file_window, own_window


def test_lines_are_checked_with_their_lengths(ok, runs, monkeypatch):
    names = ("causality", "total_probability", "step_equals_forward", "padding_invariance", "chunk_invariance")
    checks = tuple(check for check in _contract.CHECKS if check.__name__.removeprefix("check_") in names)
    monkeypatch.setattr(_contract, "CHECKS", checks)
    outcome = ok("check", runs / "lines")
    assert all(name in outcome.out for name in names)


def test_checks_as_json_are_one_object_each(command, runs, monkeypatch):
    monkeypatch.setattr("chainrule_app.tasks.text.run._CHECKED_ELEMENTS", 32)  # as is
    rows = [json.loads(line) for line in command("check", runs / "stream", "--json").out.splitlines()]
    assert len({row["name"] for row in rows}) == len(rows) >= 11
    assert all(set(row) == {"name", "ok", "applies", "detail"} and row["ok"] for row in rows)


def test_a_failing_check_gives_status_1(command, runs, monkeypatch):
    def leaking(self, x, context=None, lengths=None):
        shifted = torch.nn.functional.one_hot(x, self.vocab_size).to(self.bias_ho.dtype)
        return Categorical(logits=shifted * 3 + self.bias_ho)

    monkeypatch.setattr(RecurrentLM, "forward", leaking)
    monkeypatch.setattr(_contract, "CHECKS", (check_causality, check_save_load))
    outcome = command("check", runs / "stream", "--json")
    assert outcome.status == 1
    failed = {row["name"] for row in map(json.loads, outcome.out.splitlines()) if not row["ok"]}
    assert "causality" in failed


def test_the_window_is_the_runs_own_held_out_text(runs):
    run = open_run(runs / "stream")
    x, lengths, _ = own_window(run, 4, 32)
    assert x.shape == (4, 32)
    assert lengths is None
    assert "all is" in run.vocabulary.decode(x.flatten().numpy())
    x, lengths, _ = own_window(open_run(runs / "lines"), 4, 32)
    assert x.shape[0] == 4
    assert 0 < lengths.max() == x.shape[1] <= 32


def test_a_run_without_its_corpus_says_so(refused, run_copy):
    (run_copy / "data" / "corpus.json").unlink()
    assert "corpus.json" in refused("check", run_copy)


@given(size=st.integers(2, 60), rows=st.integers(1, 5), steps=st.integers(2, 20))
def test_rows_follow_one_another_and_lose_less_than_one_symbol_a_row(tmp_path_factory, size, rows, steps):
    file = tmp_path_factory.mktemp("text") / "a.bin"
    file.write_bytes(bytes(range(1, size + 1)))
    x, lengths = file_window(ByteVocabulary(), "stream", str(file), rows, steps)
    assert lengths is None
    assert x.flatten().tolist() == list(range(1, x.numel() + 1))
    assert x.shape[0] <= rows
    assert x.shape[1] <= steps
    assert min(size, rows * steps) - x.numel() < x.shape[0]


def test_lines_keep_their_lengths_and_those_without_a_step_are_passed_over(tmp_path):
    (tmp_path / "a.txt").write_text("a b c d\n\ne\nf g h i j k l")
    vocabulary = WordVocabulary(list("abcdefghijkl"))
    x, lengths = file_window(vocabulary, "lines", str(tmp_path / "a.txt"), 8, 5)
    assert lengths.tolist() == [5, 2, 5]
    assert [vocabulary.decode(row[:length].numpy()) for row, length in zip(x, lengths, strict=True)] == [
        "a b c d\n",
        "e\n",
        "f g h i j",
    ]
    assert x[1, 2:].tolist() == [0, 0, 0]
    first, _ = file_window(vocabulary, "lines", str(tmp_path / "a.txt"), 1, 5)
    assert len(first) == 1


def test_a_run_with_little_held_out_is_looked_at_in_training(runs):
    run = open_run(runs / "stream")
    held_out, _, part = own_window(run, 2, 8)
    assert part == "held-out"
    assert "line 48" in run.vocabulary.decode(held_out.flatten().numpy())
    trained, _, part = own_window(run, 8, 200)
    assert part == "training"
    assert run.vocabulary.decode(trained.flatten().numpy()).startswith("line 0 of")
