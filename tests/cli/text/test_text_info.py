import json

import torch

from chainrule._app.tasks import open_run


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
