import json

import pytest
import torch
from by_day import by_day
from safetensors.torch import load_file

from chainrule.models import CalibratedMixture, Ensemble, TransformerLM
from chainrule_app.tasks import open_run
from chainrule_app.tasks.run_directory import CHECKPOINT


def test_info_tells_what_a_run_is(command, runs, text_file):
    shown = command("info", runs / "stream").out
    parameters = sum(weight.numel() for weight in open_run(runs / "stream").model().parameters())
    for part in (
        f"{parameters:,}",
        "GRU 8 + 12-gram counts",
        "hidden_size 8",
        "log.txt",
        "last 20%",
        "level char",
        "4 steps",
        "no validation yet",
        f"chainrule train --resume --out {runs / 'stream'}",
        "model.safetensors",
    ):
        assert part in shown, part


def test_info_as_json_holds_the_same(command, runs, text_file):
    facts = json.loads(command("info", runs / "lines", "--json").out)
    run = open_run(runs / "lines")
    assert facts["vocabulary_size"] == len(run.vocabulary)
    assert facts["facts"]["source"]["bytes"] == text_file.stat().st_size
    assert facts["data"]["reading"] == "lines"
    assert facts["bytes"]["model.safetensors"] == (run.path / "model.safetensors").stat().st_size
    assert facts["best"] is None


def test_info_shows_the_best_validation_not_the_last(command, run_copy):
    figures = [(10, 2.0), (20, 1.5), (30, 1.7)]
    lines = [
        {
            "event": "validation",
            "step": step,
            "nats_per_element": nats,
            "bits_per_element": nats / 0.7,
            "perplexity": 9.0,
            "elements": 100,
            "best": step < 30,
        }
        for step, nats in figures
    ]
    text = "".join(json.dumps(line) + "\n" for line in [*lines, {"event": "step", "step": 33, "gradient_norm": 1.0}])
    (run_copy / "metrics.jsonl").write_text(text)
    facts = json.loads(command("info", run_copy, "--json").out)
    assert (facts["step"], facts["best"]["step"], facts["best"]["nats_per_element"]) == (33, 20, 1.5)
    assert "1.5000 nats" in command("info", run_copy).out


def test_a_best_validation_of_nothing_is_damage(refused, run_copy):
    figures = {"nats_per_element": 1.5, "bits_per_element": 2.2, "perplexity": 4.5, "elements": 0}
    record = {"event": "validation", "step": 10, "best": True} | figures
    (run_copy / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    assert "metrics.jsonl: expected elements in the best validation, got 0" in refused("info", run_copy)


def test_a_run_without_weights_still_tells_how_to_go_on(command, run_copy):
    (run_copy / "model.safetensors").unlink()
    assert "--resume" in command("info", run_copy).out


def test_changed_weights_are_told(refused, run_copy):
    whole = bytearray((run_copy / "model.safetensors").read_bytes())
    whole[-1] ^= 1
    (run_copy / "model.safetensors").write_bytes(bytes(whole))
    for verb in ("info", "sample", "check"):
        assert "model.safetensors" in refused(verb, run_copy)
    assert torch.is_grad_enabled()


SMALL = {
    "lstm": ("--hidden-size", 12, "--watch-gradients"),
    "transformer": ("--model", "transformer", "--model-size", 8, "--num-layers", 1, "--num-heads", 2),
}


def members_of(model):
    """The models that are averaged; with counts of n-grams, as every model of a text."""
    assert isinstance(model, CalibratedMixture)
    assert isinstance(model.network, Ensemble)
    return model.network.members


@pytest.fixture(params=by_day(SMALL, "lstm"))
def run(request, ok, text_file, tmp_path):
    out = tmp_path / "run"
    ok(
        "train", text_file, "--out", out, "--steps", 3, "--num-members", 2, "--validation-fraction", 0.2,
        *SMALL[request.param],
    )  # fmt: skip
    return out


def test_every_verb_takes_the_mean(command, ok, run, text_file, tmp_path):
    model = open_run(run).model()
    members = members_of(model)
    weights = [torch.cat([part.flatten() for part in member.parameters()]) for member in members]
    assert not torch.equal(*weights)  # members that are alike would be worth no more than one
    (scored,) = map(json.loads, command("score", run, text_file, "--json").out.splitlines())
    x = torch.tensor(open_run(run).vocabulary.encode(text_file.read_text(encoding="utf-8"))).unsqueeze(0)
    assert scored["nats"] == pytest.approx(-model.log_prob(x).item(), rel=1e-4)
    assert abs(scored["nats"] + members[0].log_prob(x).item()) > 1e-2  # one of them says something else
    (tmp_path / "short.txt").write_text(text_file.read_text(encoding="utf-8")[:200], encoding="utf-8")
    for verb in (
        ("sample", run, "--length", 9),
        ("score", run, tmp_path / "short.txt", "--adapt"),
        ("embed", run, text_file),
        ("inspect", run, "--rows", 2, "--steps", 8, "--out", tmp_path / "page.html"),
        ("compress", run, tmp_path / "short.txt", "--out", tmp_path / "small"),
        ("info", run),
    ):
        ok(*verb)
    if isinstance(members[0], TransformerLM):  # what it does not reach of a prompt is left out
        assert "the model reads only the last" in command("sample", run, "--length", 9, "--prompt", "a" * 100).err
    assert "network 1 of 2 in 2 × " in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "num_members 2" in command("info", run).out


def test_a_resumed_run_trains_every_member(ok, run):
    trained = {name for name, _ in members_of(open_run(run).model()).named_parameters()}
    before = load_file(run / CHECKPOINT)
    ok("train", "--resume", "--out", run, "--steps", 6)
    after = load_file(run / CHECKPOINT)
    names = [f"model.network.members.{name}" for name in trained]
    assert not any(
        torch.equal(before[name], after[name]) for name in names if name in before
    )  # tied ones are there once
    assert {name.split(".")[3] for name in names if name in before} == {"0", "1"}


def test_members_out_of_range_are_refused(refused, text_file, tmp_path):
    line = refused("train", text_file, "--out", tmp_path / "none", "--num-members", 0)
    assert "--num-members" in line
