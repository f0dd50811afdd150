import json

import torch

from chainrule._app.tasks import open_run
from chainrule._app.tasks.text.preparing import own_window
from chainrule.heads import Categorical
from chainrule.models import RecurrentLM


def test_a_sound_model_passes_every_check(ok, runs):
    outcome = ok("check", runs / "lines")
    for name in ("causality", "total_probability", "step_equals_forward", "chunk_invariance"):
        assert name in outcome.out


def test_checks_as_json_are_one_object_each(command, runs, monkeypatch):
    monkeypatch.setattr("chainrule._app.tasks.text.task._CHECKED_ELEMENTS", 32)  # as is
    rows = [json.loads(line) for line in command("check", runs / "stream", "--json").out.splitlines()]
    assert len({row["name"] for row in rows}) == len(rows) >= 11
    assert all(set(row) == {"name", "ok", "applies", "detail"} and row["ok"] for row in rows)


def test_a_failing_check_gives_status_1(command, runs, monkeypatch):
    def leaking(self, x, context=None, lengths=None):
        shifted = torch.nn.functional.one_hot(x, self.vocab_size).to(self.bias_ho.dtype)
        return Categorical(logits=shifted * 3 + self.bias_ho)

    monkeypatch.setattr(RecurrentLM, "forward", leaking)
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
